"""Break-even before a search: its price, what it is expected to gain, and when it has paid.

In: a contract, the price of the search, and the savings expected per month.
Out: month by month what the customer saves, pays and keeps, through `fee` itself.
Never here: a promise (expected savings are stated by the caller), a search that is started.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from metering.contract.fee import fee
from metering.contract.state import LedgerState, VerifiedLine, VerifiedSavings
from metering.contract.terms import Contract
from metering.decimals import exact, parse_decimal, to_text
from metering.money import quantize
from metering.plan import Period
from metering.refusal import Refusal

__all__ = ["BreakEven", "Month", "break_even", "search_price"]

LONGEST = 240
"""Months looked ahead: twenty years, the longest term of shared-savings contracts."""


@dataclass(frozen=True)
class Month:
    """One month of the forecast: savings, fee, the part of it that pays for the search."""

    number: int
    savings: Decimal
    fee: Decimal
    recouped: Decimal
    customer_keeps: Decimal

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "month": self.number,
            "savings": to_text(self.savings),
            "fee": to_text(self.fee),
            "recouped": to_text(self.recouped),
            "customer_keeps": to_text(self.customer_keeps),
        }


@dataclass(frozen=True)
class BreakEven:
    """`months_to_pay_back`: first month in which all savings so far reach the price; None: never
    within `LONGEST`. `months_to_recoup`: the same for what the contract recoups of it.

    `worth_it` is False when the search never pays back, or its price is above what may be recouped.
    """

    currency: str
    price: Decimal
    expected_savings: Decimal
    months_to_pay_back: int | None
    months_to_recoup: int | None
    not_recouped: Decimal
    first_year: tuple[Month, ...]
    reasons: tuple[str, ...]

    @property
    def worth_it(self) -> bool:
        """Whether the search pays back and its price is covered."""
        return self.months_to_pay_back is not None and not self.not_recouped

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "schema": "ignition.break-even.v1",
            "currency": self.currency,
            "price": to_text(self.price),
            "expected_savings": to_text(self.expected_savings),
            "months_to_pay_back": self.months_to_pay_back,
            "months_to_recoup": self.months_to_recoup,
            "not_recouped": to_text(self.not_recouped),
            "worth_it": self.worth_it,
            "first_year": [month.to_json() for month in self.first_year],
            "reasons": list(self.reasons),
        }


def search_price(budget_seconds: object, cores: int, price_per_core_hour: object) -> Decimal:
    """What a search may cost at most: budget x cores x price / 3600, unrounded."""
    seconds = parse_decimal(budget_seconds, "budget_seconds")
    price = parse_decimal(price_per_core_hour, "price_per_core_hour")
    if seconds < 0 or price < 0 or cores < 1:
        raise Refusal("search", f"{seconds} s on {cores} cores at {price}", "nothing below zero")
    with exact():
        return seconds * cores * price / 3600


def break_even(contract: Contract, price: object, expected_savings: object) -> BreakEven:
    """Forecast of constant monthly savings under the contract, with the search booked at `price`.

    The contract's recoupment limits what is paid back; without recoupment the provider bears the
    price and it comes back through the share.
    """
    cost = parse_decimal(price, "price")
    savings = parse_decimal(expected_savings, "expected_savings")
    if cost < 0:
        raise Refusal("price", to_text(cost), "zero or more")
    terms, covered = _at_price(contract, cost)
    months = _forecast(terms, savings)
    with exact():
        not_recouped = max(Decimal(0), cost - covered)
    paid_back = _first(months, cost, "savings")
    recouped = _first(months, quantize(covered, contract.currency), "recouped") if covered else None
    if contract.recoupment is not None and contract.recoupment.kind == "amortised":
        recouped = contract.recoupment.months
    return BreakEven(
        currency=contract.currency,
        price=cost,
        expected_savings=savings,
        months_to_pay_back=paid_back,
        months_to_recoup=recouped,
        not_recouped=not_recouped if contract.recoupment is not None else Decimal(0),
        first_year=tuple(months[:12]),
        reasons=_reasons(contract, cost, savings, paid_back, not_recouped),
    )


def _at_price(contract: Contract, cost: Decimal) -> tuple[Contract, Decimal]:
    """The contract with at most this search in its pool, and how much of the price that covers."""
    term = contract.recoupment
    if term is None:
        return contract, Decimal(0)
    covered = min(term.amount, quantize(cost, contract.currency))
    return replace(contract, recoupment=replace(term, amount=covered)), covered


def _forecast(contract: Contract, savings: Decimal) -> list[Month]:
    state, months = LedgerState(), []
    period = Period.month_of(contract.valid_from, contract.zone).next_month()
    for number in range(1, LONGEST + 1):
        line = VerifiedLine("forecast", "forecast", savings, savings)
        verified = VerifiedSavings(period, contract.currency, (line,), evidence_digest="forecast")
        billed = fee(contract, state, verified)
        with exact():
            months.append(Month(number, savings, billed.fee, billed.recouped, savings - billed.fee))
        if period.label >= "9998-12":
            break
        state, period = billed.state, period.next_month()
    return months


def _first(months: list[Month], wanted: Decimal, name: str) -> int | None:
    """The first month in which the running sum of a column reaches `wanted`."""
    total = Decimal(0)
    for month in months:
        with exact():
            total += getattr(month, name)
        if total >= wanted:
            return month.number
    return None


def _reasons(
    contract: Contract,
    cost: Decimal,
    savings: Decimal,
    paid_back: int | None,
    not_recouped: Decimal,
) -> tuple[str, ...]:
    said = [
        f"the search costs {to_text(cost)} {contract.currency}, expected savings are"
        f" {to_text(savings)} a month"
    ]
    if paid_back is None:
        said.append(f"it never pays back within {LONGEST} months")
    else:
        said.append(f"it has paid back after {paid_back} months")
    if contract.recoupment is None:
        said.append("the contract recoups nothing: the provider bears the price")
    elif not_recouped:
        said.append(f"the contract does not recoup {to_text(not_recouped)} of it")
    return tuple(said)
