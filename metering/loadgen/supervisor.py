"""Runs one spec in a fresh child process, watches it, ends it if it must, judges what it left.

In: a :class:`RunSpec` and an empty folder. Out: the logs, ``spec.json`` and, written whole and
last, ``result.json``: a folder without it is no run. LoadGen has no cancel call, and Python signal
handlers do not run while its C++ waits, so the only sure end is SIGKILL of the child's own group.
Never called with a spec that a web process would have to wait for without a time limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metering import stacks
from metering.loadgen import processes, verdict
from metering.loadgen.files import sha256_bytes, sha256_input, write_json
from metering.loadgen.harness import OPENING
from metering.loadgen.library import load_samples
from metering.loadgen.result import RunResult
from metering.loadgen.settings import generated_queries
from metering.loadgen.spec import RunSpec
from metering.loadgen.verdict import Judgement

SPEC, RESULT = "spec.json", "result.json"
LOGS = (verdict.DETAIL, verdict.SUMMARY, verdict.ACCURACY)
_POLL_S = 0.02
_GRACE_S = 5.0
# How often memory and disk of a whole run are looked at; each look takes a fraction of a ms.
_LIMITS_S = 0.25
_SCRATCH = "scratch"
# 8.8 GB for 20 million queries were seen.
_QUERY_BYTES = 440
_TRACE = "mlperf_log_trace.json"
_OWN_FILES = frozenset(
    (SPEC, *LOGS, _TRACE, _SCRATCH, "launch.json", "child.json", "error.json", "child.log")
) | {"heartbeat"}
_CHILD = (sys.executable, "-P", "-m", "metering.loadgen.child")
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


class RunRefused(RuntimeError):
    """The run was not started; nothing was written. The message says what to do."""


@dataclass(frozen=True)
class Heartbeat:
    """What the child last said: phase, samples completed, samples issued, tokens generated."""

    phase: str
    completed: int
    issued: int
    tokens: int


@dataclass(frozen=True)
class _Ended:
    returncode: int
    stopped: Judgement | None
    wall_s: float
    cpu_s: float


def run(
    spec: RunSpec, out: Path, *, on_heartbeat: Callable[[Heartbeat], None] | None = None
) -> RunResult:
    """Run ``spec`` once and return its verdict, also stored in ``out``.

    A folder that already holds a run is refused; one that holds the remains of a killed run is
    cleared first. Raises RunRefused or SpecError before anything starts; after that every ending
    is a state of the result, never an exception.
    """
    return supervise(spec, out, child=_CHILD, on_heartbeat=on_heartbeat)


def supervise(
    spec: RunSpec,
    out: Path,
    *,
    child: Sequence[str],
    on_heartbeat: Callable[[Heartbeat], None] | None = None,
) -> RunResult:
    """:func:`run` with another child program; it gets the arguments SPEC, OUT and our pid."""
    out = out.resolve()
    launch = _launch_spec(spec)
    info = stacks.discover(spec.sut)
    _empty_folder(out)
    recorded = launch.recorded()
    spec_sha256 = write_json(out / SPEC, recorded.to_dict())
    started_at, load_before = datetime.now(UTC), os.getloadavg()[0]
    ended = _run_child(launch, out, child, on_heartbeat)
    judgement, child_files = _judge(recorded, out, ended)
    result = RunResult(
        run_id=spec.run_id,
        scenario=spec.scenario,
        mode=spec.mode,
        state=judgement.state,
        reasons=judgement.reasons,
        samples_per_second=judgement.samples_per_second,
        latency=judgement.latency,
        sample_count=judgement.sample_count,
        effective=judgement.effective,
        files={SPEC: spec_sha256, **child_files},
        spec_sha256=spec_sha256,
        started_at=started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        wall_s=round(ended.wall_s, 3),
        cpu_s=round(ended.cpu_s, 3),
        load_average=(round(load_before, 2), round(os.getloadavg()[0], 2)),
        signal=-ended.returncode if ended.returncode < 0 else None,
        loadgen_version=judgement.loadgen_version,
        stack_version=info.version,
        stack_digest=info.digest,
        environment=_thread_environment(spec),
        tokens=judgement.tokens,
    )
    write_json(out / RESULT, result.to_dict())
    return result


def _launch_spec(spec: RunSpec) -> RunSpec:
    """The spec with absolute paths and digests filled in; refuses inputs that are not as stated."""
    missing_cores = sorted(set(spec.cores) - os.sched_getaffinity(0))
    if missing_cores:
        raise RunRefused(f"cores: this process may not use {missing_cores}; choose others")
    held = generated_queries(spec) * _QUERY_BYTES
    if held > spec.memory_limit_bytes:
        raise RunRefused(
            f"target_qps: LoadGen would make up {generated_queries(spec)} queries, {held} bytes, "
            f"before the first; the limit is {spec.memory_limit_bytes}: calibrate first"
        )
    paths = {"model": Path(spec.model), "samples": Path(spec.samples)}
    digests = {"package_sha256": ""}
    for name, path in paths.items():
        if not path.is_file():
            raise RunRefused(f"{name}: no file at {path}; fetch it or correct the path")
        digests[f"{name}_sha256"] = sha256_input(path)
    package = spec.sut.package
    if package is not None:
        manifest = Path(package) / "manifest.json"
        if not manifest.is_file():
            raise RunRefused(f"sut.package: no manifest at {manifest}; build the package first")
        digests["package_sha256"] = sha256_input(manifest)
    for name, digest in digests.items():
        asked = getattr(spec, name)
        if asked not in ("", digest):
            raise RunRefused(f"{name}: the file has {digest}, the spec wants {asked}")
    return dataclasses.replace(
        spec,
        model=str(paths["model"].resolve()),
        samples=str(paths["samples"].resolve()),
        sut=dataclasses.replace(
            spec.sut, package=None if package is None else str(Path(package).resolve())
        ),
        library_size=len(load_samples(paths["samples"], spec.task)),
        model_sha256=digests["model_sha256"],
        samples_sha256=digests["samples_sha256"],
        package_sha256=digests["package_sha256"],
    )


def _empty_folder(out: Path) -> None:
    if (out / RESULT).exists():
        raise RunRefused(f"out: {out} already holds a run; choose a new folder")
    if out.exists():
        foreign = {path.name for path in out.iterdir()} - _OWN_FILES
        foreign = {name for name in foreign if not name.endswith(".tmp")}
        if foreign:
            raise RunRefused(
                f"out: {out} holds {sorted(foreign)}, which no run wrote; choose a new folder"
            )
        shutil.rmtree(out)
    out.mkdir(parents=True)


def _thread_environment(spec: RunSpec) -> dict[str, str]:
    threads = str(spec.sut.threads)
    return {
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _child_environment(spec: RunSpec, out: Path) -> dict[str, str]:
    """A short list instead of the parent's: a stray variable must not tune one of the arms."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    root = str(Path(__file__).resolve().parents[2])
    own = {"PYTHONPATH": root, "TMPDIR": str(out / _SCRATCH), processes.MARK: str(out)}
    return {**inherited, **_thread_environment(spec), **own}


