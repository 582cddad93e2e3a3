"""The reading guard: does a recogniser read the known lines, and no worse than the reference does?

In: for each answer the known text, the reference's text and the text found. Out: counts against the
plan's floor, and the lines read worse and better than the reference read them. A recogniser's
answer to a line depends a little on what it is padded with, so single lines change with the batch,
for the better and for the worse: an exact sign test tells that from a system that reads worse.
Never here: a text compared with anything but the line it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import comb
from typing import Any

from metering.datasets.reading import ReadingAccuracy, ReadingFloor, line_errors

KIND = "reading"
LEVEL = 0.05


@dataclass(frozen=True)
class Line:
    """One answer. ``key`` names the line: answers to one line count once in the comparison."""

    key: tuple[int, int]
    truth: str
    reference: str
    found: str


@dataclass(frozen=True)
class Reading:
    """Counts over answers; ``lost`` and ``gained`` over lines, worse and better than the reference.

    ``characters`` and ``character_errors`` as in :class:`ReadingAccuracy`.
    """

    lines: int
    exact_lines: int
    characters: int
    character_errors: int
    lost: int
    gained: int
    floor: ReadingFloor

    @property
    def samples(self) -> int:
        return self.lines

    @property
    def worse(self) -> bool:
        """Whether it is shown to read worse than the reference (see :func:`shown_worse`)."""
        return shown_worse(self.lost, self.gained)

    @property
    def passed(self) -> bool:
        """The floor held and not shown worse; nothing read at all is no proof."""
        if self.lines == 0 or self.worse:
            return False
        return ReadingAccuracy(
            self.lines, self.exact_lines, self.characters, self.character_errors, self.floor
        ).passed

    @property
    def words(self) -> str:
        return (
            f"{self.exact_lines} of {self.lines} lines exact, {self.character_errors} errors in "
            f"{self.characters} characters, {self.lost} lines worse and {self.gained} better than "
            "the reference"
        )

    @property
    def wanted(self) -> str:
        floor = self.floor
        return (
            f"at least {floor.least_exact:.2%} exact, at most {floor.most_character_errors:.2%} "
            "errors, and not shown worse than the reference"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "lines": self.lines,
            "exact_lines": self.exact_lines,
            "characters": self.characters,
            "character_errors": self.character_errors,
            "lost": self.lost,
            "gained": self.gained,
            "least_exact": str(self.floor.least_exact),
            "most_character_errors": str(self.floor.most_character_errors),
            "ignore_spaces": self.floor.ignore_spaces,
            "samples": self.samples,
            "passed": self.passed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reading:
        """Inverse of ``to_dict``. Raises ValueError, KeyError, TypeError, ArithmeticError."""
        names = ("lines", "exact_lines", "characters", "character_errors", "lost", "gained")
        counts = {name: int(data[name]) for name in names}
        floor = ReadingFloor(
            least_exact=Decimal(str(data["least_exact"])),
            most_character_errors=Decimal(str(data["most_character_errors"])),
            ignore_spaces=bool(data["ignore_spaces"]),
        )
        return cls(**counts, floor=floor)


def shown_worse(lost: int, gained: int) -> bool:
    """One-sided exact sign test at 5 %: P(at least ``lost`` of lost + gained) under a fair coin.

    Five lines lost and none gained is the smallest loss that is shown.
    """
    changed = lost + gained
    tail = sum(comb(changed, count) for count in range(lost, changed + 1))
    return changed > 0 and tail <= LEVEL * 2**changed


def reading_guard(answers: Sequence[Line], floor: ReadingFloor) -> Reading:
    """Count ``answers``. A line answered several times is worse when its answers are in the mean.

    No answers at all fail.
    """
    found = [line_errors(one.truth, one.found, floor) for one in answers]
    balance: dict[tuple[int, int], int] = {}
    for one, errors in zip(answers, found, strict=True):
        more = errors.edits - line_errors(one.truth, one.reference, floor).edits
        balance[one.key] = balance.get(one.key, 0) + more
    return Reading(
        lines=len(answers),
        exact_lines=sum(errors.exact for errors in found),
        characters=sum(errors.characters for errors in found),
        character_errors=sum(errors.edits for errors in found),
        lost=sum(more > 0 for more in balance.values()),
        gained=sum(more < 0 for more in balance.values()),
        floor=floor,
    )
