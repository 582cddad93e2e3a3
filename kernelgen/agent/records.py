"""Tuning records: what was tried, under which key, and what came of it.

In: trials as they end. Out: `trials.jsonl`, append-only, one line per trial, on disk before the
next one starts. A key names everything a timing depends on: source, compiler and flags, instruction
set and machine, operator and sizes, dtype, threads, environment switches, judge and harness
version. A record under another key is never used.
Never here: whether a trial should be made.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from kernelgen.agent.ledger import append_line
from kernelgen.judge.build import SOURCE
from kernelgen.judge.contest import Point
from kernelgen.judge.verdict import JUDGE_VERSION
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.targets.cpu import compiler_version

THREADS = 1
ENVIRONMENT = "none"
"""No variable reaches a candidate, so no switch can change its speed."""


@dataclass(frozen=True)
class Trial:
    """One line of `trials.jsonl`. Ratios are incumbent time over candidate time; `at` is UTC, RFC
    3339.
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

    @property
    def accepted(self) -> bool:
        return self.reason == "accepted"


@cache
def harness_sha256() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


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
        "compiler": compiler_version(),
        "flags": list(flags),
        "isa": list(machine.isa),
        "machine": machine.fingerprint,
        "kernel": machine.kernel,
        "operator": operator.spec(),
        "points": [[dict(point.dims), point.weight] for point in points],
        "dtypes": [tensor.dtype for tensor in operator.tensors],
        "threads": THREADS,
        "environment": ENVIRONMENT,
        "judge": JUDGE_VERSION,
        "harness": harness_sha256(),
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Records:
    """The trials of one file; reads what is there, appends what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._found: dict[str, Trial] = {}
        for trial in read(path):
            self._found[trial.key] = trial

    def find(self, wanted: str) -> Trial | None:
        """The latest trial under exactly this key."""
        return self._found.get(wanted)

    def best(self, operator: str) -> Trial | None:
        """The last accepted trial of an operator: acceptance always beat what was best before."""
        accepted = [t for t in self._found.values() if t.operator == operator and t.accepted]
        return accepted[-1] if accepted else None

    def add(self, trial: Trial) -> Trial:
        """Append and return the trial, stamped."""
        stamped = replace(trial, at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        append_line(self.path, {k: _plain(v) for k, v in asdict(stamped).items()})
        self._found.pop(stamped.key, None)
        self._found[stamped.key] = stamped
        return stamped


def read(path: Path) -> Iterator[Trial]:
    """Every complete trial in the file. A last line cut off by a kill is left out; other damage
    raises `ValueError`.
    """
    if not path.exists():
        return
    raw = path.read_bytes()
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