def _run_child(
    launch: RunSpec,
    out: Path,
    child: Sequence[str],
    on_heartbeat: Callable[[Heartbeat], None] | None,
) -> _Ended:
    scratch = out / _SCRATCH
    scratch.mkdir()
    launch_path = out / "launch.json"
    write_json(launch_path, launch.to_dict())
    started = time.monotonic()
    with (out / "child.log").open("wb") as log:
        process = subprocess.Popen(
            [*child, str(launch_path), str(out), str(os.getpid())],
            cwd=scratch,
            env=_child_environment(launch, out),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        stopped, status, usage = _watch(process, launch, out, started, on_heartbeat)
    except BaseException:
        _kill_group(process.pid)
        process.wait()
        processes.kill_marked(out)
        raise
    # What it wrote since the last look counts too; of its memory nothing is left by now.
    stopped = stopped or _over_limit(process.pid, launch, out)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode < 0:
        # The warden may have died before it could end what the run started.
        _kill_group(process.pid)
        processes.kill_marked(out)
    shutil.rmtree(scratch)
    launch_path.unlink()
    (out / "heartbeat").unlink(missing_ok=True)
    for torn in out.glob(".*.tmp"):
        torn.unlink()  # The child was killed while it wrote one of its own files.
    wall_s = time.monotonic() - started
    return _Ended(process.returncode, stopped, wall_s, usage.ru_utime + usage.ru_stime)


def _watch(
    process: subprocess.Popen[bytes],
    spec: RunSpec,
    out: Path,
    started: float,
    on_heartbeat: Callable[[Heartbeat], None] | None,
) -> tuple[Judgement | None, int, Any]:
    """Wait for the child within its limits; returns (why we stopped it, wait status, rusage).

    A stack that compiles says how long that may take. Until its system is open that limit holds,
    and the limits of the test, which say nothing about a compiler, count from then on.
    """
    preparing_s = stacks.prepare_limit_s(spec.sut)
    preparing = preparing_s > 0
    seen: Heartbeat | None = None
    stopped: Judgement | None = None
    progress_at, killed_at, looked_at = started, 0.0, started
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return stopped, status, usage
        now = time.monotonic()
        if stopped is None:
            beat = _read_heartbeat(out / "heartbeat")
            if beat is not None and beat != seen:
                seen, progress_at = beat, now
                if on_heartbeat is not None:
                    on_heartbeat(beat)
                if preparing and beat.phase != OPENING:
                    preparing, started = False, now
            if preparing and now - started > preparing_s:
                reason = f"{spec.sut.stack}: not opened within its limit of {preparing_s:g} s"
                stopped = Judgement("HUNG", (reason,))
            elif preparing:
                progress_at = now
            elif now - started > spec.wall_limit_s:
                reason = f"no end within the wall limit of {spec.wall_limit_s:g} s"
                stopped = Judgement("HUNG", (reason,))
            elif now - progress_at > spec.stall_limit_s:
                stopped = Judgement("HUNG", (f"no progress for {spec.stall_limit_s:g} s",))
            if stopped is None and now - looked_at > _LIMITS_S:
                looked_at, stopped = now, _over_limit(process.pid, spec, out)
            if stopped is not None:
                killed_at = now + _GRACE_S
                _signal_group(process.pid, signal.SIGTERM)
        elif now > killed_at:
            _kill_group(process.pid)
        time.sleep(_POLL_S)


def _over_limit(pid: int, spec: RunSpec, out: Path) -> Judgement | None:
    """The limits of one process and one file, held for all of a run's together."""
    held = processes.descendants(pid)
    memory, disk = processes.resident_bytes(held), processes.disk_bytes(out)
    if memory > spec.memory_limit_bytes:
        reason = f"memory: {memory} bytes in {len(held)} processes, wanted at most "
        return Judgement("ERROR", (f"{reason}{spec.memory_limit_bytes}",))
    if disk > spec.file_limit_bytes:
        reason = f"disk: {disk} bytes in the run folder, wanted at most {spec.file_limit_bytes}"
        return Judgement("ERROR", (reason,))
    return None


def _read_heartbeat(path: Path) -> Heartbeat | None:
    try:
        words = path.read_text().split()
    except FileNotFoundError:
        return None
    if len(words) != 4:
        return None  # Read between truncation and writing; the next look sees it whole.
    return Heartbeat(words[0], int(words[1]), int(words[2]), int(words[3]))


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _kill_group(pid: int) -> None:
    _signal_group(pid, signal.SIGKILL)


def _judge(recorded: RunSpec, out: Path, ended: _Ended) -> tuple[Judgement, dict[str, str]]:
    """The end state, and the digests of every file of the run, taken at once."""
    logs = {name: (out / name).read_bytes() for name in LOGS if (out / name).is_file()}
    if recorded.mode == "performance" and not logs.get(verdict.ACCURACY, b"x").strip(b"[] \n"):
        (out / verdict.ACCURACY).unlink()
        del logs[verdict.ACCURACY]
    # Created although the trace is off; it stays empty.
    (out / _TRACE).unlink(missing_ok=True)
    digests = {name: sha256_bytes(data) for name, data in logs.items()}
    judgement = _end_state(recorded, out, ended, logs)
    chatter = out / "child.log"
    if judgement.state == "VALID" or not chatter.stat().st_size:
        chatter.unlink()
    (out / "child.json").unlink(missing_ok=True)
    for name in ("child.log", "error.json"):
        path = out / name
        if path.exists():
            digests[name] = sha256_bytes(path.read_bytes())
    return judgement, digests


def _end_state(recorded: RunSpec, out: Path, ended: _Ended, logs: dict[str, bytes]) -> Judgement:
    if ended.stopped is not None:
        return ended.stopped
    error = out / "error.json"
    if error.exists():
        report = json.loads(error.read_bytes())
        return Judgement("ERROR", (f"{report['where']}: {report['type']}: {report['message']}",))
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        return Judgement("CRASHED", (f"killed by {name}", *_last_words(out)))
    if not (out / "child.json").exists():
        said = _last_words(out)
        return Judgement("SILENT", (f"exit status {ended.returncode} before the test ended", *said))
    judgement = verdict.judge(
        recorded,
        logs.get(verdict.DETAIL, b""),
        logs.get(verdict.SUMMARY, b""),
        logs.get(verdict.ACCURACY),
    )
    if judgement.state == "VALID" and ended.returncode != 0:
        return Judgement("ERROR", (f"exit status {ended.returncode} after the test",))
    limit_ns = ended.wall_s * 1e9
    if judgement.latency is not None and judgement.latency.max_ns > limit_ns:
        return Judgement("ERROR", ("the log claims more time than the process lived",))
    return judgement


def _last_words(out: Path) -> tuple[str, ...]:
    lines = (out / "child.log").read_text(errors="replace").strip().splitlines()
    return (f"last output: {lines[-1][:300]}",) if lines else ()
