"""An issued invoice in the forms that finance imports, as files.

In: an invoice row. Out: the same bytes for the same invoice, whenever asked. Amounts are copied
from the issued document by the engine, never computed anew.
"""

from collections.abc import Mapping
from pathlib import Path

from metering.export import beancount_text, focus_csv, journal_csv, ubl_xml
from metering.ledger import Invoice as InvoiceDocument
from portal.billing.models import Export, Invoice
from portal.workspace import home, write

FILE_NAMES: Mapping[str, str] = {
    Export.Format.FOCUS: "focus.csv",
    Export.Format.UBL: "invoice.ubl.xml",
    Export.Format.JOURNAL: "journal.csv",
    Export.Format.BEANCOUNT: "journal.beancount",
}


def export_bytes(invoice: Invoice, file_format: str) -> bytes:
    """The invoice in one format."""
    document = InvoiceDocument.from_json(invoice.document)
    match file_format:
        case Export.Format.FOCUS:
            return focus_csv([document])[0].encode()
        case Export.Format.UBL:
            return ubl_xml(document)
        case Export.Format.JOURNAL:
            return journal_csv([document])[0].encode()
        case Export.Format.BEANCOUNT:
            return beancount_text([document]).encode()
    raise ValueError(f"format: got {file_format!r}; wanted one of {', '.join(FILE_NAMES)}")


def export_files(invoice: Invoice) -> dict[str, tuple[str, bytes]]:
    """All formats: (format in words, bytes) by file name."""
    return {
        FILE_NAMES[file_format]: (file_format.label, export_bytes(invoice, file_format))
        for file_format in Export.Format
    }


def export_path(invoice: Invoice, file_format: str) -> Path:
    """Where a format's file lies, written on the first call."""
    path = home() / "documents" / "exports" / invoice.number / FILE_NAMES[file_format]
    if not path.is_file():
        write(path, export_bytes(invoice, file_format))
    return path
