"""Factur-X: the invoice as a page for people, with the same invoice as XML inside for machines.

In: one issued document; or the bytes of such a PDF.
Out: PDF/A-3b bytes made by Typst, which attaches the CII document as `factur-x.xml`, with the
Factur-X properties in the metadata; or the XML taken out again.
Never here: an amount that is not in the XML, a font or a file from outside, the present time.

Typst writes the attachment itself but no metadata of other schemas (typst/typst#5667), so those
come in as one more revision. The same document gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import typst
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.pdf_utils.reader import PdfFileReader

from metering.contract import Party
from metering.decimals import exact, to_text
from metering.export.cii import cii_xml
from metering.export.en16931 import NormDocument, norm_document
from metering.export.xml_text import MAX_XML_BYTES
from metering.ledger import Invoice
from metering.money import quantize
from metering.refusal import Refusal

__all__ = ["ATTACHED", "embedded_xml", "facturx_pdf"]

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "reports"
ATTACHED = "factur-x.xml"
_TITLES = {"invoice": "Invoice", "release": "Invoice", "credit_note": "Credit note"}
_FX = "urn:factur-x:pdfa:CrossIndustryDocument:invoice:1p0#"
_PROPERTIES = {
    "DocumentFileName": (ATTACHED, "name of the embedded XML invoice file"),
    "DocumentType": ("INVOICE", "INVOICE"),
    "Version": ("1.0", "version of the Factur-X standard the XML invoice file is written in"),
    "ConformanceLevel": ("EN 16931", "conformance level of the embedded Factur-X data"),
}
_SCHEMAS_END, _RDF_END = b"</rdf:Bag></pdfaExtension:schemas>", b"</rdf:RDF>"


def facturx_pdf(document: Invoice) -> tuple[bytes, int]:
    """PDF bytes and the number of lines. Refuses what the norm cannot carry."""
    shown = norm_document(document)
    issued = document.issued_on
    with exact():
        data = json.dumps(_view(document, shown), ensure_ascii=False, sort_keys=True)
    plain = typst.compile(
        TEMPLATES / "invoice.typ",
        None,
        root=TEMPLATES,
        format="pdf",
        ignore_system_fonts=True,
        sys_inputs={
            "data": data, "xml": cii_xml(document).decode(),
            "year": str(issued.year), "month": str(issued.month), "day": str(issued.day),
        },
        pdf_standards="a-3b",
        timestamp=document.issued_at.astimezone(UTC).replace(microsecond=0),
    )  # fmt: skip
    return _with_metadata(plain), len(shown.lines)


def embedded_xml(pdf: bytes) -> bytes:
    """The attached invoice. Refuses a PDF without exactly one `factur-x.xml`."""
    try:
        # pyHanko is only partly typed.
        root: Any = PdfFileReader(io.BytesIO(pdf)).root
        names = root["/Names"]["/EmbeddedFiles"]["/Names"] if "/Names" in root else []
        found = [
            _unpacked(names[place + 1]["/EF"]["/F"])
            for place in range(0, len(names), 2)
            if str(names[place]) == ATTACHED
        ]
    except Refusal:
        raise
    except (PdfError, KeyError, IndexError, ValueError, TypeError, zlib.error) as error:
        raise Refusal("file", "bytes that are no readable PDF", "a PDF", str(error)) from error
    if len(found) != 1:
        raise Refusal("file", f"{len(found)} attachments of that name", f"one {ATTACHED}")
    return found[0]


def _unpacked(stream: Any) -> bytes:
    """The attachment's bytes, never more than an e-invoice may have, whatever they unpack to."""
    packed = bytes(stream.encoded_data)
    kind = str(stream.get("/Filter", "none"))
    if kind not in ("none", "/FlateDecode"):
        raise Refusal("attachment", kind, "no filter, or /FlateDecode")
    data = packed
    if kind == "/FlateDecode":
        data = zlib.decompressobj().decompress(packed, MAX_XML_BYTES + 1)
    if len(data) > MAX_XML_BYTES:
        raise Refusal("attachment", f"more than {MAX_XML_BYTES} bytes", "a smaller one")
    return data


