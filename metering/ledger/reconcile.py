"""Reconciliation: what a set of rows comes to, and the trial balance of a journal.

In: row counts, sums and digests; entries.
Out: totals that can be frozen and compared later, every difference named; balances per account.
Never here: a tolerance; a sum over two currencies; a row that is read from a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.fields import Fields
from metering.ledger.journal import JournalEntry
from metering.money import quantize

__all__ = ["Totals", "TrialRow", "differences", "trial_balance"]


@dataclass(frozen=True)
class Totals:
    """`rows` counted, `sums` by currency or unit, `sha256` of the rows as one file."""

    rows: int
    sums: Mapping[str, Decimal]
    sha256: str

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "rows": self.rows,
            "sums": {key: to_text(value) for key, value in sorted(self.sums.items())},
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, value: object) -> Totals:
        """Inverse of `to_json`."""
        fields = Fields(value, "totals")
        found = fields.any("sums")
        sums = Fields(found, "totals.sums")
        names = list(found) if isinstance(found, Mapping) else []
        totals = cls(
            rows=fields.integer("rows"),
            sums={str(name): sums.decimal(str(name)) for name in names},
            sha256=fields.text("sha256"),
        )
        fields.finish()
        return totals


def differences(frozen: Totals, anew: Totals) -> tuple[str, ...]:
    """Everything in which `anew` is not `frozen`, in words; empty when they agree."""
    found = []
    if anew.rows != frozen.rows:
        found.append(f"{anew.rows - frozen.rows:+d} rows")
    for unit in sorted({*frozen.sums, *anew.sums}):
        with exact():
            moved = anew.sums.get(unit, Decimal(0)) - frozen.sums.get(unit, Decimal(0))
        if moved:
            found.append(f"{'+' if moved > 0 else ''}{to_text(moved)} {unit}")
    if anew.sha256 != frozen.sha256:
        found.append("other content" if not found else "and so another digest")
    return tuple(found)


@dataclass(frozen=True)
class TrialRow:
    """One account in one currency: what was debited, what was credited."""

    account: str
    currency: str
    entries: int
    debit: Decimal
    credit: Decimal

    @property
    def balance(self) -> Decimal:
        """Debits less credits."""
        with exact():
            return self.debit - self.credit


def trial_balance(entries: Iterable[JournalEntry]) -> tuple[TrialRow, ...]:
    """Debits and credits per account and currency, in account order; balances sum to zero."""
    sums: dict[tuple[str, str], list[Decimal]] = {}
    counts: dict[tuple[str, str], int] = {}
    with exact():
        for entry in entries:
            key = (entry.account, entry.currency)
            row = sums.setdefault(key, [Decimal(0), Decimal(0)])
            row[0] += entry.debit or Decimal(0)
            row[1] += entry.credit or Decimal(0)
            counts[key] = counts.get(key, 0) + 1
    return tuple(
        TrialRow(*key, counts[key], quantize(debit, key[1]), quantize(credit, key[1]))
        for key, (debit, credit) in sorted(sums.items())
    )
