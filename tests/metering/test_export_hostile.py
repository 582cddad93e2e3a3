"""Exports of hostile documents, and hostile files given to `validate`: public reports as rows."""

from __future__ import annotations

import contextlib
import csv
import io
import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyhanko.pdf_utils import embed, generic
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter

from metering import canonical
from metering.__main__ import main
from metering.export import FORMATS, export_documents, validate
from metering.export.cii import cii_xml
from metering.export.facturx import ATTACHED, facturx_pdf
from metering.export.ubl import ubl_xml
from metering.export.xml_text import MAX_XML_BYTES
from metering.ledger import Invoice, credit_note
from metering.refusal import Refusal
from tests.metering.golden_documents import golden_documents
from tests.metering.money_cases import CUSTOMER, ISSUED, bill, contract, invoice

LATER = ISSUED + timedelta(days=40)
FORMULA = "=cmd|' /C calc'!A0"


def credited(number: str = "CN-1") -> list[Invoice]:
    """An invoice of 200.00 and the credit note that takes it back."""
    terms = contract(customer=replace(CUSTOMER, name=FORMULA))
    first = invoice(terms, bill(terms, 1000), "INV-1")
    note = credit_note(first, number=number, series="CN", issued_at=LATER, reason=FORMULA)
    return [first, note]


def rows_of(name: str, documents: list[Invoice]) -> list[dict[str, str]]:
    text = export_documents(name, documents)[0].decode()
    return list(csv.DictReader(io.StringIO(text)))


# Rows 46, 47 and 48 of the research page


@pytest.mark.parametrize("report", ["grafana/grafana#17363", "woocommerce/woocommerce#25379"])
@pytest.mark.parametrize("name", ["focus-1.2", "focus-1.4"])
def test_row_46_a_negative_amount_stays_a_number_and_a_formula_is_text(
    report: str, name: str
) -> None:
    note = [row for row in rows_of(name, credited()) if row["InvoiceId"] == "CN-1"]
    assert {row["BilledCost"] for row in note} == {"-200.00", "0.00"}, report
    assert {row["BillingAccountName"] for row in note} == {"'" + FORMULA}, report
    assert ",-200.00," in export_documents(name, credited())[0].decode()
    assert not any(cell.startswith("'-") for row in note for cell in row.values())


def test_row_46_in_the_journal_a_credit_is_a_column_and_not_a_sign() -> None:
    rows = rows_of("csv", credited())
    amounts = {row["Debit"] for row in rows} | {row["Credit"] for row in rows}
    assert amounts == {"", "200.00"}
    assert all(FORMULA not in row["Text"] or not row["Text"].startswith("=") for row in rows)


@pytest.mark.parametrize("report", ["odoo/odoo#11859"])
@pytest.mark.parametrize("name", [name for name, made in FORMATS.items() if not made.norm])
def test_row_47_no_number_is_lost_in_a_file(name: str, report: str) -> None:
    """A document of zero has no booking; its number is still accounted for."""
    terms = contract()
    numbers = [f"INV-{place}" for place in range(1, 6)]
    documents = [
        invoice(terms, bill(terms, 0 if number == "INV-3" else 100), number) for number in numbers
    ]
    data, record = export_documents(name, documents)
    assert list(record.invoices) == numbers, report
    assert record.invoices["INV-3"] == 0
    if name == "beancount":
        assert b"; INV-3: zero, nothing to book" in data
    if name.startswith("focus"):
        assert {row["InvoiceId"] for row in rows_of(name, documents)} == set(numbers)


@pytest.mark.parametrize("report", ["Dolibarr/dolibarr#29667"])
def test_row_47_series_do_not_meet(report: str) -> None:
    """The same running number in two series is two documents; the same number twice is refused."""
    rows = rows_of("csv", credited())
    assert {row["JournalNumber"] for row in rows} == {"INV:INV-1", "CN:CN-1"}, report
    for name, made in FORMATS.items():
        if made.norm:
            continue
        with pytest.raises(Refusal, match="INV-1 twice"):
            export_documents(name, credited(number="INV-1"))


