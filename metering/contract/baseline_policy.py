"""What a re-measured vendor stack does to the baseline cost that savings are counted from.

In: the contract's policy and the measured baseline costs per unit, oldest first.
Out: the effective cost per unit after each measurement.
Never here: proration by days. A reset inside a period splits the period's volume into two
segments, each with its own baseline; savings add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from metering.contract.terms import BaselinePolicy
from metering.decimals import exact, parse_decimal
from metering.refusal import Refusal

__all__ = ["effective_baselines"]


def effective_baselines(policy: BaselinePolicy, measured: Sequence[Decimal]) -> list[Decimal]:
    """Effective cost per unit after each measured cost, oldest first.

    Under `ratchet` a baseline's cost never rises again: 2.40, 2.00, 2.10 counts as 2.40, 2.00,
    2.00. Under `glide` it moves `fraction` of the way from the effective cost to the new one.
    """
    if not measured:
        raise Refusal("baselines", "none", "at least one measured baseline")
    costs = [parse_decimal(cost, "baseline") for cost in measured]
    if min(costs) <= 0:
        raise Refusal("baselines", min(costs), "costs above zero")
    effective = [costs[0]]
    with exact():
        for cost in costs[1:]:
            current = effective[-1]
            if policy.kind == "reset":
                current = cost
            elif policy.kind == "ratchet":
                current = min(current, cost)
            elif policy.fraction is not None:
                current += (cost - current) * policy.fraction
            effective.append(current)
    return effective
