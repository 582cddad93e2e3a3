"""Numbers that carry their class, so that nobody ranks a count against a time.

In: a value, its unit, and what made it. Out: `Figure` records that compare only with their own
kind. Never here: making a number.

Four classes, from the strongest to the weakest: measured (this device, a clock), emulated count
(instructions executed under an emulator), static (read off the binary by a scheduling model), model
(a closed form or a simulator). Only measured figures may lead to money.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self


class ClassError(TypeError):
    """Two figures that cannot be ranked against each other, and why."""


@dataclass(frozen=True)
class Figure:
    """`value` in `unit`. `basis` names what made it (device, emulator and processor, or core
    model): figures of another basis do not compare either.
    """

    value: float
    unit: str
    basis: str

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not self.kind:
            raise ClassError("a figure needs its class: wanted Measured, EmulatedCount, ...")

    def __lt__(self, other: Self) -> bool:
        return self.value < self._same(other).value

    def __le__(self, other: Self) -> bool:
        return self.value <= self._same(other).value

    def __gt__(self, other: Self) -> bool:
        return self.value > self._same(other).value

    def __ge__(self, other: Self) -> bool:
        return self.value >= self._same(other).value

    def over(self, other: Self) -> float:
        """This value divided by the other. Raises `ClassError` for another class, unit or
        basis.
        """
        return self.value / self._same(other).value

    def _same(self, other: Self) -> Self:
        if type(other) is not type(self):
            theirs = other.kind if isinstance(other, Figure) else type(other).__name__
            raise ClassError(f"class: got {theirs!r}, wanted {self.kind!r}")
        for name in ("unit", "basis"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ClassError(f"{name}: got {theirs!r}, wanted {mine!r}")
        return other

    def text(self) -> str:
        return f"{self.value:.6g} {self.unit} ({self.kind}, {self.basis})"

    def to_dict(self) -> dict[str, object]:
        return {
            "value": self.value,
            "unit": self.unit,
            "class": self.kind,
            "basis": self.basis,
        }


@dataclass(frozen=True)
class Measured(Figure):
    """Taken with a clock on the device itself."""

    kind: ClassVar[str] = "measured"


@dataclass(frozen=True)
class EmulatedCount(Figure):
    """Counted while an emulator ran the binary: exact, and no statement about time."""

    kind: ClassVar[str] = "emulated count"


@dataclass(frozen=True)
class Static(Figure):
    """Read off the binary: registers, spills, a scheduler model's cycles without caches."""

    kind: ClassVar[str] = "static"


@dataclass(frozen=True)
class Modelled(Figure):
    """From a closed form or a simulator of hardware that need not exist."""

    kind: ClassVar[str] = "model"


def least(figures: Iterable[Figure]) -> Figure:
    """The smallest figure. Raises `ClassError` when they are not all of one class, unit and
    basis, `ValueError` when there are none.
    """
    best: Figure | None = None
    for figure in figures:
        if best is None or figure < best:
            best = figure
    if best is None:
        raise ValueError("figures: got none, wanted at least one")
    return best