def test_row_48_a_balance_of_one_cent_off_does_not_hold(tmp_path: Path) -> None:
    """beancount/beancount#411; test_validators.py shows Beancount refusing the same file."""
    good = export_documents("beancount", golden_documents()["G7"][:1])[0].decode()
    assert all("~ 0.00 EUR" in line for line in good.splitlines() if " balance " in line)
    path = tmp_path / "x.beancount"
    path.write_text(good, encoding="utf-8")
    assert validate(path)[1] == []
    path.write_text(good.replace("  11031.30 ~", "  11031.31 ~", 1), encoding="utf-8")
    assert "11031.31 should be 11031.30" in str(validate(path)[1][0])


# Files with broken bytes


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_file_with_broken_bytes_is_answered_and_never_holds(name: str, tmp_path: Path) -> None:
    """Beside its manifest a changed file never holds; without it, the reader still only answers."""
    documents = golden_documents()["G7"]
    data, record = export_documents(name, documents[:1] if FORMATS[name].norm else documents)
    path = tmp_path / FORMATS[name].file_name
    beside = path.with_name(path.name + ".manifest.json")
    draw = random.Random(48)
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 5, 40))):
            place = draw.randrange(len(broken))
            match draw.randrange(3):
                case 0:
                    broken[place] ^= 1 << draw.randrange(8)
                case 1:
                    del broken[place : place + draw.randrange(1, 30)]
                case _:
                    broken[place:place] = draw.randbytes(draw.randrange(1, 10))
        path.write_bytes(broken)
        beside.unlink(missing_ok=True)
        with contextlib.suppress(Refusal):
            validate(path)
        beside.write_bytes(canonical.dumps(record.to_json()))
        with contextlib.suppress(Refusal):
            assert bytes(broken) == data or validate(path)[1]


# XML that asks for more than itself

DECLARED = '<?xml version="1.0" encoding="UTF-8"?>'
LAUGHS = "".join(
    f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' if level else '<!ENTITY l0 "lol">'
    for level in range(12)
)


def hostile(body: str, secret: Path) -> dict[str, bytes]:
    def with_type(inner: str, used: str) -> str:
        return DECLARED + inner + body.split("?>", 1)[1].replace("<cbc:Note>", f"<cbc:Note>{used}")

    inclusion = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{secret}"/>'
    return {
        "billion laughs": with_type(f"<!DOCTYPE x [{LAUGHS}]>", "&l11;").encode(),
        "billion laughs in UTF-16": with_type(f"<!DOCTYPE x [{LAUGHS}]>", "&l11;")
        .replace("UTF-8", "UTF-16")
        .encode("utf-16"),
        "quadratic blow-up": with_type(
            f'<!DOCTYPE x [<!ENTITY a "{"a" * 50_000}">]>', "&a;" * 50_000
        ).encode(),
        "external entity": with_type(
            f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{secret}">]>', "&a;"
        ).encode(),
        "external type": with_type(f'<!DOCTYPE x SYSTEM "file://{secret}">', "").encode(),
        "parameter entity": with_type(
            f'<!DOCTYPE x [<!ENTITY % a SYSTEM "file://{secret}"> %a;]>', ""
        ).encode(),
        "an entity never used": with_type('<!DOCTYPE x [<!ENTITY b "c">]>', "").encode(),
        "an empty type": with_type("<!DOCTYPE x>", "").encode(),
        "inclusion": with_type("", inclusion).encode(),
        "unknown entity": with_type("", "&nowhere;").encode(),
        "unknown encoding": with_type("", "").replace("UTF-8", "EBCDIC-9").encode(),
        "cut off": body.encode()[:-20],
        "nothing": b"",
    }


