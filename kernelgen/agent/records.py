"""Tuning records: what was tried, under which key, and what came of it.

In: trials as they end. Out: `trials.jsonl`, append-only, one line per trial, on disk before the
next one starts; several processes may append to one file. A key names everything a timing depends
on: source, compiler and flags, instruction set, machine and driver, operator and sizes, dtype,
layout, threads, environment switches, judge and harness version. A record under another key is
never used, and one that is too old is judged again.
Never here: whether a trial should be made.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from kernelgen.agent.ledger import append_line
from kernelgen.agent.proposals import Written
from kernelgen.judge.build import SOURCE
from kernelgen.judge.contest import Point
from kernelgen.judge.verdict import JUDGE_VERSION
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.targets.compiler import compiler_version, version_of

THREADS = 1
LAYOUT = "row_major"
SWITCHES = (
    "COMPILER_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "SOURCE_DATE_EPOCH",
)
"""Variables that change what the compiler builds. None reaches a candidate."""

HOLDS_FOR = timedelta(days=90)
"""Age beyond which a record only says where to look, not what to skip."""

_DIGEST = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class Trial:
    """One line of `trials.jsonl`. Ratios are incumbent time over candidate time; `at` is UTC, RFC
    3339.

    `seconds` went into compiling and judging, `proposing_s` into finding the proposal; `cost` is
    the exact money booked for both. `evidence` is what a repair needs beyond `detail`. `run` names
    the search; `context` is what a later search compares itself with (`kernelgen.agent.knowledge`).
    """

    key: str
    operator: str
    number: int
    proposer: str
    schedule: str
    incumbent: str | None
    source_sha256: str
    reason: str
    detail: str
    seconds: float
    ratio: float | None = None
    ratio_lo: float | None = None
    ratio_hi: float | None = None
    time_ns: float | None = None
    roofline_fraction: float | None = None
    at: str = ""
    proposing_s: float = 0.0
    cost: str = "0"
    evidence: str = ""
    run: str = ""
    context: Mapping[str, object] | None = None

    @property
    def accepted(self) -> bool:
        return self.reason == "accepted"


@cache
def harness_sha256() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


@cache
def toolchain() -> tuple[str, ...]:
    """Versions of the compiler, the assembler and the C library: all three shape a kernel."""
    library = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return compiler_version(), version_of("as"), library or ""


def switches() -> dict[str, str]:
    """The environment variables, set now, that change what the compiler builds."""
    return {name: os.environ[name] for name in SWITCHES if name in os.environ}


def key(
    operator: Operator,
    points: Sequence[Point],
    source: str,
    flags: Sequence[str],
    machine: Machine,
) -> str:
    """Digest of everything the outcome of a trial depends on."""
    facts = {
        "source": hashlib.sha256(source.encode()).hexdigest(),
        "compiler": list(toolchain()),
        "flags": list(flags),
        "isa": list(machine.isa),
        "machine": machine.fingerprint,
        "kernel": machine.kernel,
        "operator": operator.spec(),
        "points": [[dict(point.dims), point.weight] for point in points],
        "dtypes": [tensor.dtype for tensor in operator.tensors],
        "layout": LAYOUT,
        "threads": THREADS,
        "environment": switches(),
        "judge": JUDGE_VERSION,
        "harness": harness_sha256(),
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fresh(trial: Trial, now: datetime) -> bool:
    """Whether a record is young enough to spare a trial; one without a time is not."""
    try:
        made = datetime.fromisoformat(trial.at)
    except ValueError:
        return False
    return made.tzinfo is not None and now - HOLDS_FOR <= made <= now + timedelta(days=1)


class Records:
    """The trials of one file; reads what is there, appends what is new.

    With `before` the file is read as it was when the search of that name (`Trial.run`) began.
    """

    def __init__(self, path: Path, *, before: str | None = None) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._found: dict[str, Trial] = {}
        for trial in read(path):
            if before is not None and trial.run == before:
                break
            self._found.pop(trial.key, None)
            self._found[trial.key] = trial

    def find(self, wanted: str) -> Trial | None:
        """The latest trial under exactly this key."""
        return self._found.get(wanted)

    def best(self, operator: str) -> Trial | None:
        """The last accepted trial of an operator: acceptance always beat what was best before."""
        accepted = [t for t in self._found.values() if t.operator == operator and t.accepted]
        return accepted[-1] if accepted else None

    def trials(self) -> tuple[Trial, ...]:
        """The latest trial under every key, oldest first."""
        return tuple(self._found.values())

    def add(self, trial: Trial) -> Trial:
        """Append and return the trial, stamped unless it is an old one repeated. Raises `OSError`
        when the disk does not take it.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        stamped = trial if trial.at else replace(trial, at=now)
        data = {k: _plain(v) for k, v in asdict(stamped).items() if not (v is None and k in _SHORT)}
        append_line(self.path, data)
        self._found.pop(stamped.key, None)
        self._found[stamped.key] = stamped
        return stamped

    def keep_source(self, kernel: Written) -> None:
        """Put a written kernel's text beside the records, named by its digest."""
        folder = self.path.parent / "kernels"
        folder.mkdir(exist_ok=True)
        path = folder / f"{kernel.sha256}.c"
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}.partial")
            partial.write_text(kernel.source, encoding="utf-8")
            partial.replace(path)

    def source(self, operator: str, digest: str) -> Written | None:
        """A written kernel kept earlier; None when it is gone or is not what its name says."""
        path = self.path.parent / "kernels" / f"{digest}.c"
        if not _DIGEST.match(digest) or not path.is_file():
            return None
        kernel = Written(operator, path.read_bytes().decode("utf-8", "replace"))
        return kernel if kernel.sha256 == digest else None


_SHORT = ("context",)


def read(path: Path) -> Iterator[Trial]:
    """Every complete trial in the file. A last line cut off by a kill is left out; other damage
    raises `ValueError`.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # no half line of a writer that is at it now
        raw = file.read()
    lines = raw.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _trial(json.loads(line))
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            cut_off = number == len(lines) or not lines[number].strip() or _mended(line)
            if not cut_off:
                raise ValueError(f"{path.name} line {number}: {error}") from error


def _mended(line: bytes) -> bool:
    """Whether a line is the stump of a killed run that a later run has closed with a line end."""
    return line.startswith(b'{"') and not line.rstrip().endswith(b"}")


def _trial(data: Mapping[str, object]) -> Trial:
    return Trial(**data)  # type: ignore[arg-type]


def _plain(value: object) -> object:
    # JSON has no infinity; an endless error ratio says no more than "wrong".
    return None if isinstance(value, float) and not math.isfinite(value) else value
