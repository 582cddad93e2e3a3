"""The customer's one file against the real portal: nothing lost, nothing counted twice.

The SDK runs as its user would run it: alone, from its file. A real proxy cuts real connections.
"""

import ast
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from portal.accounts.services import token_create
from portal.billing.models import ParkedUsage, UsageEvent

FILE = Path(__file__).resolve().parents[2] / "sdk" / "ignition_usage.py"
COUNTING = """
import sys
sys.path.insert(0, sys.argv[1])
from ignition_usage import UsageCounter
usage = UsageCounter("http://127.0.0.1:9/", token="t", source="killed", spool=sys.argv[2])
usage.start()
while True:
    print(usage.count("text-encoder", "search-1", 3), flush=True)
"""


@pytest.fixture(scope="module")
def sdk() -> ModuleType:
    spec = spec_from_file_location("ignition_usage", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["ignition_usage"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def portal(threads_db, cast, agreed, live_server) -> tuple[str, str]:
    """Address and token of a portal that takes usage."""
    _, token = token_create(actor=cast.owner, name="sdk", scopes=["usage:write"])
    return f"{live_server.url}/api/v1/usage/events", token


@pytest.fixture
def counter(sdk, portal, tmp_path):
    def make(url: str = portal[0], token: str = portal[1], **more):
        more = {"source": "gateway-1", "spool": tmp_path / "usage.sqlite", **more}
        return sdk.UsageCounter(url, token=token, **more)

    return make


@contextmanager
def cutting(url: str, cuts: int) -> Iterator[str]:
    """A proxy that passes requests on, but cuts the first `cuts` connections before the answer."""
    host, port = url.split("/")[2].split(":")
    path = "/" + url.split("/", 3)[3]
    left = [cuts]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    near, _ = server.accept()
                except OSError:
                    return
                with near, socket.create_connection((host, int(port))) as far:
                    far.sendall(_request(near))
                    answer = far.recv(1)
                    if left[0] > 0:
                        left[0] -= 1
                        continue
                    while answer:
                        near.sendall(answer)
                        answer = far.recv(65536)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}{path}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _request(near: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += near.recv(65536)
    head, body = data.split(b"\r\n\r\n", 1)
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += near.recv(65536)
    return data[: len(head) + 4] + body


def test_it_needs_the_standard_library_alone() -> None:
    names = set()
    for node in ast.walk(ast.parse(FILE.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= sys.stdlib_module_names


def test_an_answer_that_is_lost_on_the_way_counts_nothing_twice(counter, portal, sdk):
    with cutting(portal[0], cuts=2) as url:
        usage = counter(url)
        usage.count("text-encoder", "search-1", 32)
        usage.count_many([("text-encoder", "search-1", number) for number in range(5)])
        for _ in range(2):
            with pytest.raises(sdk.Unreachable):
                usage.flush()
            assert usage.waiting() == 6
        assert usage.flush() == 6
    assert usage.waiting() == 0
    assert usage.refused() == []
    assert sum(UsageEvent.objects.values_list("samples", flat=True)) == 32 + 10
    assert ParkedUsage.objects.filter(fate="duplicate").count() == 12


def test_what_the_portal_does_not_count_is_kept_with_its_reason(counter):
    usage = counter(batch=2)
    usage.count("text-encoder", "search-1", 1, event_id="mine")
    usage.count("text-encoder", "search-1", 2, event_id="mine")
    usage.count("other", "search-1", 3)
    assert usage.flush() == 3
    assert [refused.fate for refused in usage.refused()] == ["conflict", "unmatched"]
    assert "register it" in usage.refused()[1].reason
    assert usage.send_again() == 2
    assert (usage.waiting(), usage.refused()) == (2, [])
    assert usage.flush() == 2
    assert len(usage.refused()) == 2
    assert UsageEvent.objects.get().samples == 1


def test_too_large_a_delivery_is_sent_in_parts(counter, monkeypatch):
    from portal.api import usage as api

    monkeypatch.setattr(api, "MAX_EVENTS", 3)
    usage = counter()
    usage.count_many([("text-encoder", "search-1", 1)] * 8)
    assert usage.flush() == 8
    assert UsageEvent.objects.count() == 8


def test_a_wrong_token_loses_nothing(counter, sdk):
    usage = counter(token="ign_no_no")
    usage.count("text-encoder", "search-1", 1)
    with pytest.raises(sdk.NotAllowed):
        usage.flush()
    assert usage.close(within_s=0.1) == 1


def test_a_killed_process_loses_nothing_that_it_counted(counter, sdk, tmp_path):
    """SIGKILL while it counts; every id that `count` returned reaches the portal once."""
    spool = tmp_path / "killed.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTING, str(FILE.parent), str(spool)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    counted = [process.stdout.readline().strip() for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    counted += [line.strip() for line in process.stdout.read().splitlines() if len(line) == 32]
    process.wait()
    process.stdout.close()
    usage = counter(spool=spool)
    usage.start()
    usage.close(within_s=60)
    stored = set(UsageEvent.objects.values_list("event_id", flat=True))
    assert set(counted) <= stored
    # One more may be on disk whose id the killed process had no time to tell.
    assert len(stored) <= len(counted) + 1
    assert UsageEvent.objects.filter(source="killed", samples=3).count() == len(stored)


@pytest.mark.parametrize(
    "wrong",
    [{"samples": -1}, {"samples": 1.5}, {"samples": True}, {"at": "2026-10-01"}],
    ids=str,
)
def test_what_is_no_volume_is_refused_where_it_is_counted(sdk, tmp_path, wrong):
    from datetime import datetime

    usage = sdk.UsageCounter("http://x/", token="t", source="s", spool=tmp_path / "s.sqlite")
    if "at" in wrong:
        wrong = {"samples": 1, "at": datetime.fromisoformat(wrong["at"])}
    with pytest.raises(ValueError, match="wanted"):
        usage.count("m", "s", **wrong)
    assert usage.waiting() == 0


def test_events_are_cloudevents_that_the_engine_reads(sdk, tmp_path):
    from metering.usage import read_events

    usage = sdk.UsageCounter("http://x/", token="t", source="s", spool=tmp_path / "s.sqlite")
    identifier = usage.count("m", "s", 7)
    ((_, line),) = usage._next(10)
    (event,) = read_events([line]).events
    assert (event.id, event.samples, event.source) == (identifier, 7, "s")
    assert json.loads(line)["datacontenttype"] == "application/json"
