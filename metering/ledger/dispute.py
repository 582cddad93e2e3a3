"""Disputes: some lines of an invoice are contested, the others stay collectible.

In: an issued invoice and the ids of the contested lines.
Out: what stays collectible, what is disputed, and the journal entries that move it apart.
Never here: an edit of the invoice. A dispute ends with a credit note or with a release.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from metering.decimals import exact
from metering.ledger.invoice import Invoice
from metering.ledger.journal import DISPUTED, RECEIVABLE, JournalEntry, check_balanced
from metering.money import apportion
from metering.refusal import Refusal

__all__ = ["Dispute", "dispute"]


@dataclass(frozen=True)
class Dispute:
    """Amounts are what the customer pays: after holdback, with tax; they sum to the payable."""

    document: str
    line_ids: tuple[str, ...]
    collectible: Decimal
    disputed: Decimal
    entries: tuple[JournalEntry, ...]

    def resolved(self, on: date) -> tuple[JournalEntry, ...]:
        """Entries that move the disputed amount back; a credit note, if any, is booked apart."""
        return tuple(
            JournalEntry(
                on, entry.document, entry.account, -entry.amount, entry.currency,
                f"dispute of {entry.document} resolved",
            )
            for entry in self.entries
        )  # fmt: skip


def dispute(invoice: Invoice, line_ids: Collection[str], *, on: date) -> Dispute:
    """Split the payable over the lines by largest remainder and set the contested ones aside."""
    ids = [line.line_id for line in invoice.lines]
    unknown = sorted(set(line_ids) - set(ids))
    if unknown or not line_ids:
        raise Refusal("line_ids", unknown or "none", "lines of the invoice: " + ", ".join(ids))
    if invoice.kind != "invoice" or not invoice.fee:
        raise Refusal("invoice", invoice.number, "an invoice with a fee", "nothing to contest")
    with exact():
        parts = [invoice.payable * line.amount / invoice.fee for line in invoice.lines]
        shares = dict(zip(ids, apportion(parts, invoice.payable, invoice.currency), strict=True))
        disputed = sum((shares[line_id] for line_id in set(line_ids)), Decimal(0))
        collectible = invoice.payable - disputed
    text = f"lines {', '.join(sorted(line_ids))} of {invoice.number} disputed"
    entries = tuple(
        JournalEntry(on, invoice.number, account, amount, invoice.currency, text)
        for account, amount in ((DISPUTED, disputed), (RECEIVABLE, -disputed))
        if amount
    )
    check_balanced(entries)
    return Dispute(invoice.number, tuple(sorted(set(line_ids))), collectible, disputed, entries)
