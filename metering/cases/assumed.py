"""A measured savings line under other assumptions: price, volume, rate, uplift, a newer baseline.

In: a savings line as it was billed, and values for some of its inputs.
Out: the line that `savings_line` gives for them; without changes the same amounts.
Never here: savings worked out in another way than those that bill.

A re-measured baseline counts as the contract's policy says, for the whole period:
    cost of a sample at rate r   c(r) = price / 3600 x cores / r
    effective cost               the policy over c(frozen), c(re-measured)
    uplift over it               (1 + u) x c(effective) / c(frozen) - 1: the kernel's own cost stays
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from metering.contract import BaselinePolicy, effective_baselines
from metering.decimals import exact, parse_decimal, to_text
from metering.money import carried
from metering.plan import PriceBook
from metering.refusal import Refusal
from metering.savings import SavingsLine, savings_line

__all__ = ["ASSUMED", "assumed_line"]

ASSUMED = (
    "volume",
    "price_per_core_hour",
    "cores",
    "baseline_samples_per_second",
    "uplift_point",
    "uplift_lower_95",
)
"""Inputs of a line that may be assumed otherwise, in the order its formula uses them."""

_BILLION = Decimal(10**9)


def assumed_line(
    line: SavingsLine,
    values: Mapping[str, object],
    *,
    kept: bool,
    remeasured: Decimal | None = None,
    policy: BaselinePolicy | None = None,
) -> SavingsLine:
    """`line` with `values` for some of `ASSUMED`; `remeasured` is a rate in samples per second.

    Refuses names it does not know and whatever `savings_line` refuses.
    """
    unknown = sorted(set(values) - set(ASSUMED))
    if unknown:
        raise Refusal(unknown[0], "an assumption", "one of " + ", ".join(ASSUMED))
    given = {name: values.get(name, getattr(line, name)) for name in ASSUMED}
    rate = parse_decimal(given["baseline_samples_per_second"], "baseline_samples_per_second")
    uplifts = {
        name: parse_decimal(given[name], name) for name in ("uplift_point", "uplift_lower_95")
    }
    if remeasured is not None:
        effective = _effective_rate(rate, remeasured, policy or BaselinePolicy())
        if effective != rate:
            with exact():
                uplifts = {
                    name: carried((1 + uplift) * rate / effective - 1)
                    for name, uplift in uplifts.items()
                }
            rate = effective
    return savings_line(
        model=line.model,
        system=line.system,
        segment=line.segment,
        period=line.period,
        volume=_whole(given["volume"], "volume"),
        cores=_whole(given["cores"], "cores"),
        baseline_samples_per_second=rate,
        price_book=_price(line, given["price_per_core_hour"]),
        uplift_point=uplifts["uplift_point"],
        uplift_lower_95=uplifts["uplift_lower_95"],
        baseline_id=line.baseline_id,
        uplift_id=line.uplift_id,
        evidence_digest=line.evidence_digest,
        kept=kept,
        not_kept_reason="" if kept else "assumed not to be kept",
        method_version=line.method_version,
    )


def _effective_rate(frozen: Decimal, remeasured: Decimal, policy: BaselinePolicy) -> Decimal:
    """The rate whose cost the policy counts; the two costs differ by their rates alone."""
    for name, rate in (("baseline_samples_per_second", frozen), ("remeasured", remeasured)):
        if rate <= 0:
            raise Refusal(name, to_text(rate), "a rate above zero")
    with exact():
        costs = [carried(_BILLION / rate) for rate in (frozen, remeasured)]
    effective = effective_baselines(policy, costs)[-1]
    if effective in costs:
        return (frozen, remeasured)[costs.index(effective)]
    with exact():
        return carried(_BILLION / effective)


def _price(line: SavingsLine, price: object) -> PriceBook:
    return PriceBook(
        line.currency,
        parse_decimal(price, "price_per_core_hour"),
        line.period.start,
        "an assumption",
    )


def _whole(value: object, name: str) -> int:
    number = parse_decimal(value, name)
    if number != number.to_integral_value():
        raise Refusal(name, to_text(number), "a whole number")
    return int(number)
