"""The search pool: what the searches for one customer and model cost, as their ledgers booked it.

In: lines of `ledger.jsonl`, as `kernelgen.agent.ledger` writes them while a search runs.
Out: exact totals per operator and outcome, failed work included, and what is left to recoup.
Never here: a rounding (the invoice line rounds), a search left out, more recouped than recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from metering.canonical import digest_bytes, loads
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields
from metering.money import carried, check_currency
from metering.refusal import Refusal

__all__ = ["Booked", "Pool", "SearchCost", "read_ledger"]

_TOKENS = ("tokens_in", "tokens_out", "price_per_mtok_in", "price_per_mtok_out")


@dataclass(frozen=True)
class Booked:
    """Bookings of one kind of work with one outcome: how many, seconds, cost."""

    work: str
    outcome: str
    bookings: int
    seconds: Decimal
    cost: Decimal

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "work": self.work,
            "outcome": self.outcome,
            "bookings": self.bookings,
            "seconds": to_text(self.seconds),
            "cost": to_text(self.cost),
        }


@dataclass(frozen=True)
class SearchCost:
    """One search: whose it was, what it cost (12 places), by work and outcome."""

    customer: str
    model: str
    currency: str
    cost: Decimal
    rows: tuple[Booked, ...]
    ledger_sha256: str

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "schema": "ignition.search-cost.v1",
            "customer": self.customer,
            "model": self.model,
            "currency": self.currency,
            "cost": to_text(self.cost),
            "rows": [row.to_json() for row in self.rows],
            "ledger_sha256": self.ledger_sha256,
        }

    @classmethod
    def from_json(cls, value: object) -> SearchCost:
        """Inverse of `to_json`; the rows must sum to the cost."""
        fields = Fields(value, "search_cost")
        fields.text("schema", ["ignition.search-cost.v1"])
        rows = tuple(
            _booked(item, f"search_cost.rows[{index}]")
            for index, item in enumerate(fields.items("rows"))
        )
        cost = cls(
            customer=str(fields.any("customer")),
            model=str(fields.any("model")),
            currency=check_currency(fields.text("currency")),
            cost=fields.decimal("cost"),
            rows=rows,
            ledger_sha256=fields.text("ledger_sha256"),
        )
        fields.finish()
        if _sum(rows) != cost.cost:
            raise Refusal("search_cost.cost", to_text(cost.cost), to_text(_sum(rows)))
        return cost


@dataclass(frozen=True)
class Pool:
    """Everything searched for one customer and model, and what has come back so far."""

    searches: tuple[SearchCost, ...]
    recouped: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "recouped", parse_decimal(self.recouped, "pool.recouped"))
        kinds = {(search.customer, search.model, search.currency) for search in self.searches}
        if len(kinds) > 1:
            raise Refusal("pool", sorted(kinds), "searches of one customer, model and currency")
        ledgers = [search.ledger_sha256 for search in self.searches]
        if len(set(ledgers)) != len(ledgers):
            raise Refusal("pool", "one ledger twice", "each search once")
        if not 0 <= self.recouped <= self.recorded:
            raise Refusal(
                "pool.recouped", to_text(self.recouped),
                f"at most the {to_text(self.recorded)} recorded",
            )  # fmt: skip

    @property
    def recorded(self) -> Decimal:
        """Cost of all searches: `LedgerState.recorded`."""
        with exact():
            return sum((search.cost for search in self.searches), Decimal(0))

    @property
    def left(self) -> Decimal:
        """What may still be recouped, before the contract's own limit."""
        with exact():
            return self.recorded - self.recouped


def read_ledger(text: str) -> SearchCost:
    """Sum a ledger of one customer and model. Refuses a line it cannot add up to the last digit."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise Refusal("ledger", "no lines", "at least one booking")
    sums: dict[tuple[str, str], list[Decimal]] = {}
    owners = {_book(line, number, sums) for number, line in enumerate(lines, start=1)}
    if len(owners) != 1:
        raise Refusal("ledger", sorted(owners), "one customer, model and currency a ledger")
    customer, model, currency = owners.pop()
    rows = tuple(_rows(sums.items()))
    return SearchCost(
        customer, model, check_currency(currency), _sum(rows), rows, digest_bytes(text.encode())
    )


def _sum(rows: Sequence[Booked]) -> Decimal:
    """Twelve places: a quotient of seconds and hours has no last digit."""
    with exact():
        return carried(sum((row.cost for row in rows), Decimal(0)))


def _booked(value: object, where: str) -> Booked:
    fields = Fields(value, where)
    row = Booked(
        fields.text("work"), fields.text("outcome"), fields.integer("bookings"),
        fields.decimal("seconds"), fields.decimal("cost"),
    )  # fmt: skip
    fields.finish()
    return row


def _book(line: str, number: int, sums: dict[tuple[str, str], list[Decimal]]) -> tuple[str, ...]:
    fields = Fields(loads(line), f"ledger line {number}")
    fields.text("operator")
    for name in ("price_per_core_hour", *_TOKENS):
        if fields.has(name):
            parse_decimal(fields.any(name), f"ledger line {number}.{name}")
    seconds, cost = fields.decimal("seconds"), fields.decimal("cost")
    if seconds < 0 or cost < 0:
        raise Refusal(f"ledger line {number}", to_text(min(seconds, cost)), "zero or more")
    key = (fields.text("work"), fields.text("outcome"))
    owner = (str(fields.any("customer")), str(fields.any("model")), fields.text("currency"))
    fields.finish()
    row = sums.setdefault(key, [Decimal(0), Decimal(0), Decimal(0)])
    with exact():
        for index, amount in enumerate((Decimal(1), seconds, cost)):
            row[index] += amount
    return owner


def _rows(items: Iterable[tuple[tuple[str, str], Sequence[Decimal]]]) -> list[Booked]:
    return [
        Booked(work, outcome, int(count), seconds, cost)
        for (work, outcome), (count, seconds, cost) in sorted(items)
    ]
