"""Exports: issued documents in the forms that finance imports.

Nouns: FOCUS 1.2 CSV (cost management), UBL 2.1 invoice and credit note (accounts payable),
journal CSV and Beancount text (general ledger), `Manifest` (rows, sums, digest of a file).
Invariants: same documents, same bytes; the billed costs of an invoice sum to its payable; a
journal sums to zero; text that a spreadsheet would run is defused, numbers stay numbers.
Never here: an amount computed anew. Exports copy amounts from issued documents.
"""

from metering.export.beancount import beancount_text
from metering.export.csv_safe import csv_text, safe_cell
from metering.export.focus import FOCUS_COLUMNS, focus_csv, focus_rows
from metering.export.journal import JOURNAL_COLUMNS, journal_csv
from metering.export.manifest import Manifest, manifest
from metering.export.ubl import ubl_xml
from metering.export.validate import Finding, validate

__all__ = [
    "FOCUS_COLUMNS",
    "JOURNAL_COLUMNS",
    "Finding",
    "Manifest",
    "beancount_text",
    "csv_text",
    "focus_csv",
    "focus_rows",
    "journal_csv",
    "manifest",
    "safe_cell",
    "ubl_xml",
    "validate",
]
