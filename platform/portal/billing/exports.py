"""An issued document in the forms that finance imports, as files.

In: an invoice row. Out: the same bytes for the same document, whenever asked. The engine writes
them (`metering.export.FORMATS`); here is only which of its formats the portal keeps and under
which name. Amounts are copied from the issued document, never computed anew.
"""

from collections.abc import Mapping
from pathlib import Path

from metering.export import FORMATS, Manifest, carries, export_documents
from metering.ledger import Invoice as InvoiceDocument
from portal.accounts.access import Actor
from portal.billing.models import Export, Invoice
from portal.billing.services import export_write
from portal.workspace import home, write

# The engine's name of a format that the portal's rows call otherwise.
_ENGINE_NAMES: Mapping[str, str] = {
    Export.Format.FOCUS: "focus-1.2",
    Export.Format.JOURNAL: "csv",
}
FILE_NAMES: Mapping[str, str] = {
    file_format: FORMATS[_ENGINE_NAMES.get(file_format, file_format.value)].file_name
    for file_format in Export.Format
}

LINES_HEADER = (
    "invoice", "line", "kind", "model", "system", "volume_samples", "savings_point",
    "savings_bound", "counterfactual", "billed_savings", "amount_unrounded", "amount",
    "rounding_residue", "currency", "reason", "baseline_id", "uplift_id",
)  # fmt: skip


def line_rows(invoice: Invoice) -> list[tuple[object, ...]]:
    """The lines of a document as it is frozen, every digit, in the order of `LINES_HEADER`."""
    return [
        (
            invoice.number, line["line_id"], fee["kind"], fee["model"], fee["system"],
            fee["volume"], fee["point"], fee["bound"], fee["counterfactual"],
            fee["billed_savings"], fee["amount_unrounded"], fee["amount"], fee["residue"],
            invoice.currency, fee["reason"], fee["baseline_id"], fee["uplift_id"],
        )
        for line in invoice.document["lines"]
        for fee in (line["fee_line"],)
    ]  # fmt: skip


def export_formats(invoice: Invoice) -> list[Export.Format]:
    """The formats that can hold this document: an e-invoice has two decimals at most."""
    document = InvoiceDocument.from_json(invoice.document)
    return [
        file_format
        for file_format in Export.Format
        if carries(_ENGINE_NAMES.get(file_format, file_format.value), document)
    ]


def export_bytes(invoice: Invoice, file_format: str) -> bytes:
    """The document in one format. ValueError for an unknown one, or one that cannot hold it."""
    return export_made(invoice, file_format)[0]


def export_made(invoice: Invoice, file_format: str) -> tuple[bytes, Manifest]:
    """The document in one format, and the manifest of those bytes; errors as `export_bytes`."""
    if file_format not in FILE_NAMES:
        raise ValueError(f"format: got {file_format!r}; wanted one of {', '.join(FILE_NAMES)}")
    document = InvoiceDocument.from_json(invoice.document)
    return export_documents(_ENGINE_NAMES.get(file_format, file_format), [document])


def export_files(invoice: Invoice) -> dict[str, tuple[str, bytes]]:
    """All formats that can hold it: (format in words, bytes) by file name."""
    return {
        FILE_NAMES[file_format]: (file_format.label, export_bytes(invoice, file_format))
        for file_format in export_formats(invoice)
    }


def export_path(invoice: Invoice, file_format: str) -> Path:
    """Where a format's file lies, written on the first call."""
    path = home() / "documents" / "exports" / invoice.number / FILE_NAMES[file_format]
    if not path.is_file():
        write(path, export_bytes(invoice, file_format))
    return path


def exports_missing(invoice: Invoice) -> list[Export.Format]:
    """Formats that can hold the document and that nobody has written yet."""
    written = set(invoice.exports.values_list("file_format", flat=True))
    return [one for one in export_formats(invoice) if one.value not in written]


def exports_write(*, actor: Actor, invoice: Invoice) -> list[Export]:
    """Write every format that is missing, with its row; a second call writes nothing."""
    return [
        export_write(
            actor=actor,
            invoice=invoice,
            file_format=file_format,
            path=export_path(invoice, file_format),
        )
        for file_format in exports_missing(invoice)
    ]
