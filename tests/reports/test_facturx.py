"""The Factur-X page: what people read is what machines read, and a signature covers both."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.fields import SigFieldSpec, append_signature_field

from metering.contract import Contract
from metering.export.facturx import embedded_xml, facturx_pdf
from metering.ledger import Invoice, credit_note
from reports import pdfsign
from reports.errors import ReportError
from reports.pdf import FIELD_BOXES
from tests.metering.money_cases import CUSTOMER, ISSUED, bill, contract, invoice
from tests.reports.parties import Sides

RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
FX = "urn:factur-x:pdfa:CrossIndustryDocument:invoice:1p0#"
EVIL = [
    "#panic(1)", '#read("/etc/passwd")', '"; #read("report.typ")', "*bold* _it_ $x^2$ <label>",
    "</ram:Name><ram:Name>x", "<!DOCTYPE x>", "/* // comment",
]  # fmt: skip


def terms(**changes: object) -> Contract:
    return contract(**{"holdback": Decimal("0.10"), "vat": Decimal("0.19"), **changes})


def issued(**changes: object) -> Invoice:
    """G7: 10,300.00, holdback 1,030.00, VAT 19 %, payable 11,031.30."""
    used = terms(**changes)
    return invoice(used, bill(used, 51500), "INV-2026-0007")


@pytest.fixture(scope="module")
def page() -> bytes:
    return facturx_pdf(issued())[0]


@pytest.fixture(scope="module")
def signed(page: bytes, sides: Sides) -> bytes:
    """The page with both fields, certified and countersigned like a report."""
    # pyHanko is only partly typed.
    writer: Any = IncrementalPdfFileWriter(BytesIO(page))
    for name, box in FIELD_BOXES.items():
        append_signature_field(writer, SigFieldSpec(name, on_page=0, box=box))
    target = BytesIO()
    writer.write(target)
    return pdfsign.countersign(pdfsign.certify(target.getvalue(), sides.platform), sides.auditor)


def words(pdf: bytes, folder: Path) -> str:
    (folder / "words.pdf").write_bytes(pdf)
    command = ["pdftotext", "-layout", str(folder / "words.pdf"), "-"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return " ".join(shown.split())


def test_people_read_the_amounts_that_machines_read(page: bytes, tmp_path: Path) -> None:
    text = words(page, tmp_path)
    for part in (
        "Invoice INV-2026-0007", "2026-12-01", "2026-12-31", "Ignition GmbH", "DE123456789",
        "Example Inference AG", "Sum of lines 10,300.00", "Holdback until the audit \u22121,030.00",
        "Without tax 9,270.00", "VAT S 19 % on 9,270.00 1,761.30", "Payable, EUR 11,031.30",
        "short-run plan", "e" * 64,
    ):  # fmt: skip
        assert part in text
    amounts = {
        node.text
        for node in etree.fromstring(embedded_xml(page)).iter()
        if str(node.tag).endswith("Amount")
    }
    assert amounts == {"10300.00", "1030.00", "9270.00", "1761.30", "11031.30"}
    assert all(f"{Decimal(str(amount)):,}" in text for amount in amounts)


def test_a_credit_note_is_called_one(tmp_path: Path) -> None:
    note = credit_note(
        issued(), number="CN-1", series="CN", issued_at=ISSUED + timedelta(days=40),
        reason="measured again",
    )  # fmt: skip
    text = words(facturx_pdf(note)[0], tmp_path)
    for part in ("Credit note CN-1", "Belongs to INV-2026-0007", "To be credited, EUR 11,031.30"):
        assert part in text


def test_text_is_printed_and_never_run(tmp_path: Path) -> None:
    for evil in EVIL:
        pdf, _ = facturx_pdf(issued(customer=replace(CUSTOMER, name=evil, city=evil)))
        assert words(pdf, tmp_path).count(evil) == 2
        root = etree.fromstring(embedded_xml(pdf))
        assert evil in [node.text for node in root.iter()]


def test_the_metadata_says_factur_x_and_explains_itself(page: bytes) -> None:
    root: Any = PdfFileReader(BytesIO(page)).root
    packet = etree.fromstring(root["/Metadata"].data)
    said = {
        etree.QName(node).localname: node.text
        for node in packet.iter()
        if isinstance(node.tag, str) and etree.QName(node).namespace == FX
    }
    assert said == {
        "DocumentFileName": "factur-x.xml", "DocumentType": "INVOICE", "Version": "1.0",
        "ConformanceLevel": "EN 16931",
    }  # fmt: skip
    schemas = [node for node in packet.iter(f"{RDF}li") if FX in [child.text for child in node]]
    assert len(schemas) == 1
    described = {node.text for node in schemas[0].iter() if str(node.tag).endswith("}name")}
    assert described == set(said)
    assert [node.text for node in packet.iter("{http://www.aiim.org/pdfa/ns/id/}part")] == ["3"]
    assert "/Filter" not in root["/Metadata"]
    attached = root["/AF"][0]
    assert attached["/AFRelationship"] == "/Alternative"
    assert attached["/EF"]["/F"]["/Subtype"] == "/text/xml"


def test_a_sound_pdf_with_its_own_fonts(page: bytes, tmp_path: Path) -> None:
    path = tmp_path / "page.pdf"
    path.write_bytes(page)
    listed = subprocess.run(["pdffonts", str(path)], capture_output=True, text=True, check=True)
    fonts = listed.stdout.splitlines()[2:]
    assert fonts
    assert all(line.split()[-5] == "yes" for line in fonts)
    checked = subprocess.run(["qpdf", "--check", str(path)], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert facturx_pdf(issued())[0] == page


def test_signatures_hold_and_the_invoice_comes_out_unchanged(
    page: bytes, signed: bytes, sides: Sides, tmp_path: Path
) -> None:
    found = pdfsign.check(signed, sides.trust.roots)
    assert [item.field for item in found] == ["Platform", "Auditor"]
    assert embedded_xml(signed) == embedded_xml(page)
    path = tmp_path / "signed.pdf"
    path.write_bytes(signed)
    told = subprocess.run(["pdfsig", str(path)], capture_output=True, text=True, check=False).stdout
    assert told.count("Signature is Valid.") == 2


def test_a_signature_covers_the_invoice_inside(signed: bytes, sides: Sides) -> None:
    """Another attachment under the same signatures does not pass."""
    root: Any = PdfFileReader(BytesIO(signed)).root
    packed = bytes(root["/AF"][0]["/EF"]["/F"].encoded_data)
    assert signed.count(packed) == 1
    place = signed.index(packed) + len(packed) // 2
    bad = signed[:place] + bytes([signed[place] ^ 1]) + signed[place + 1 :]
    with pytest.raises(ReportError, match="bytes were changed"):
        pdfsign.check(bad, sides.trust.roots)
