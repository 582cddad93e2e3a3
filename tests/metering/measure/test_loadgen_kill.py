"""SIGKILL of the parent or of the child, at any moment: no process is left, and no half a run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metering import loadgen
from metering.loadgen import RunSpec, processes
from metering.loadgen.supervisor import supervise
from tests.metering.measure.run_processes import alive
from tests.quick import some

MakeSpec = Callable[..., RunSpec]
HOSTILE = Path(__file__).with_name("hostile_child.py")
ROOT = Path(loadgen.__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from pathlib import Path
from metering.loadgen import RunSpec
from metering.loadgen.supervisor import supervise
spec = RunSpec.from_dict(json.loads(Path(sys.argv[1]).read_text()))
supervise(spec, Path(sys.argv[2]), child=sys.argv[3:])
"""
# About half a second of a system that takes five milliseconds a call, in each scenario.
LASTING: dict[str, dict[str, Any]] = {
    "Offline": {"min_query_count": 1600},
    "SingleStream": {"min_query_count": 100, "target_qps": 200.0},
    "MultiStream": {"min_query_count": 100, "target_qps": 1600.0, "max_duration_ms": 20_000},
    "Server": {
        "min_query_count": 500,
        "target_qps": 1000.0,
        "target_latency_ns": 10**10,
        "max_async_queries": 5000,
        "max_duration_ms": 20_000,
    },
}
# Fractions of a whole run, from before the child has begun until after it has ended.
MOMENTS = [(number / 20, list(LASTING)[number % 4]) for number in range(24)]


def child(case: str) -> list[str]:
    return [sys.executable, "-P", str(HOSTILE), case]


def lasting(make_spec: MakeSpec, scenario: str) -> RunSpec:
    return make_spec(
        {"stack": "null", "batch": 16}, scenario=scenario, warmup_ms=0, **LASTING[scenario]
    )


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never began"
        time.sleep(0.005)


@contextlib.contextmanager
def parent(spec: RunSpec, out: Path, case: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that supervises ``spec``; it has made the run folder when this begins."""
    path = out.with_suffix(".json")
    path.write_text(json.dumps(spec.to_dict()))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), str(out), *child(case)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        wait_for(out.exists)
        yield process
    finally:
        process.kill()
        process.wait()


def whole_or_no_run(out: Path) -> bool:
    """True when the folder holds a whole run; False when it holds none, and says so."""
    if loadgen.stored(out):
        assert loadgen.load_run(out).state in ("VALID", "INVALID")
        return True
    with pytest.raises(loadgen.EvidenceError):
        loadgen.load_run(out)
    return False


@pytest.mark.slow
def test_killing_the_parent_at_any_moment(make_spec: MakeSpec, tmp_path: Path) -> None:
    """The system has started a process in a session of its own, which must go too."""
    began = time.monotonic()
    with parent(lasting(make_spec, "Offline"), tmp_path / "timed", "leaves_a_daemon") as process:
        began = time.monotonic()
        assert process.wait() == 0
    whole_s = time.monotonic() - began
    assert whole_or_no_run(tmp_path / "timed")
    outcomes = []
    for number, (moment, scenario) in enumerate(some(MOMENTS, 4)):
        out, spec = tmp_path / f"run-{number}", lasting(make_spec, scenario)
        with parent(spec, out, "leaves_a_daemon") as process:
            time.sleep(moment * whole_s)
            process.kill()
        assert alive(out) == []
        outcomes.append(whole_or_no_run(out))
        if not outcomes[-1]:
            left = out
    # The sweep did meet runs that were under way, and the remains of one take the run again.
    assert not all(outcomes)
    assert supervise(spec, left, child=child("five_milliseconds")).state in ("VALID", "INVALID")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["warden", "worker"])
def test_killing_the_child_at_any_moment(make_spec: MakeSpec, tmp_path: Path, victim: str) -> None:
    spec = lasting(make_spec, "Offline")
    began = time.monotonic()
    supervise(spec, tmp_path / "timed", child=child("leaves_a_daemon"))
    whole_s = time.monotonic() - began
    states = set()
    for number, (moment, scenario) in enumerate(some(MOMENTS[::2], 3)):
        out, spec = tmp_path / f"run-{number}", lasting(make_spec, scenario)
        killer = threading.Thread(target=kill_one, args=(out, victim, moment * whole_s))
        killer.start()
        result = supervise(spec, out, child=child("leaves_a_daemon"))
        killer.join()
        assert alive(out) == []
        assert loadgen.load_run(out) == result
        if result.state == "CRASHED":
            assert result.signal == signal.SIGKILL
        states.add(result.state)
    assert "CRASHED" in states
    assert states <= {"CRASHED", "VALID", "INVALID"}


def kill_one(out: Path, victim: str, after_s: float) -> None:
    """Kill the first or the second process of the run of ``out``, as soon as there is one then."""
    wait_for(out.exists)
    time.sleep(after_s)
    while not loadgen.stored(out):
        for warden in processes.children(os.getpid()):
            with contextlib.suppress(OSError):
                if str(out).encode() not in Path(f"/proc/{warden}/cmdline").read_bytes():
                    continue
                for pid in [warden] if victim == "warden" else processes.children(warden)[:1]:
                    os.kill(pid, signal.SIGKILL)
                    return
        time.sleep(0.002)


def test_a_daemon_in_a_session_of_its_own_does_not_outlive_the_run(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = lasting(make_spec, "Offline")
    result = supervise(spec, tmp_path / "run", child=child("leaves_a_daemon"))
    assert result.state == "VALID", result.reasons
    assert alive(tmp_path / "run") == []


def test_a_worker_whose_warden_is_gone_ends(make_spec: MakeSpec, tmp_path: Path) -> None:
    """What is left of the run is found by its mark, although the warden could not end it."""
    out = tmp_path / "run"
    seen: list[loadgen.Heartbeat] = []

    def kill(beat: loadgen.Heartbeat) -> None:
        seen.append(beat)
        if beat.completed:
            kill_one(out, "warden", 0)

    result = supervise(
        lasting(make_spec, "Offline"), out, child=child("leaves_a_daemon"), on_heartbeat=kill
    )
    assert result.state == "CRASHED"
    assert seen
    assert alive(out) == []
