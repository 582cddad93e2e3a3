"""A learned guess of how fast a schedule will be, from trials, before it is compiled.

In: schedules with their measured speed against their operator's default, facts of the operator.
Out: a predicted log speed with its spread, for any number of schedules at once.
The learner is scikit-learn's extremely randomised trees (Geurts, Ernst and Wehenkel, 2006): good
with a few dozen rows of mixed small integers, no tuning of its own, and the trees' disagreement
says how little is known. It is imported on first use: `import kernelgen` stays light.
Never here: a measurement. A prediction ranks candidates and is never shown as a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelgen.judge.contest import Point
from kernelgen.ops.operator import Operator
from kernelgen.schedule import Schedule
from kernelgen.schedule.schedule import Value

TREES = 32
UNUSABLE = math.log(0.25)
"""The log speed that stands for a schedule that was refused for another reason than its speed."""

MISSING = -1.0

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """One measured schedule. `facts` are its operator's (`operator_facts`), not the schedule's."""

    schedule: Schedule
    log_speed: float
    facts: tuple[float, ...]
    weight: float = 1.0


def operator_facts(operator: Operator, points: Sequence[Point]) -> tuple[float, ...]:
    """Sizes (log2, sorted by name), work, bytes and arithmetic intensity at the heaviest point."""
    heaviest = max(points, key=lambda point: point.weight * operator.flops(point.dims))
    flops = max(1, operator.flops(heaviest.dims))
    moved = max(1, operator.bytes_moved(heaviest.dims))
    return (
        *(math.log2(1 + size) for size in sizes(operator, heaviest.dims).values()),
        math.log2(flops),
        math.log2(moved),
        math.log2(flops / moved),
    )


def sizes(operator: Operator, dims: Mapping[str, int]) -> dict[str, float]:
    """Every number that makes the operator's size, fixed and varying, by name."""
    numbers = {
        name: float(value)
        for name, value in operator.spec().items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
    }
    return dict(sorted({**numbers, **{f"dim {k}": float(v) for k, v in dims.items()}}.items()))


class CostModel:
    """Predicts log speed against the default. `axes` fix the meaning of the columns."""

    def __init__(self, axes: Mapping[str, tuple[Value, ...]]) -> None:
        self._axes = dict(sorted(axes.items()))
        self._words = {
            axis: {value: float(place) for place, value in enumerate(values)}
            for axis, values in self._axes.items()
            if any(isinstance(value, str) for value in values)
        }
        self._numbers = [axis for axis in self._axes if axis not in self._words]
        self._forest: Any = None
        self._known: dict[Schedule, list[float]] = {}

    def fit(self, examples: Sequence[Example], seed: int) -> None:
        """Learn from at least two examples; the same examples and seed learn the same."""
        forest = import_module("sklearn.ensemble").ExtraTreesRegressor(
            n_estimators=TREES, min_samples_leaf=1, random_state=seed, n_jobs=1
        )
        rows = self._matrix([(e.schedule, e.facts) for e in examples])
        forest.fit(
            rows,
            np.array([max(e.log_speed, UNUSABLE) for e in examples]),
            sample_weight=np.array([e.weight for e in examples]),
        )
        self._forest = forest

    def predict(
        self, schedules: Sequence[Schedule], facts: tuple[float, ...]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Mean and standard deviation over the trees, one entry per schedule."""
        rows = self._matrix([(schedule, facts) for schedule in schedules]).astype(np.float32)
        each = np.stack([tree.predict(rows) for tree in self._forest.estimators_])
        return each.mean(axis=0), each.std(axis=0)

    def _matrix(self, rows: Sequence[tuple[Schedule, tuple[float, ...]]]) -> Matrix:
        return np.array([[*self._columns(schedule), *facts] for schedule, facts in rows])

    def _columns(self, schedule: Schedule) -> list[float]:
        if schedule not in self._known:
            self._known[schedule] = self._computed(schedule)
        return self._known[schedule]

    def _computed(self, schedule: Schedule) -> list[float]:
        choices = schedule.as_dict
        words = [table.get(choices.get(axis, ""), MISSING) for axis, table in self._words.items()]
        logs = [_log(choices.get(axis)) for axis in self._numbers]
        # Products of two numbers (sums in a register tile, bytes of a block) decide more than
        # either alone; a tree would need many cuts to find one.
        pairs = [logs[i] + logs[j] for i in range(len(logs)) for j in range(i)]
        return [*words, *logs, *pairs]


def _log(value: Value | None) -> float:
    return math.log2(1 + value) if isinstance(value, int) and value >= 0 else MISSING
