"""How well lines of text were read: exact lines and character errors against the known text.

In: what a recogniser scored at each place, its alphabet, and the truth. Out: the text read, and a
:class:`ReadingAccuracy` with its floor. Pure. Case and punctuation always count. Spaces count
unless the floor says otherwise: PaddleOCR's own metric for its recognisers (``RecMetric``, by
default ``ignore_space=True``) leaves them out, since those models guess at the width of a gap.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

BLANK = 0
"""Label of "no character here" in connectionist temporal classification."""


@dataclass(frozen=True)
class ReadingFloor:
    """What a plan asks: at least this fraction of lines exact, at most this error rate."""

    least_exact: Decimal
    most_character_errors: Decimal
    ignore_spaces: bool = False

    def __post_init__(self) -> None:
        for name in ("least_exact", "most_character_errors"):
            value = getattr(self, name)
            if not isinstance(value, Decimal) or not 0 <= value <= 1:
                raise ValueError(f"{name}: got {value!r}, wanted a Decimal from 0 to 1")


@dataclass(frozen=True)
class ReadingAccuracy:
    """Counts, so that every rate follows exactly: lines and characters of the truth."""

    lines: int
    exact_lines: int
    characters: int
    character_errors: int
    floor: ReadingFloor

    @property
    def exact_rate(self) -> Decimal:
        return Decimal(self.exact_lines) / self.lines

    @property
    def character_error_rate(self) -> Decimal:
        """Edits over characters of the truth, summed over the set; may pass 1.

        Where the truth is empty every edit counts as a whole character.
        """
        return Decimal(self.character_errors) / max(1, self.characters)

    @property
    def passed(self) -> bool:
        return (
            self.exact_rate >= self.floor.least_exact
            and self.character_error_rate <= self.floor.most_character_errors
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "exact_lines": self.exact_lines,
            "characters": self.characters,
            "character_errors": self.character_errors,
            "least_exact": str(self.floor.least_exact),
            "most_character_errors": str(self.floor.most_character_errors),
            "ignore_spaces": self.floor.ignore_spaces,
            "passed": self.passed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReadingAccuracy:
        floor = ReadingFloor(
            least_exact=Decimal(str(data["least_exact"])),
            most_character_errors=Decimal(str(data["most_character_errors"])),
            ignore_spaces=bool(data["ignore_spaces"]),
        )
        return cls(
            lines=int(data["lines"]),
            exact_lines=int(data["exact_lines"]),
            characters=int(data["characters"]),
            character_errors=int(data["character_errors"]),
            floor=floor,
        )


def greedy_labels(scores: npt.NDArray[np.float32]) -> list[npt.NDArray[np.int64]]:
    """Labels of each line of (n, places, labels) scores, best path: the highest score at each
    place, repeats merged, blanks dropped (Graves et al., ICML 2006, section 3.2).

    Raises ValueError for another shape, or for scores that are not finite.
    """
    if scores.ndim != 3 or scores.shape[2] < 2:
        raise ValueError(f"scores: got {scores.shape}, wanted (lines, places, labels)")
    if not np.isfinite(scores).all():
        raise ValueError("scores: got values that are not finite")
    best = scores.argmax(axis=2)
    kept = best != BLANK
    kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    return [row[chosen] for row, chosen in zip(best, kept, strict=True)]


def spell(labels: Sequence[int] | npt.NDArray[np.int64], alphabet: Sequence[str]) -> str:
    """Text of ``labels``; ``alphabet[0]`` is the blank. Raises ValueError for a label outside."""
    outside = [int(label) for label in labels if not 0 < label < len(alphabet)]
    if outside:
        raise ValueError(f"labels: got {outside[:5]}, wanted 1 to {len(alphabet) - 1}")
    return "".join(alphabet[int(label)] for label in labels)


def edit_distance(truth: str, read: str) -> int:
    """Least insertions, deletions and substitutions between two texts (Levenshtein 1966)."""
    row = list(range(len(read) + 1))
    for i, wanted in enumerate(truth, start=1):
        diagonal, row[0] = row[0], i
        for j, got in enumerate(read, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (wanted != got))
    return row[-1]


def reading_accuracy(
    truth: Sequence[str], read: Sequence[str], floor: ReadingFloor
) -> ReadingAccuracy:
    """Line i read against line i of the truth. Raises ValueError unless every line was read."""
    if len(truth) != len(read) or not truth:
        raise ValueError(f"lines: got {len(read)} read, wanted the {len(truth)} of the truth")
    lines = [line_errors(wanted, got, floor) for wanted, got in zip(truth, read, strict=True)]
    return ReadingAccuracy(
        lines=len(lines),
        exact_lines=sum(line.exact for line in lines),
        characters=sum(line.characters for line in lines),
        character_errors=sum(line.edits for line in lines),
        floor=floor,
    )


@dataclass(frozen=True)
class LineErrors:
    """One line: characters of the truth, and the edits from it to what was read."""

    characters: int
    edits: int

    @property
    def exact(self) -> bool:
        return self.edits == 0


@functools.lru_cache(maxsize=65536)
def line_errors(truth: str, read: str, floor: ReadingFloor) -> LineErrors:
    """What was read of one line, spaces counted as the floor says."""
    wanted, got = _compared(truth, floor), _compared(read, floor)
    return LineErrors(len(wanted), edit_distance(wanted, got))


def _compared(text: str, floor: ReadingFloor) -> str:
    return text.replace(" ", "") if floor.ignore_spaces else text
