"""Exports: issued documents in the forms that finance imports.

Nouns: FOCUS 1.2 and 1.4 CSV and parquet (cost management), UBL 2.1 invoice and credit note and
Factur-X PDF (accounts payable), journal CSV and Beancount text (general ledger), `Manifest`
(rows, sums, digest of a file), `FORMATS` (the table of them all).
Invariants: same documents, same bytes; the billed costs of an invoice sum to its payable; a
journal sums to zero; text that a spreadsheet would run is defused, numbers stay numbers; a file
that is checked is never obeyed.
Never here: an amount computed anew. Exports copy amounts from issued documents.
"""

from metering.export.beancount import beancount_text
from metering.export.csv_safe import csv_text, safe_cell
from metering.export.finding import Finding
from metering.export.focus import focus_csv, focus_rows
from metering.export.focus_columns import FOCUS
from metering.export.formats import FORMATS, Format, carries, export_documents
from metering.export.journal import JOURNAL_COLUMNS, PostedEntry, journal_csv, posted_csv
from metering.export.manifest import Manifest, manifest_of
from metering.export.ubl import ubl_xml
from metering.export.validate import validate

__all__ = [
    "FOCUS",
    "FORMATS",
    "JOURNAL_COLUMNS",
    "Finding",
    "Format",
    "Manifest",
    "PostedEntry",
    "beancount_text",
    "carries",
    "csv_text",
    "export_documents",
    "focus_csv",
    "focus_rows",
    "journal_csv",
    "manifest_of",
    "posted_csv",
    "safe_cell",
    "ubl_xml",
    "validate",
]
