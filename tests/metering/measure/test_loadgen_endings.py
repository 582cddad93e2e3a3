"""How a LoadGen run can end, each with a real LoadGen child: the gotchas as one table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metering import loadgen
from metering.loadgen import RunSpec, supervisor
from metering.loadgen.supervisor import supervise
from metering.stacks import null as null_stack
from tests.metering.measure.run_processes import alive

HOSTILE = Path(__file__).with_name("hostile_child.py")
MakeSpec = Callable[..., RunSpec]


def hostile(case: str) -> tuple[str, ...]:
    return (sys.executable, "-P", str(HOSTILE), case)


def null(**fields: object) -> dict[str, object]:
    # 4,000 samples: fewer end within the minimum duration of a millisecond.
    defaults = {"sut": {"stack": "null", "batch": 16}, "warmup_ms": 0, "min_query_count": 4000}
    return {**defaults, **fields}


def gone(pid: int, within_s: float = 3.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


ENDINGS = [
    # case, changes to the spec, state, part of the reason
    ("never", {"stall_limit_s": 0.8}, "HUNG", "no progress for 0.8 s"),
    ("never_holding_the_interpreter", {"stall_limit_s": 0.8}, "HUNG", "no progress"),
    ("never_and_deaf", {"stall_limit_s": 0.8}, "HUNG", "no progress"),
    ("slow_but_alive", {"wall_limit_s": 1.2}, "HUNG", "wall limit of 1.2 s"),
    ("raises", {}, "ERROR", "ValueError: model exploded"),
    ("raise_in_issue_query", {}, "ERROR", "issue_query: AttributeError"),
    ("raise_in_load_samples", {}, "ERROR", "load_samples: IndexError"),
    ("segfault", {}, "CRASHED", "SIGSEGV"),
    ("killed", {}, "CRASHED", "SIGKILL"),
    ("killed_while_writing", {}, "CRASHED", "SIGKILL"),
    ("silent", {}, "SILENT", "exit status 0 before the test ended"),
    ("silent_with_status", {}, "SILENT", "exit status 7"),
    ("missing_outdir", {}, "SILENT", "without a detail log"),
    ("complete_twice", {}, "ERROR", "completed twice"),
    ("complete_twice_behind_the_ledger", {}, "ERROR", "complete a sample twice"),
    ("complete_unknown", {}, "ERROR", "never issued"),
    ("too_few_rows", {}, "ERROR", "wanted float32 (16, d)"),
    ("wrong_type", {}, "ERROR", "returned float64"),
    ("too_much_memory", {"memory_limit_bytes": 2**32}, "ERROR", "MemoryError"),
    # One file too large, or all files together: whichever is seen first.
    ("too_much_disk", {"file_limit_bytes": 2**20}, "ERROR", "File too large|disk: "),
    ("many_small_files", {"file_limit_bytes": 2**20}, "ERROR", "bytes in the run folder, wanted"),
    ("files_in_the_temporary_folder", {"file_limit_bytes": 2**20}, "ERROR", "disk: "),
    ("memory_in_processes", {"memory_limit_bytes": 2**29}, "ERROR", "processes, wanted at most"),
    ("other_settings", {}, "ERROR", "effective_qsl_rng_seed: got 1, wanted"),
    ("stray_audit_config", {}, "VALID", ""),
    ("honest", {}, "VALID", ""),
]


@pytest.mark.parametrize(
    ("case", "changes", "state", "reason"), ENDINGS, ids=[e[0] for e in ENDINGS]
)
def test_each_ending_has_its_state_and_its_reason(
    case: str,
    changes: dict[str, object],
    state: str,
    reason: str,
    make_spec: MakeSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_GRACE_S", 0.4)
    spec = make_spec(**null(**changes))
    result = supervise(spec, tmp_path / "run", child=hostile(case))
    assert result.state == state, result.reasons
    assert any(part in "; ".join(result.reasons) for part in reason.split("|"))
    assert (result.samples_per_second is not None) == (state == "VALID")
    # No run lasts longer than its limit, the grace and the last look.
    assert result.wall_s < spec.wall_limit_s + 2
    assert alive(tmp_path / "run") == []
    # What is stored says the same, and holds together.
    assert loadgen.load_run(tmp_path / "run") == result
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {*result.files, "result.json"}
    assert "mlperf_log_trace.json" not in left


@pytest.mark.parametrize(
    ("limit_s", "state", "reason"),
    [
        (0.0, "HUNG", "no progress for 0.8 s"),
        (0.5, "HUNG", "null: not opened within its limit of 0.5 s"),
        (90.0, "VALID", ""),
    ],
)
def test_a_stack_that_compiles_has_a_limit_of_its_own(
    limit_s: float,
    state: str,
    reason: str,
    make_spec: MakeSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limits of the test say nothing about a compiler, and count once the system is open."""
    monkeypatch.setattr(null_stack, "prepare_limit_s", lambda sut: limit_s, raising=False)
    monkeypatch.setattr(supervisor, "_GRACE_S", 0.4)
    spec = make_spec(**null(stall_limit_s=0.8, wall_limit_s=1.6))
    result = supervise(spec, tmp_path / "run", child=hostile("opens_slowly"))
    assert result.state == state, result.reasons
    assert reason in "; ".join(result.reasons)
    assert alive(tmp_path / "run") == []


