"""The steps of a case: what happens to its periods and documents, in order.

In: objects of a case file.
Out: frozen records.
Never here: what a step does (`metering.cases.play`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import cast

from metering.cases.facts import Stated
from metering.decimals import parse_decimal
from metering.fields import Fields
from metering.refusal import Refusal

__all__ = ["Step"]

STEPS = ("bill", "dispute", "resolve", "credit", "audit")


@dataclass(frozen=True)
class Step:
    """`kind` says which of the fields count. `at` None: right after the step before.

    bill: `period`. dispute: `document` and line ids (keys of `lines`). resolve: `document`.
    credit: `document`, `reason`, and amounts by line id or None for all that is left.
    audit: `document` and the audited `savings`.
    """

    kind: str
    period: str = ""
    document: str = ""
    lines: Mapping[str, Decimal] | None = None
    reason: str = ""
    savings: tuple[Stated, ...] = ()
    at: datetime | None = None

    @classmethod
    def from_json(cls, value: object, where: str) -> Step:
        """Read one step; fields that its kind does not have are refused."""
        fields = Fields(value, where)
        kind = fields.text("step", STEPS)
        step = cls(
            kind,
            period=fields.text("period") if kind == "bill" else "",
            document=fields.text("document") if kind != "bill" else "",
            lines=_lines(fields, kind),
            reason=fields.text("reason") if kind == "credit" else "",
            savings=_audited(fields) if kind == "audit" else (),
            at=fields.instant("at") if fields.has("at") else None,
        )
        fields.finish()
        return step


def _lines(fields: Fields, kind: str) -> dict[str, Decimal] | None:
    if kind == "dispute":
        contested = fields.texts("lines")
        if not contested:
            raise Refusal(f"{fields.where}.lines", "none", "ids of contested lines")
        return dict.fromkeys(contested, Decimal(0))
    return _amounts(fields) if kind == "credit" else None


def _audited(fields: Fields) -> tuple[Stated, ...]:
    return tuple(
        Stated.from_json(row, f"{fields.where}.savings[{index}]", period="")
        for index, row in enumerate(fields.items("savings"))
    )


def _amounts(fields: Fields) -> dict[str, Decimal] | None:
    value = fields.any("lines")
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise Refusal(f"{fields.where}.lines", value, "amounts by line id, or null for all")
    amounts = cast("Mapping[str, object]", value)
    return {
        line: parse_decimal(amount, f"{fields.where}.lines.{line}")
        for line, amount in amounts.items()
    }
