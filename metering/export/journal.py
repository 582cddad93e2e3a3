"""The journal as a debit and credit CSV, the shape that general ledgers import.

In: issued documents, or the entries of many as they were posted.
Out: one row per booking, debit and credit in columns of their own, and a manifest.
Never here: a file that does not balance: the import is all or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.export.csv_safe import csv_text
from metering.export.manifest import Manifest, manifest_of
from metering.ledger import Invoice, JournalEntry, journal

__all__ = ["JOURNAL_COLUMNS", "PostedEntry", "journal_csv", "posted_csv"]

JOURNAL_COLUMNS = (
    "Date", "JournalNumber", "Account", "Debit", "Credit", "Currency", "DocumentNumber",
    "CostCentre", "Text",
)  # fmt: skip


@dataclass(frozen=True)
class PostedEntry:
    """An entry with what only its document knows: the series, and the contract it is posted to."""

    entry: JournalEntry
    series: str
    contract_id: str


def journal_csv(documents: Sequence[Invoice]) -> tuple[str, Manifest]:
    """CSV text and manifest; `sums` in the manifest are the debits per currency."""
    posted = [
        PostedEntry(entry, document.series, document.contract_id)
        for document in documents
        for entry in journal(document)
    ]
    return _csv(posted, documents)


def posted_csv(posted: Sequence[PostedEntry]) -> tuple[str, Manifest]:
    """The same of entries as they were posted, disputes among them; the manifest names no
    document.
    """
    return _csv(posted, ())


def _csv(posted: Sequence[PostedEntry], documents: Sequence[Invoice]) -> tuple[str, Manifest]:
    rows: list[list[str]] = []
    debits: dict[str, Decimal] = {}
    for item in posted:
        entry = item.entry
        debit = to_text(entry.debit) if entry.debit is not None else ""
        credit = to_text(entry.credit) if entry.credit is not None else ""
        if entry.debit is not None:
            with exact():
                before = debits.get(entry.currency, Decimal(0))
                debits[entry.currency] = before + entry.debit
        rows.append(
            [
                entry.booked_on.isoformat(), f"{item.series}:{entry.document}",
                entry.account, debit, credit, entry.currency, entry.document,
                item.contract_id, entry.text,
            ]
        )  # fmt: skip
    text = csv_text(JOURNAL_COLUMNS, rows)
    return text, manifest_of("csv", text.encode(), len(rows), documents, debits)
