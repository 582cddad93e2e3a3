"""Adjustments: what brings baseline and reporting period to the same conditions.

In: savings by line, and written, signed events. Out: the lines adjusted, or refused.
Never here: an adjustment in words only, or one that can only go one way.

A routine adjustment restates both arms at metered volume and mix: it is in the formula already
(`unit_cost_savings`), and `normalised_savings` does the same at an agreed mix, for comparing
quarters and never for an invoice. A non-routine one (driver, hardware, model revision, service
level) is an event with evidence that provider, customer and auditor signed, added with its sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from metering.contract import VerifiedLine
from metering.decimals import exact, parse_decimal
from metering.fields import Fields
from metering.refusal import Refusal
from metering.savings.unit_cost import unit_cost_savings

__all__ = ["PARTIES", "NonRoutine", "adjusted", "normalised_savings"]

PARTIES = ("auditor", "customer", "provider")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class NonRoutine:
    """One signed event: `amount` is added to the savings of the line, above or below zero."""

    period: str
    model: str
    system: str
    amount: Decimal
    reason: str
    evidence: str
    signed_by: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", parse_decimal(self.amount, "adjustment.amount"))
        if not self.reason:
            raise Refusal("adjustment.reason", "nothing", "the physical fact behind it")
        if not _DIGEST.fullmatch(self.evidence):
            raise Refusal("adjustment.evidence", repr(self.evidence), "a SHA-256 of the evidence")
        if tuple(sorted(self.signed_by)) != PARTIES:
            raise Refusal(
                "adjustment.signed_by", list(self.signed_by), "provider, customer and auditor",
                "an adjustment only one side signed adjusts nothing",
            )  # fmt: skip

    @classmethod
    def from_json(cls, value: object, where: str) -> NonRoutine:
        """Read one adjustment."""
        fields = Fields(value, where)
        event = cls(
            period=fields.text("period"),
            model=fields.text("model"),
            system=fields.text("system"),
            amount=fields.decimal("amount"),
            reason=fields.text("reason"),
            evidence=fields.text("evidence"),
            signed_by=fields.texts("signed_by"),
        )
        fields.finish()
        return event


def adjusted(
    lines: Sequence[VerifiedLine], adjustments: Sequence[NonRoutine], period: str
) -> list[VerifiedLine]:
    """The lines with the period's adjustments in point and bound: the amount is agreed, so certain.

    Of a model on a system with several segments the first one carries it. Refuses an adjustment of
    a line that is not there.
    """
    rows = list(lines)
    for adjustment in adjustments:
        if adjustment.period != period:
            continue
        key = (adjustment.model, adjustment.system)
        index = next((i for i, row in enumerate(rows) if (row.model, row.system) == key), None)
        if index is None:
            raise Refusal("adjustment", " on ".join(key), f"a line of {period}")
        row = rows[index]
        with exact():
            rows[index] = replace(
                row, point=row.point + adjustment.amount, bound=row.bound + adjustment.amount
            )
    return rows


def normalised_savings(
    mix: Mapping[tuple[str, str], Decimal],
    costs: Mapping[tuple[str, str], tuple[Decimal, Decimal]],
) -> Decimal:
    """Savings at an agreed mix: sum of V* x (baseline cost - optimised cost) per model and system.

    For comparing quarters with each other. Never for an invoice: nobody metered V*.
    """
    missing = sorted(set(mix) - set(costs))
    if missing:
        raise Refusal("costs", " on ".join(missing[0]), "both costs of everything in the mix")
    with exact():
        return sum(
            (unit_cost_savings(volume, *costs[key]) for key, volume in mix.items()), Decimal(0)
        )
