"""A real portal behind gunicorn on a real PostgreSQL, customers that send, a hand that kills.

In: the environment `tools/with_services.sh` makes. Out: how many events were acknowledged in which
time, how many workers were killed, what the database then holds. Used by the services test and by
`make bench-metering`.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

PROJECT = Path(__file__).resolve().parents[2]
_PREPARE = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from pathlib import Path
from django.conf import settings
from kernelgen.machine import Machine
from portal.accounts.access import Platform
from portal.accounts.services import member_add, organisation_create, token_create
from portal.registry.services import model_register, system_register
own = organisation_create(slug="own", name="Own")
owner = member_add(actor=Platform(own), organisation=own, username="owner", role="customer")
path = Path(settings.IGNITION_HOME) / "encoder.onnx"
path.write_bytes(b"bytes of a test")
model_register(actor=owner, organisation=own, name="text-encoder", path=path,
               licence="Apache-2.0", source="a test")
machine = Machine.from_dict(dict(
    cpu_model="Example", architecture="x86_64", isa=["avx2"], cores=2, l1d_bytes=1, l2_bytes=1,
    l3_bytes=1, memory_bytes=1, kernel="6.1", gpus=[], fingerprint="ab" * 32,
    peak_gflops_per_core=1.0, peak_gbps_per_core=1.0))
system_register(actor=owner, organisation=own, name="search-1", machine=machine)
print(token_create(actor=owner, name="load", scopes=["usage:write"])[1])
"""


@dataclass
class Server:
    """A running gunicorn and how to reach it."""

    port: int
    token: str
    process: subprocess.Popen[bytes]
    killed: int = 0

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        pid = self.process.pid
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill_a_worker(self) -> None:
        """SIGKILL one worker, as the kernel does when memory runs out."""
        for worker in self.workers()[:1]:
            os.kill(worker, signal.SIGKILL)
            self.killed += 1


@dataclass
class Outcome:
    """What the customers saw. `answers`: status code of every delivery's last answer."""

    events: int = 0
    seconds: float = 0.0
    retries: int = 0
    answers: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(home: Path, environment: Mapping[str, str], workers: int = 2) -> Iterator[Server]:
    """Migrate, make one customer with one model and one system, start the workers.

    The application is loaded once, before the workers are forked, so that the next worker is
    there a moment after one was killed.
    """
    # WhiteNoise warns about a missing folder of static files.
    (home / "static").mkdir(parents=True, exist_ok=True)
    env = {
        **environment,
        "IGNITION_HOME": str(home),
        "DJANGO_SETTINGS_MODULE": "portal.settings.embedded",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "platform")]),
    }
    prepared = subprocess.run(
        [sys.executable, "-c", _PREPARE], env=env, capture_output=True, text=True, check=False
    )
    if prepared.returncode != 0:
        raise RuntimeError(prepared.stderr[-2000:])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "gunicorn", "portal.wsgi:application", "--workers", str(workers),
        "--bind", f"127.0.0.1:{port}", "--timeout", "120", "--log-level", "critical",
        "--config", str(Path(__file__).with_name("gunicorn_warm.py")),
    ]  # fmt: skip
    process = subprocess.Popen(command, env=env, cwd=PROJECT)
    try:
        _wait(port, process)
        yield Server(port, prepared.stdout.strip().splitlines()[-1], process)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"gunicorn ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("gunicorn did not listen within a minute")


def event(source: str, number: int, samples: int = 10) -> dict[str, object]:
    """One event of October 2026."""
    return {
        "specversion": "1.0",
        "type": "ignition.usage.v1",
        "source": source,
        "id": f"{source}-{number:08d}",
        "time": f"2026-10-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:00Z",
        "datacontenttype": "application/json",
        "data": {"model": "text-encoder", "system": "search-1", "samples": samples},
    }


def bodies(source: str, deliveries: int, size: int) -> list[bytes]:
    """`deliveries` batches of `size` events; every event has samples 10."""
    return [
        json.dumps([event(source, start * size + i) for i in range(size)]).encode()
        for start in range(deliveries)
    ]


def send_all(
    server: Server, customers: Sequence[Sequence[bytes]], size: int, kill_every: int | None
) -> Outcome:
    """Each customer sends its batches one after the other, each until it is acknowledged.

    `kill_every`: a worker is killed each time so many more deliveries were acknowledged, while
    the next ones are on their way. Counting deliveries, not seconds, lets a slow machine go on.
    """
    outcome = Outcome()
    threads = [
        threading.Thread(target=_send, args=(server, batches, size, outcome))
        for batches in customers
    ]
    done = threading.Event()
    killer = threading.Thread(target=_kill, args=(server, kill_every, outcome, done))
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    killer.start()
    for thread in threads:
        thread.join()
    outcome.seconds = time.perf_counter() - begin
    done.set()
    killer.join()
    return outcome


def _kill(server: Server, every: int | None, outcome: Outcome, done: threading.Event) -> None:
    mark = every
    while every is not None and mark is not None and not done.wait(0.01):
        if len(outcome.answers) >= mark:
            server.kill_a_worker()
            mark += every


def _send(server: Server, batches: Sequence[bytes], size: int, outcome: Outcome) -> None:
    headers = {
        "Content-Type": "application/cloudevents-batch+json",
        "Authorization": f"Bearer {server.token}",
    }
    for body in batches:
        for _ in range(1_000):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            try:
                connection.request("POST", "/api/v1/usage/events", body, headers)
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                with outcome.lock:
                    outcome.retries += 1
                time.sleep(0.02)  # a new worker takes a moment to start
                continue
            finally:
                connection.close()
            with outcome.lock:
                outcome.answers.append(answer.status)
                outcome.events += size if answer.status == 200 else 0
            break
        else:
            raise RuntimeError("a delivery was not acknowledged in a thousand attempts")


def held(database_url: str) -> tuple[int, int, int]:
    """Events, different (source, id), and samples in the database."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT count(*), count(DISTINCT (source, event_id)), coalesce(sum(samples), 0)"
            " FROM billing_usageevent"
        ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def main(home: str, events: str, size: str) -> None:
    """Send `events` in deliveries of `size` from two customers; print what came of it as JSON."""
    customers, per_delivery = 2, int(size)
    deliveries = int(events) // per_delivery // customers
    prepared = [bodies(f"gateway-{n}", deliveries, per_delivery) for n in range(customers)]
    with serving(Path(home), os.environ) as server:
        outcome = send_all(server, prepared, per_delivery, kill_every=max(2, deliveries // 2))
    print(
        json.dumps(
            {
                "events": outcome.events,
                "seconds": outcome.seconds,
                "retries": outcome.retries,
                "killed": server.killed,
                "held": held(os.environ["DATABASE_URL"]),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
