"""What earlier searches found out: starts for a new search and examples for its cost model.

In: trials of any operator and machine, from one file or a folder of them. Out: winners of the
nearest operators on the nearest machines, carried over to this search space and legal there, and
examples for `kernelgen.agent.costmodel`. Nothing found here counts before the judge has seen it
again on this machine.
Distance: the sum over sizes of |log2(mine / theirs)|, plus what two machines differ by: one for
another processor, the part of instruction-set words not shared (Jaccard distance) times four, and
|log2| of the cache sizes. Another family with the same choices adds `OTHER_FAMILY`.
Never here: a verdict; a trial of this search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgen.agent.costmodel import UNUSABLE, Example, operator_facts, sizes
from kernelgen.agent.proposals import Proposal, kernel_digest
from kernelgen.agent.records import Records, Trial, read
from kernelgen.agent.search import transferred
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine
from kernelgen.ops import from_spec
from kernelgen.ops.operator import Operator
from kernelgen.schedule import Schedule, ScheduleError, SearchSpace

OTHER_FAMILY = 6.0
OTHER_PROCESSOR = 1.0
OTHER_ISA = 4.0
FARTHEST = 24.0
"""Beyond this distance (sizes a thousand times apart, an unrelated machine) nothing is carried
over.
"""

STARTS = 3
_CACHES = ("l1d_bytes", "l2_bytes", "l3_bytes")


def context(operator: Operator, points: Sequence[Point], machine: Machine) -> dict[str, object]:
    """What a record keeps about where it was made."""
    return {
        "spec": operator.spec(),
        "points": [[dict(point.dims), point.weight] for point in points],
        "machine": {
            "fingerprint": machine.fingerprint,
            "isa": list(machine.isa),
            **{name: getattr(machine, name) for name in _CACHES},
        },
    }


def machine_distance(mine: Mapping[str, object], theirs: Mapping[str, object]) -> float:
    """0 for the same machine; see the module for the rest."""
    if mine.get("fingerprint") == theirs.get("fingerprint"):
        return 0.0
    a, b = _words(mine.get("isa")), _words(theirs.get("isa"))
    shared = len(a & b) / len(a | b) if a | b else 0.0
    caches = sum(_ratio(mine.get(name), theirs.get(name)) for name in _CACHES)
    return OTHER_PROCESSOR + OTHER_ISA * (1.0 - shared) + caches


def shape_distance(mine: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """Sum of |log2| ratios of the sizes; a size that only one side has counts 4."""
    names = set(mine) | set(theirs)
    return sum(
        _ratio(mine[name], theirs[name]) if name in mine and name in theirs else 4.0
        for name in names
    )


@dataclass(frozen=True)
class Landscape:
    """One operator's trials on one machine: log speed against its own default, and its winner."""

    operator: Operator
    points: tuple[Point, ...]
    machine: Mapping[str, object]
    log_speed: Mapping[Schedule, float]
    winner: Proposal | None


class Knowledge:
    """Landscapes of earlier searches, found by how near they are."""

    def __init__(self, landscapes: Iterable[Landscape] = ()) -> None:
        self._landscapes = tuple(landscapes)

    @classmethod
    def load(cls, path: Path) -> Knowledge:
        """From one file of trials, or every such `*.jsonl` under a folder (ledgers and answers
        lie beside them and are left out). A damaged line makes `ValueError`, naming it.
        """
        files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        files = [file for file in files if file.name not in ("ledger.jsonl", "answers.jsonl")]
        return cls(
            landscape
            for file in files
            for landscape in landscapes(list(read(file)), Records(file) if file.exists() else None)
        )

    def joined(self, path: Path | None) -> Knowledge:
        """This and what lies at `path` (None adds nothing)."""
        return (
            self
            if path is None
            else Knowledge((*self._landscapes, *Knowledge.load(path)._landscapes))
        )

    def near(
        self, operator: Operator, points: Sequence[Point], machine: Machine
    ) -> list[tuple[float, Landscape]]:
        """Landscapes with the same choices, nearest first, none farther than `FARTHEST`."""
        mine = _size(operator, points)
        here = context(operator, points, machine)["machine"]
        found: list[tuple[float, int, Landscape]] = []
        for number, other in enumerate(self._landscapes):
            far = machine_distance(_mapping(here), other.machine)
            far += shape_distance(mine, _size(other.operator, other.points))
            far += 0.0 if other.operator.family == operator.family else OTHER_FAMILY
            if far <= FARTHEST:
                found.append((far, number, other))
        return [(far, other) for far, _, other in sorted(found, key=lambda item: item[:2])]

    def starts(
        self,
        space: SearchSpace,
        operator: Operator,
        points: Sequence[Point],
        machine: Machine,
        count: int = STARTS,
    ) -> dict[str, Proposal]:
        """Winners of the nearest landscapes that are legal here, by where they come from."""
        starts: dict[str, Proposal] = {}
        for far, other in self.near(operator, points, machine):
            moved = _carried(space, operator, other.winner)
            if moved is not None and moved not in starts.values():
                starts[f"transfer from {other.operator.name} ({far:.1f})"] = moved
            if len(starts) == count:
                break
        return starts

    def examples(
        self, space: SearchSpace, operator: Operator, points: Sequence[Point], machine: Machine
    ) -> list[Example]:
        """Measured schedules of near landscapes; the farther, the less each weighs."""
        found: list[Example] = []
        for far, other in self.near(operator, points, machine):
            facts = operator_facts(other.operator, other.points)
            if len(facts) != len(operator_facts(operator, points)):
                continue  # other sizes, so other columns
            found += [
                Example(schedule, speed, facts, 0.5 / (1.0 + far))
                for schedule, speed in other.log_speed.items()
                if len(set(schedule.as_dict) ^ set(space.axes)) <= 1
            ]
        found.reverse()  # the nearest last: the model keeps the last ones when there are too many
        return found


