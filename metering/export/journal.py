"""The journal as a debit and credit CSV, the shape that general ledgers import.

In: issued documents.
Out: one row per booking, debit and credit in columns of their own, and a manifest.
Never here: a file that does not balance: the import is all or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.export.csv_safe import csv_text
from metering.export.manifest import Manifest, manifest_of
from metering.ledger import Invoice, journal

__all__ = ["JOURNAL_COLUMNS", "journal_csv"]

JOURNAL_COLUMNS = (
    "Date", "JournalNumber", "Account", "Debit", "Credit", "Currency", "DocumentNumber",
    "CostCentre", "Text",
)  # fmt: skip


def journal_csv(documents: Sequence[Invoice]) -> tuple[str, Manifest]:
    """CSV text and manifest; `sums` in the manifest are the debits per currency."""
    rows: list[list[str]] = []
    debits: dict[str, Decimal] = {}
    for document in documents:
        for entry in journal(document):
            debit = to_text(entry.debit) if entry.debit is not None else ""
            credit = to_text(entry.credit) if entry.credit is not None else ""
            if entry.debit is not None:
                with exact():
                    before = debits.get(entry.currency, Decimal(0))
                    debits[entry.currency] = before + entry.debit
            rows.append(
                [
                    entry.booked_on.isoformat(), f"{document.series}:{document.number}",
                    entry.account, debit, credit, entry.currency, entry.document,
                    document.contract_id, entry.text,
                ]
            )  # fmt: skip
    text = csv_text(JOURNAL_COLUMNS, rows)
    return text, manifest_of("csv", text.encode(), len(rows), documents, debits)
