"""Which schedules exist for an operator on a machine, which are legal, and how to move between
them.

In: an operator, a machine. Out: a `SearchSpace`. Never here: C text, timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.schedule.resources import has_tiles
from kernelgen.schedule.schedule import Schedule, ScheduleError, Value

Rule = Callable[[Mapping[str, Value]], str | None]


@dataclass(frozen=True)
class SearchSpace:
    """Axes with their values in rising order, the default, and the rule that refuses
    combinations. `others` are further starts by what sets them apart: best on some machines, or at
    some times.
    """

    operator: str
    axes: Mapping[str, tuple[Value, ...]]
    start: Mapping[str, Value]
    rule: Rule
    others: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of combinations, legal or not."""
        count = 1
        for values in self.axes.values():
            count *= len(values)
        return count

    def default(self) -> Schedule:
        """The schedule to begin with: always legal, sane on any machine with this ISA.

        Where the usual start does not fit the operator's sizes, the first legal schedule that
        differs in one choice, else a drawn one. Raises `ScheduleError` when nothing is legal.
        """
        usual = Schedule.of(self.operator, self.start)
        reason = self.rule(self.start)
        if reason is None:
            return usual
        for axis, values in self.axes.items():
            for value in values:
                if self.rule({**self.start, axis: value}) is None:
                    return usual.with_choice(axis, value)
        drawn = self._draw(np.random.default_rng(0))
        if drawn is None:
            raise ScheduleError(f"{self.operator}: nothing is legal: {reason}")
        return drawn

    def stock(self) -> dict[str, Schedule]:
        """The further starts that are legal and not the default."""
        found = {name: Schedule.of(self.operator, choices) for name, choices in self.others.items()}
        default = self.default()
        return {
            name: schedule
            for name, schedule in found.items()
            if schedule != default and self.legal(schedule) is None
        }

    def legal(self, schedule: Schedule) -> str | None:
        """None when the schedule can be emitted; otherwise the reason, naming axis, got and
        wanted.
        """
        if schedule.operator != self.operator:
            return f"operator: got {schedule.operator!r}, wanted {self.operator!r}"
        choices = schedule.as_dict
        if set(choices) != set(self.axes):
            return f"axes: got {sorted(choices)}, wanted {sorted(self.axes)}"
        for axis, value in choices.items():
            if value not in self.axes[axis]:
                return f"{axis}: got {value!r}, wanted one of {list(self.axes[axis])}"
        return self.rule(choices)

    def sample(self, rng: np.random.Generator) -> Schedule:
        """A legal schedule drawn evenly; falls back to the default when luck runs out."""
        return self._draw(rng) or self.default()

    def _draw(self, rng: np.random.Generator) -> Schedule | None:
        for _ in range(200):
            drawn = {
                axis: values[int(rng.integers(len(values)))] for axis, values in self.axes.items()
            }
            if self.rule(drawn) is None:
                return Schedule.of(self.operator, drawn)
        return None

    def mutate(self, schedule: Schedule, rng: np.random.Generator) -> Schedule:
        """A legal neighbour: one or two axes moved, mostly by one step along their values."""
        self._require(schedule)
        movable = [axis for axis, values in self.axes.items() if len(values) > 1]
        if not movable:
            return schedule
        for _ in range(200):
            choices = schedule.as_dict
            for _step in range(1 + int(rng.random() < 0.3)):
                axis = movable[int(rng.integers(len(movable)))]
                values = self.axes[axis]
                here = values.index(choices[axis])
                if rng.random() < 0.6:
                    there = min(max(here + (1 if rng.random() < 0.5 else -1), 0), len(values) - 1)
                else:
                    there = int(rng.integers(len(values)))
                choices[axis] = values[there]
            if choices != schedule.as_dict and self.rule(choices) is None:
                return Schedule.of(self.operator, choices)
        return schedule

    def cross(self, a: Schedule, b: Schedule, rng: np.random.Generator) -> Schedule:
        """A legal child that takes every axis from one of its two parents."""
        self._require(a)
        self._require(b)
        left, right = a.as_dict, b.as_dict
        for _ in range(50):
            child = {axis: left[axis] if rng.random() < 0.5 else right[axis] for axis in self.axes}
            if self.rule(child) is None:
                return Schedule.of(self.operator, child)
        return a

    def neighbours(self, schedule: Schedule) -> tuple[Schedule, ...]:
        """Every legal schedule that differs in exactly one axis, in a fixed order."""
        self._require(schedule)
        found: list[Schedule] = []
        for axis, values in self.axes.items():
            for value in values:
                candidate = schedule.with_choice(axis, value)
                if candidate != schedule and self.rule(candidate.as_dict) is None:
                    found.append(candidate)
        return tuple(found)

    def _require(self, schedule: Schedule) -> None:
        reason = self.legal(schedule)
        if reason is not None:
            raise ScheduleError(f"{schedule.text()} is not in this space: {reason}")


def space(operator: Operator, machine: Machine) -> SearchSpace:
    """The schedules of `operator` that `machine` can run. Raises `ScheduleError` for an unknown
    family.
    """
    from kernelgen import sketches

    if operator.family == "text_encoder":
        return _whole_model(operator, machine)
    sketch = sketches.find(operator.family)
    if sketch is None:
        raise ScheduleError(f"{operator.name}: no sketch for family {operator.family!r}")
    found: SearchSpace = sketch.space(operator, machine)
    return found


def _whole_model(operator: Operator, machine: Machine) -> SearchSpace:
    """How many rows a chain of row-wise operators takes at a time."""
    axes: dict[str, tuple[Value, ...]] = {"rows": (48, 72, 96, 128, 160, 192, 256, 320, 384, 512)}
    # The matrix unit shares split weights among more rows.
    start: dict[str, Value] = {"rows": 384 if has_tiles(machine) else 192}
    return SearchSpace(operator.name, axes, start, lambda choices: None)