def landscapes(trials: Sequence[Trial], records: Records | None = None) -> list[Landscape]:
    """Group trials by operator, sizes and machine and follow each search from win to win.

    Trials without a context, or of an operator this version does not know, are left out.
    """
    grouped: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.context is not None:
            # dict texts are stable here: every context was written by the same function
            grouped.setdefault(f"{trial.context} {trial.run}", []).append(trial)
    found = (_landscape(group, records) for group in grouped.values())
    return [landscape for landscape in found if landscape is not None]


def _landscape(trials: Sequence[Trial], records: Records | None) -> Landscape | None:
    facts = _mapping(trials[0].context)
    try:
        operator = from_spec(_mapping(facts.get("spec")))
        points = tuple(_point(pair) for pair in _list(facts.get("points")))
        size = _size(operator, points)
    except (ValueError, TypeError, KeyError):
        return None
    if not points or not size:
        return None
    speed: dict[str | None, float] = {}
    known: dict[Schedule, float] = {}
    winner: str | None = None
    for trial in trials:
        base = speed.get(trial.incumbent, 0.0)
        if trial.accepted and trial.incumbent is None:
            log: float | None = 0.0
        elif trial.reason in ("accepted", "slower") and trial.ratio is not None and trial.ratio > 0:
            log = base + math.log(trial.ratio)
        else:
            log = None
        if log is not None:
            speed[trial.schedule] = log
        if trial.accepted:
            winner = trial.schedule
        schedule = _parsed(trial.schedule)
        if schedule is not None and trial.reason != "fault":
            known[schedule] = UNUSABLE if log is None else log
    return Landscape(
        operator,
        points,
        _mapping(facts.get("machine")),
        known,
        None if winner is None else proposal(operator.name, winner, records),
    )


def proposal(operator: str, text: str, records: Records | None) -> Proposal | None:
    """The proposal that a record names; None when this version cannot read it any more."""
    digest = kernel_digest(text)
    if digest is not None:
        return None if records is None else records.source(operator, digest)
    return _parsed(text)


def _parsed(text: str) -> Schedule | None:
    if kernel_digest(text) is not None or ": answer=n" in text:
        return None
    try:
        return Schedule.parse(text)
    except ScheduleError:
        return None


def _carried(space: SearchSpace, operator: Operator, winner: Proposal | None) -> Proposal | None:
    if isinstance(winner, Schedule):
        return transferred(space, winner)
    # A written kernel is for one operator only: its sizes are in its text.
    return winner if winner is not None and winner.operator == operator.name else None


def _size(operator: Operator, points: Sequence[Point]) -> dict[str, float]:
    heaviest = max(points, key=lambda point: point.weight * operator.flops(point.dims))
    return sizes(operator, heaviest.dims)


def _ratio(mine: object, theirs: object) -> float:
    if not isinstance(mine, int | float) or not isinstance(theirs, int | float):
        return 4.0
    return abs(math.log2(max(mine, 1.0) / max(theirs, 1.0)))


def _words(value: object) -> set[str]:
    return {str(word) for word in _list(value)}


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _point(pair: object) -> Point:
    dims, weight = _list(pair)
    return Point(
        {str(name): int(str(size)) for name, size in _mapping(dims).items()}, float(str(weight))
    )
