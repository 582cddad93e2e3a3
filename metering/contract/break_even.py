"""Break-even before a search: its price, what it is expected to gain, and when it has paid.

In: a contract, the price of the search, and the savings expected per month.
Out: month by month what the customer saves, pays and keeps, through `fee` itself.
Never here: a promise (expected savings are stated by the caller), a search that is started.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from metering.contract.fee import fee
from metering.contract.state import LedgerState, VerifiedLine, VerifiedSavings
from metering.contract.terms import Contract
from metering.decimals import exact, parse_decimal, to_text
from metering.money import carried, quantize
from metering.plan import Period
from metering.refusal import Refusal

__all__ = [
    "BreakEven",
    "Month",
    "Outlook",
    "break_even",
    "outlook",
    "savings_at",
    "search_price",
    "uplift_needed",
]

YEAR = 12
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
    """What a search's budget costs: budget x cores x price / 3600, unrounded.

    Not a ceiling: the ledger also books building the package and judging the whole model, which
    come after the budget.
    """
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
    months = _forecast(terms, savings, cost, covered)
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
        first_year=tuple(months[:YEAR]),
        reasons=_reasons(contract, cost, savings, paid_back, not_recouped),
    )


@dataclass(frozen=True)
class Outlook:
    """What a search would bring at one uplift: savings a month, and when they have paid for it."""

    uplift: Decimal
    savings: Decimal
    found: BreakEven


def outlook(
    contract: Contract, price: object, monthly_cost: object, uplifts: Iterable[object]
) -> tuple[Outlook, ...]:
    """`break_even` at each of several uplifts; `monthly_cost` is that of the work as it runs now.

    The uplifts are assumptions of whoever asks: none of them is measured.
    """
    rows = []
    for each in uplifts:
        uplift = parse_decimal(each, "uplift")
        savings = savings_at(monthly_cost, uplift)
        rows.append(Outlook(uplift, savings, break_even(contract, price, savings)))
    return tuple(rows)


def savings_at(monthly_cost: object, uplift: object) -> Decimal:
    """Savings a month: cost x (1 - 1 / (1 + uplift)), twelve places; the savings line's formula."""
    cost, gain = parse_decimal(monthly_cost, "monthly_cost"), parse_decimal(uplift, "uplift")
    if cost < 0 or gain <= -1:
        raise Refusal(
            "monthly_cost, uplift", f"{to_text(cost)}, {to_text(gain)}",
            "a cost of zero or more and an uplift above -1",
        )  # fmt: skip
    with exact():
        return carried(cost - cost / (1 + gain))


def uplift_needed(price: object, monthly_cost: object, months: int) -> Decimal | None:
    """The smallest uplift whose savings reach the price in `months`: s / (cost - s), s = price /
    months, rounded up to four places. None when even saving the whole cost would not.
    """
    paid, cost = parse_decimal(price, "price"), parse_decimal(monthly_cost, "monthly_cost")
    if paid < 0 or cost < 0 or months < 1:
        raise Refusal("price, monthly_cost, months", f"{paid}, {cost}, {months}", "none below zero")
    with exact():
        wanted = paid / months
        if wanted >= cost:
            return None
        return (wanted / (cost - wanted)).quantize(Decimal("0.0001"), rounding=ROUND_CEILING)


def _at_price(contract: Contract, cost: Decimal) -> tuple[Contract, Decimal]:
    """The contract with at most this search in its pool, and how much of the price that covers."""
    term = contract.recoupment
    if term is None:
        return contract, Decimal(0)
    covered = min(term.amount, quantize(cost, contract.currency))
    return replace(contract, recoupment=replace(term, amount=covered)), covered


def _forecast(contract: Contract, savings: Decimal, cost: Decimal, covered: Decimal) -> list[Month]:
    """Months until the price is saved and what is covered of it has come back, a year at least."""
    state, months = LedgerState(), []
    saved, back, wanted = Decimal(0), Decimal(0), quantize(covered, contract.currency)
    period = Period.month_of(contract.valid_from, contract.zone).next_month()
    for number in range(1, LONGEST + 1):
        line = VerifiedLine("forecast", "forecast", savings, savings)
        verified = VerifiedSavings(period, contract.currency, (line,), evidence_digest="forecast")
        billed = fee(contract, state, verified)
        with exact():
            months.append(Month(number, savings, billed.fee, billed.recouped, savings - billed.fee))
            saved, back = saved + savings, back + billed.recouped
        answered = number >= YEAR and saved >= cost and back >= wanted
        if answered or period.label >= "9998-12":
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
