#!/usr/bin/env bash
# Run one command with a real PostgreSQL and a real Redis of its own on loopback; both end with it.
#
# usage: tools/with_services.sh COMMAND [ARG ...]
# Sets DATABASE_URL and REDIS_URL for the command. Nothing outside a temporary folder is touched.
set -euo pipefail
work=$(mktemp -d)
chmod 755 "$work"
pg_bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
as_postgres=()
if [ "$(id -u)" = 0 ]; then
    # PostgreSQL refuses to run as root.
    as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups --)
    install -d -o postgres -g postgres "$work/pg"
else
    mkdir "$work/pg"
fi
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
pg_port=$(free_port)
redis_port=$(free_port)

redis_pid=
stop() {
    [ -z "$redis_pid" ] || kill "$redis_pid" 2>/dev/null || true
    "${as_postgres[@]}" "$pg_bin/pg_ctl" -D "$work/pg/data" -m immediate stop >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT

"${as_postgres[@]}" "$pg_bin/initdb" -D "$work/pg/data" -U ignition --auth=trust --encoding=UTF8 >/dev/null
"${as_postgres[@]}" "$pg_bin/pg_ctl" -D "$work/pg/data" -w -l "$work/pg/log" \
    -o "-p $pg_port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$work/pg" start >/dev/null
redis-server --port "$redis_port" --bind 127.0.0.1 --save '' --appendonly no --dir "$work" >"$work/redis.log" &
redis_pid=$!
for _ in $(seq 50); do
    redis-cli -p "$redis_port" ping >/dev/null 2>&1 && break
    sleep 0.1
done
redis-cli -p "$redis_port" ping >/dev/null

export DATABASE_URL="postgres://ignition@127.0.0.1:$pg_port/postgres"
export REDIS_URL="redis://127.0.0.1:$redis_port/0"
"$@"