@pytest.mark.parametrize("kind", list(hostile(DECLARED, Path())))
def test_xml_that_asks_for_more_than_itself_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret text", encoding="utf-8")
    good = ubl_xml(golden_documents()["G1"][0]).decode()
    path = tmp_path / "invoice.xml"
    path.write_text(good, encoding="utf-8")
    assert main(["validate", str(path)]) == 0
    path.write_bytes(hostile(good, secret)[kind])
    assert main(["validate", str(path)]) == 1
    told = capsys.readouterr()
    assert "wanted" in told.out
    assert "the secret text" not in told.out + told.err
    assert "Traceback" not in told.err


def test_xml_that_is_too_long_or_deep_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "invoice.xml"
    path.write_bytes(b"<a>" + b" " * MAX_XML_BYTES + b"</a>")
    assert "at most" in str(validate(path)[1][0])
    path.write_bytes(b"<a>" * 100_000 + b"</a>" * 100_000)
    with pytest.raises(Refusal, match="a UBL Invoice"):
        validate(path)


# The same inside a PDF


def with_attachment(name: str, data: bytes) -> bytes:
    """A Factur-X PDF whose attachment is called otherwise, and a second one called `name`."""
    pdf, _ = facturx_pdf(golden_documents()["G1"][0])
    # pyHanko is only partly typed.
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(pdf))
    file: Any = embed.EmbeddedFileObject.from_file_data(
        writer, data=data, compress=True, mime_type="text/xml"
    )
    spec = embed.FileSpec(file_spec_string=name, file_name=name, embedded_data=file)
    names = writer.root["/Names"]["/EmbeddedFiles"]["/Names"]
    names[0] = generic.pdf_string("factur-y.xml")
    names.append(generic.pdf_string(name))
    names.append(writer.add_object(spec.as_pdf_object()))
    writer.update_container(names)
    writer.update_root()
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


def test_a_pdf_is_judged_by_the_invoice_inside(tmp_path: Path) -> None:
    good = ubl_xml(golden_documents()["G1"][0])
    path = tmp_path / "invoice.pdf"
    laughs = hostile(good.decode(), tmp_path)["billion laughs"]
    for data, told in (
        (laughs, "document type declaration"),
        (b" " * (MAX_XML_BYTES + 1), "attachment"),
    ):
        path.write_bytes(with_attachment(ATTACHED, data))
        assert told in str(validate(path)[1][0])
    path.write_bytes(with_attachment("other.xml", good))
    assert "0 attachments of that name" in str(validate(path)[1][0])
    path.write_bytes(b"%PDF-1.7\nnothing")
    assert "no readable PDF" in str(validate(path)[1][0])


def test_a_wrong_cent_inside_a_pdf_is_found(tmp_path: Path) -> None:
    document = golden_documents()["G7"][0]
    path = tmp_path / "invoice.pdf"
    path.write_bytes(facturx_pdf(document)[0])
    assert validate(path) == ("facturx", [])
    wrong = cii_xml(document).replace(b">1761.30<", b">1761.31<")
    path.write_bytes(with_attachment(ATTACHED, wrong))
    found, findings = validate(path)
    assert found == "facturx"
    assert "BR-CO-17" in " ".join(str(finding) for finding in findings)


def test_parquet_with_floats_or_without_rows_of_ours_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    data, _ = export_documents("parquet", golden_documents()["G7"])
    path.write_bytes(data)
    assert validate(path) == ("parquet", [])
    table = pq.read_table(path)
    assert not [field for field in table.schema if pa.types.is_floating(field.type)]
    place = table.column_names.index("BilledCost")
    rounded = table.set_column(place, "BilledCost", table["BilledCost"].cast(pa.float64()))
    pq.write_table(rounded, path)
    assert "a float has lost the amount" in str(validate(path)[1][0])
    changed = [Decimal("0.01"), *table["BilledCost"].to_pylist()[1:]]
    spoiled = table.set_column(place, "BilledCost", pa.array(changed, pa.decimal128(38, 4)))
    pq.write_table(spoiled, path)
    assert "billed costs sum to" in str(validate(path)[1][0])
