"""What a system's answers are held to, by the task of the plan.

In: the fractions that both sides signed. Out: a floor, tagged by its kind in JSON. An embedding is
compared with what a stock stack answers; a line of text with the text that is known to stand there.
Never here: an answer, a comparison, a floor that a task does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from metering.datasets.reading import ReadingFloor
from metering.decimals import parse_decimal, to_text
from metering.fields import Fields
from metering.refusal import Refusal

COSINE, READING = "cosine", "reading"
FLOOR_OF_TASK = MappingProxyType({"embedding": COSINE, "text_recognition": READING})
"""The kind of floor each planned task has. Generation has none, so no plan can be made for it."""


@dataclass(frozen=True)
class CosineFloor:
    """Least cosine between an embedding and the reference's, of every single sample."""

    cosine: Decimal

    def __post_init__(self) -> None:
        value = parse_decimal(self.cosine, "plan.accuracy_floor_cosine")
        object.__setattr__(self, "cosine", value)
        if not 0 < value <= 1:
            raise Refusal(
                "plan.accuracy_floor_cosine", to_text(value), "a cosine above 0, at most 1"
            )


AccuracyFloor = CosineFloor | ReadingFloor


def kind(floor: AccuracyFloor) -> str:
    """``cosine`` or ``reading``."""
    return COSINE if isinstance(floor, CosineFloor) else READING


def floor_json(floor: AccuracyFloor) -> dict[str, object]:
    """JSON object with its kind; fractions as decimal text."""
    if isinstance(floor, CosineFloor):
        return {"kind": COSINE, "cosine": to_text(floor.cosine)}
    return {
        "kind": READING,
        "least_exact": to_text(floor.least_exact),
        "most_character_errors": to_text(floor.most_character_errors),
        "ignore_spaces": floor.ignore_spaces,
    }


def floor_from_json(value: object) -> AccuracyFloor:
    """Inverse of `floor_json`; refuses unknown and missing fields."""
    fields = Fields(value, "plan.accuracy_floor")
    floor: AccuracyFloor
    if fields.text("kind", (COSINE, READING)) == COSINE:
        floor = CosineFloor(fields.decimal("cosine"))
    else:
        rates = {name: fields.decimal(name) for name in ("least_exact", "most_character_errors")}
        for name, rate in rates.items():
            if not 0 <= rate <= 1:
                raise Refusal(f"plan.accuracy_floor.{name}", to_text(rate), "a fraction, 0 to 1")
        floor = ReadingFloor(**rates, ignore_spaces=fields.boolean("ignore_spaces"))
    fields.finish()
    return floor


def floor_words(floor: AccuracyFloor) -> str:
    """The floor in one phrase, for people."""
    if isinstance(floor, CosineFloor):
        return f"cosine of at least {to_text(floor.cosine)} to the reference, per sample"
    spaces = ", spaces left out" if floor.ignore_spaces else ""
    return (
        f"at least {floor.least_exact:.2%} of lines read exactly and at most "
        f"{floor.most_character_errors:.2%} character errors{spaces}; no worse than the reference"
    )
