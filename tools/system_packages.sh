#!/usr/bin/env bash
# Make sure the system tools of one purpose are present; install Debian's packages when missing.
#
# usage: tools/system_packages.sh demo|test|services
# Exit 0: everything needed is there. Exit 1: something needed is missing and could not be installed.
set -eu

purpose=${1:?usage: system_packages.sh demo|test|services}

# One row per tool: command to look for | Debian package | need (required or optional).
demo_tools="
gcc|gcc|required
ld|binutils|required
nm|binutils|required
ssh-keygen|openssh-client|required
pdfsig|poppler-utils|optional
bwrap|bubblewrap|optional
"
test_tools="
pdfsig|poppler-utils|required
bwrap|bubblewrap|required
openssl|openssl|required
chromium|chromium|required
"
services_tools="
redis-server|redis-server|required
pg_ctlcluster|postgresql|required
"
rows=$demo_tools
[ "$purpose" = demo ] || rows="$rows$test_tools"
[ "$purpose" != services ] || rows="$rows$services_tools"

missing=() required_missing=()
while IFS='|' read -r tool package need; do
    [ -n "$tool" ] || continue
    if command -v "$tool" >/dev/null 2>&1; then continue; fi
    missing+=("$package")
    [ "$need" = required ] && required_missing+=("$package")
done <<<"$rows"
# The C library's headers come in their own package; gcc alone may lack them.
if [ ! -e /usr/include/stdlib.h ]; then
    missing+=(libc6-dev) required_missing+=(libc6-dev)
fi
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    if apt-get update >"$log" 2>&1 &&
        apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
        rm -f "$log"
        exit 0
    fi
    tail -n 5 "$log" >&2
fi
if [ "${#required_missing[@]}" -gt 0 ]; then
    echo "missing system packages: ${required_missing[*]}" >&2
    echo "install them (Debian: apt-get install ${required_missing[*]}) and run again" >&2
    exit 1
fi
echo "optional system packages not installed: ${missing[*]} (the run says what that costs)" >&2
