"""The formats an issued document can be exported in: one table for command line and portal.

In: a format's name and issued documents.
Out: the bytes of one file and its manifest.
Never here: how a format is written; each has a module.

To add a format: its module, a row in `FORMATS`, a check in `validate` (docs/extending.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metering.export.beancount import beancount_export
from metering.export.en16931 import norm_document
from metering.export.focus import focus_csv
from metering.export.journal import journal_csv
from metering.export.manifest import Manifest, manifest_of
from metering.export.ubl import ubl_xml
from metering.ledger import Invoice
from metering.refusal import Refusal

__all__ = ["FORMATS", "Format", "carries", "export_documents"]

Documents = Sequence[Invoice]


@dataclass(frozen=True)
class Format:
    """`title` for a person; `file_name` without folder.

    `norm`: an e-invoice of EN 16931, one document per file and only what the norm can carry.
    """

    title: str
    file_name: str
    write: Callable[[Documents], tuple[bytes, Manifest]]
    norm: bool = False


def export_documents(name: str, documents: Documents) -> tuple[bytes, Manifest]:
    """The file's bytes and its manifest. Refuses an unknown format, what a format cannot hold,
    and two documents with one number.
    """
    chosen = FORMATS.get(name)
    if chosen is None:
        raise Refusal("format", repr(name), "one of " + ", ".join(FORMATS))
    if not documents or (chosen.norm and len(documents) != 1):
        wanted = "one document" if chosen.norm else "at least one document"
        raise Refusal("documents", len(documents), wanted, f"{chosen.title}: one file each")
    numbers = Counter(document.number for document in documents)
    twice = sorted(number for number, times in numbers.items() if times > 1)
    if twice:
        raise Refusal(
            "documents", ", ".join(twice) + " twice", "each number once",
            "a document that is in a file twice is booked twice",
        )  # fmt: skip
    return chosen.write(documents)


def carries(name: str, document: Invoice) -> bool:
    """Whether a format can hold the document; `export_documents` says what stands against it."""
    if not FORMATS[name].norm:
        return True
    try:
        norm_document(document)
    except Refusal:
        return False
    return True


def _text(written: tuple[str, Manifest]) -> tuple[bytes, Manifest]:
    return written[0].encode(), written[1]


def _ubl(documents: Documents) -> tuple[bytes, Manifest]:
    data = ubl_xml(documents[0])
    lines = data.count(b"<cac:InvoiceLine>") + data.count(b"<cac:CreditNoteLine>")
    return data, manifest_of("ubl", data, lines, documents)


def _facturx(documents: Documents) -> tuple[bytes, Manifest]:
    # Typst and pyHanko are loaded only when a PDF is asked for.
    from metering.export.facturx import facturx_pdf

    data, lines = facturx_pdf(documents[0])
    return data, manifest_of("facturx", data, lines, documents)


def _parquet(documents: Documents) -> tuple[bytes, Manifest]:
    # pyarrow is loaded only when parquet is asked for.
    from metering.export.parquet import focus_parquet

    return focus_parquet(documents)


FORMATS: Mapping[str, Format] = {
    "focus-1.2": Format("FOCUS 1.2 CSV", "focus.csv", lambda docs: _text(focus_csv(docs, "1.2"))),
    "focus-1.4": Format(
        "FOCUS 1.4 CSV", "focus-1.4.csv", lambda docs: _text(focus_csv(docs, "1.4"))
    ),
    "parquet": Format("FOCUS 1.4 parquet", "focus.parquet", _parquet),
    "ubl": Format("UBL 2.1 (EN 16931)", "invoice.ubl.xml", _ubl, norm=True),
    "facturx": Format("Factur-X PDF (EN 16931)", "invoice.pdf", _facturx, norm=True),
    "beancount": Format(
        "Beancount", "journal.beancount", lambda docs: _text(beancount_export(docs))
    ),
    "csv": Format("journal CSV", "journal.csv", lambda docs: _text(journal_csv(docs))),
}