def _view(document: Invoice, shown: NormDocument) -> dict[str, object]:
    """What the template shows: the amounts of the XML, grouped for reading."""
    currency = document.currency
    title = _TITLES[document.kind]
    period = document.period
    facts = [
        ("Issued on", document.issued_on.isoformat()),
        ("Due on", document.due_on.isoformat()),
        ("Period", f"{period.local_start.date()} to {period.local_last_day} ({period.zone})"),
        ("Contract", f"{document.contract_id} version {document.contract_version}"),
        ("Auditor", document.auditor),
    ]
    if document.corrects is not None:
        facts.append(("Belongs to", document.corrects))
    totals = [("Sum of lines", _amount(shown.line_total, currency))]
    if shown.withheld:
        totals.append((shown.withheld_reason, _amount(-shown.withheld, currency)))
    totals.append(("Without tax", _amount(shown.net, currency)))
    for group in shown.tax_groups:
        label = f"VAT {_rate(group.category, group.rate)} on {_amount(group.taxable, currency)}"
        totals.append((f"{label}; {group.reason}" if group.reason else label,
                       _amount(group.tax, currency)))  # fmt: skip
    payable = "To be credited" if shown.credit else "Payable"
    return {
        "title": title,
        "number": document.number,
        "currency": currency,
        "seller": _party(document.provider),
        "buyer": _party(document.customer),
        "facts": facts,
        "lines": [
            {
                "id": line.line_id, "name": line.name, "description": line.description,
                "properties": line.properties, "tax": _rate(line.category, line.rate),
                "amount": _amount(line.amount, currency),
            }
            for line in shown.lines
        ],
        "totals": totals,
        "payable": (f"{payable}, {currency}", _amount(shown.payable, currency)),
        "notes": [*document.notes, *document.reasons],
        "digests": [
            ("Document", document.digest), ("Evidence", document.evidence_digest),
            ("Contract", document.contract_digest), ("Plan", document.plan_digest),
            ("Method", document.method_version),
        ],
    }  # fmt: skip


def _party(party: Party) -> dict[str, object]:
    town = " ".join(part for part in (party.postal_code, party.city) if part)
    lines = [party.street, town, party.country, party.tax_id and f"VAT {party.tax_id}"]
    return {"name": party.name, "lines": [line for line in lines if line]}


def _rate(category: str, rate: Decimal) -> str:
    return category if category == "O" else f"{category} {to_text((rate * 100).normalize())} %"


def _amount(value: Decimal, currency: str) -> str:
    return f"{quantize(value, currency) + 0:,f}".replace("-", "\u2212")


def _with_metadata(plain: bytes) -> bytes:
    """One more revision whose metadata also has the Factur-X properties and their schema."""
    writer: Any = _Writer(io.BytesIO(plain))
    identity = hashlib.sha256(b"ignition-factur-x" + plain).digest()[:16]
    # pyHanko draws a random second half of the file id; ours follows from the content.
    writer._document_id[1] = generic.ByteStringObject(identity)
    packet = bytes(writer.root["/Metadata"].data)
    if packet.count(_SCHEMAS_END) != 1 or packet.count(_RDF_END) != 1:
        raise ValueError(
            "the metadata that this Typst writes has another shape; see _with_metadata"
        )
    packet = packet.replace(_SCHEMAS_END, _schema() + _SCHEMAS_END)
    packet = packet.replace(_RDF_END, _values() + _RDF_END)
    # PDF/A wants metadata that can be read without unpacking a stream.
    stream = generic.StreamObject(
        {
            generic.pdf_name("/Type"): generic.pdf_name("/Metadata"),
            generic.pdf_name("/Subtype"): generic.pdf_name("/XML"),
        },
        stream_data=packet,
    )
    writer.root["/Metadata"] = writer.add_object(stream)
    writer.update_root()
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


class _Writer(IncrementalPdfFileWriter):
    """Writes one more revision and leaves the document's dates as Typst set them."""

    def _update_meta(self) -> None:
        """pyHanko would put the present time here; the same document must give the same bytes."""


def _schema() -> bytes:
    """The description of the Factur-X properties that PDF/A asks for."""
    properties = "".join(
        '<rdf:li rdf:parseType="Resource"><pdfaProperty:category>external</pdfaProperty:category>'
        f"<pdfaProperty:description>{meaning}</pdfaProperty:description>"
        f"<pdfaProperty:name>{name}</pdfaProperty:name>"
        "<pdfaProperty:valueType>Text</pdfaProperty:valueType></rdf:li>"
        for name, (_, meaning) in _PROPERTIES.items()
    )
    return (
        '<rdf:li rdf:parseType="Resource">'
        "<pdfaSchema:schema>Factur-X PDFA Extension Schema</pdfaSchema:schema>"
        f"<pdfaSchema:namespaceURI>{_FX}</pdfaSchema:namespaceURI>"
        "<pdfaSchema:prefix>fx</pdfaSchema:prefix><pdfaSchema:property><rdf:Seq>"
        f"{properties}</rdf:Seq></pdfaSchema:property></rdf:li>"
    ).encode()


def _values() -> bytes:
    values = "".join(f"<fx:{name}>{value}</fx:{name}>" for name, (value, _) in _PROPERTIES.items())
    return f'<rdf:Description rdf:about="" xmlns:fx="{_FX}">{values}</rdf:Description>'.encode()
