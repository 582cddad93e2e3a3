"""The journal: what a document does to the books, double entry.

In: an issued document.
Out: entries that sum to zero.
Never here: a balance that is stored (balances are sums of entries), a rounding, an entry that
changes an earlier one.

The same booking serves all three kinds, because amounts are signed:
debit receivable by payable, debit holdback by holdback, credit income by fee, credit tax by tax.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.ledger.invoice import Invoice
from metering.refusal import Refusal

__all__ = [
    "DISPUTED",
    "HOLDBACK",
    "INCOME",
    "RECEIVABLE",
    "RECOUPMENT",
    "TAX",
    "JournalEntry",
    "balances",
    "journal",
]

RECEIVABLE = "Assets:Receivable"
DISPUTED = "Assets:Receivable:Disputed"
HOLDBACK = "Assets:Contract:Holdback"
INCOME = "Income:Savings-Share"
RECOUPMENT = "Income:Search-Recoupment"
TAX = "Liabilities:VAT"


@dataclass(frozen=True)
class JournalEntry:
    """One side of a booking. `amount` is positive for a debit, negative for a credit."""

    booked_on: date
    document: str
    account: str
    amount: Decimal
    currency: str
    text: str

    @property
    def debit(self) -> Decimal | None:
        """The amount when it is a debit."""
        return self.amount if self.amount > 0 else None

    @property
    def credit(self) -> Decimal | None:
        """The amount without its sign when it is a credit."""
        return -self.amount if self.amount < 0 else None

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "booked_on": self.booked_on.isoformat(),
            "document": self.document,
            "account": self.account,
            "amount": to_text(self.amount),
            "currency": self.currency,
            "text": self.text,
        }


def journal(document: Invoice) -> tuple[JournalEntry, ...]:
    """Entries of one document; they sum to zero. A zero document has no entries."""
    with exact():
        recoupment = sum(
            (line.amount for line in document.lines if line.fee_line.kind == "recoupment"),
            Decimal(0),
        )
        amounts = [
            (RECEIVABLE, document.payable),
            (HOLDBACK, document.holdback),
            (INCOME, recoupment - document.fee),
            (RECOUPMENT, -recoupment),
            (TAX, -document.tax),
        ]
    entries = tuple(
        JournalEntry(
            booked_on=document.issued_on,
            document=document.number,
            account=account,
            amount=amount,
            currency=document.currency,
            text=f"{document.kind} {document.number} {document.customer.name}",
        )
        for account, amount in amounts
        if amount
    )
    check_balanced(entries)
    return entries


def check_balanced(entries: Iterable[JournalEntry]) -> None:
    """Refuse entries of a document and currency that do not sum to exactly zero."""
    sums: dict[tuple[str, str], Decimal] = {}
    with exact():
        for entry in entries:
            key = (entry.document, entry.currency)
            sums[key] = sums.get(key, Decimal(0)) + entry.amount
    for (document, currency), total in sums.items():
        if total:
            raise Refusal(f"journal of {document}", f"{to_text(total)} {currency}", "a sum of zero")


def balances(entries: Iterable[JournalEntry]) -> dict[tuple[str, str], Decimal]:
    """Balance per (account, currency), in account order."""
    sums: dict[tuple[str, str], Decimal] = {}
    with exact():
        for entry in entries:
            key = (entry.account, entry.currency)
            sums[key] = sums.get(key, Decimal(0)) + entry.amount
    return dict(sorted(sums.items()))
