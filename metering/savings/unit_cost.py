"""Savings from two costs per unit of work.

In: a volume and two unit costs, exact.
Out: unrounded savings, negative when the new cost is higher.
Never here: rounding, proration by days.
"""

from __future__ import annotations

from decimal import Decimal

from metering.decimals import exact, parse_decimal
from metering.refusal import Refusal

__all__ = ["unit_cost_savings"]


def unit_cost_savings(volume: object, baseline_cost: object, optimised_cost: object) -> Decimal:
    """volume x (baseline - optimised): IPMVP avoided cost at the metered volume, unrounded."""
    units = parse_decimal(volume, "volume")
    if units < 0:
        raise Refusal("volume", units, "zero or more", "reverse an event by a correction")
    with exact():
        baseline = parse_decimal(baseline_cost, "baseline_cost")
        return units * (baseline - parse_decimal(optimised_cost, "optimised_cost"))