def test_a_log_that_meets_the_disk_limit_is_no_result(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LoadGen itself goes on without a word when it cannot write, and calls the run VALID."""
    monkeypatch.setattr(supervisor, "_LIMITS_S", 3600.0)  # Only the look when it has ended.
    spec = make_spec(**null(sampled_outputs=2000, file_limit_bytes=2**20))
    result = loadgen.run(spec, tmp_path / "run")
    assert result.state == "ERROR"
    assert "disk: " in result.reasons[0]
    assert (tmp_path / "run/mlperf_log_accuracy.json").stat().st_size == 2**20
    detail = (tmp_path / "run/mlperf_log_detail.txt").read_text()
    assert '"result_validity", "value": "VALID"' in detail
    # The time of the measuring process, which the warden waited for, is that of the run.
    assert result.cpu_s > 0.1
    assert loadgen.load_run(tmp_path / "run") == result


def test_loadgen_calls_a_double_completion_valid_and_we_do_not(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    case = hostile("complete_twice_behind_the_ledger")
    result = supervise(make_spec(**null()), tmp_path / "run", child=case)
    detail = (tmp_path / "run/mlperf_log_detail.txt").read_text()
    assert '"result_validity", "value": "VALID"' in detail
    assert result.state == "ERROR"


def test_a_stray_audit_config_changes_nothing(make_spec: MakeSpec, tmp_path: Path) -> None:
    result = supervise(make_spec(**null()), tmp_path / "run", child=hostile("stray_audit_config"))
    assert result.effective["effective_test_mode"] == "PerformanceOnly"
    assert result.effective["effective_min_duration_ms"] == "1"


def test_a_crash_names_its_signal(make_spec: MakeSpec, tmp_path: Path) -> None:
    result = supervise(make_spec(**null()), tmp_path / "run", child=hostile("segfault"))
    assert result.signal == signal.SIGSEGV


def test_a_process_the_system_left_behind_is_killed(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(**null(sut={"stack": "null", "batch": 4000}))
    result = supervise(spec, tmp_path / "run", child=hostile("leaves_a_process"))
    assert result.state == "VALID"
    assert gone(int((tmp_path / "grandchild.pid").read_text()))


def test_too_short_an_offline_run_is_invalid_with_our_own_reasons(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec(**null(min_duration_ms=5000, min_query_count=16))
    result = loadgen.run(spec, tmp_path / "run")
    assert result.state == "INVALID"
    assert "result_min_duration_met is false" in result.reasons
    assert result.samples_per_second is None


def test_an_interrupted_supervisor_takes_its_child_along(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    pids: list[int] = []

    def interrupt(beat: loadgen.Heartbeat) -> None:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        pids.extend(
            int(pid)
            for pid in children
            if b"hostile_child.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise(
            make_spec(**null()), tmp_path / "run", child=hostile("never"), on_heartbeat=interrupt
        )
    assert len(pids) == 1
    assert gone(pids[0])
    assert not loadgen.stored(tmp_path / "run")


def test_killing_the_parent_leaves_no_process_and_no_run(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec_path, run_dir = tmp_path / "spec.json", tmp_path / "run"
    spec_path.write_text(json.dumps(make_spec(**null()).to_dict()))
    program = (
        "import json, sys; from pathlib import Path\n"
        "from metering.loadgen import RunSpec\n"
        "from metering.loadgen.supervisor import supervise\n"
        "spec = RunSpec.from_dict(json.loads(Path(sys.argv[1]).read_text()))\n"
        "supervise(spec, Path(sys.argv[2]), child=sys.argv[3:])\n"
    )
    root = Path(loadgen.__file__).resolve().parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(spec_path), str(run_dir), *hostile("never")],
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        deadline = time.monotonic() + 20
        while not (run_dir / "heartbeat").exists():
            assert time.monotonic() < deadline, "the child never started"
            time.sleep(0.02)
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert len(children) == 1
    finally:
        parent.kill()
        parent.wait()
    assert gone(int(children[0]))
    assert not loadgen.stored(run_dir)
    with pytest.raises(loadgen.EvidenceError):
        loadgen.load_run(run_dir)
    # The remains are no obstacle: the same folder takes the run again.
    assert loadgen.run(make_spec(**null()), run_dir).state == "VALID"


def test_what_fails_silently_is_never_used() -> None:
    """Importing the one hides the real module; the other drops misspelt lines silently."""
    root = Path(loadgen.__file__).resolve().parents[1]
    for path in root.rglob("*.py"):
        assert "import mlcommons_loadgen" not in path.read_text(), path
        assert ".FromConfig(" not in path.read_text(), path
