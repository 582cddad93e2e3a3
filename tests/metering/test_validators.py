"""Exports of every golden document against the validators that others wrote.

Each validator also sees corrupted copies and must refuse them: a tool that is missing, that looks
at nothing or that lets everything pass breaks the build. Cents are proved by our own checks
(test_export.py): one row here shows the slack that makes them needed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import typst
from facturx import get_xml_from_pdf
from hypothesis import given, settings

from metering.export import export_documents, validate
from metering.export.cii import cii_xml
from metering.export.facturx import embedded_xml
from metering.export.ubl import ubl_xml
from metering.ledger import Invoice, journal
from metering.refusal import Refusal
from tests.metering import outside_rules
from tests.metering.drawn_documents import documents
from tests.metering.golden_documents import CASES, WITHOUT, golden_documents, in_category
from tests.metering.money_cases import UNHURRIED, bill, contract, invoice

WRITERS: dict[str, Callable[[Invoice], bytes]] = {"ubl": ubl_xml, "cii": cii_xml}
Spoil = Callable[[str], str]

golden = cache(golden_documents)


def with_documents() -> list[str]:
    return [name for name in CASES if name not in WITHOUT]


def every_document() -> list[Invoice]:
    return [document for documents in golden().values() for document in documents]


def in_norm(documents: list[Invoice]) -> list[Invoice]:
    """Those that EN 16931 can carry: it allows two decimals at most."""
    return [document for document in documents if document.currency != "KWD"]


def text_of(name: str) -> str:
    return export_documents(name, every_document())[0].decode()


def test_every_golden_case_is_exported_or_has_no_fee() -> None:
    assert all(golden().values())
    kinds = {document.kind for document in every_document()}
    assert kinds == {"invoice", "release", "credit_note"}
    fees = [
        case["expect"]["fee"] for name, case in CASES.items()
        if name not in WITHOUT and "fee" in case["expect"]
    ]  # fmt: skip
    billed = [
        str(documents[0].fee) for name, documents in golden().items()
        if "fee" in CASES[name]["expect"]
    ]  # fmt: skip
    assert billed == fees


# EN 16931


@pytest.mark.parametrize("syntax", list(WRITERS))
@pytest.mark.parametrize("case", with_documents())
def test_golden_documents_keep_the_norm(case: str, syntax: str) -> None:
    for document in in_norm(golden()[case]):
        data = WRITERS[syntax](document)
        assert outside_rules.schema(data).against == [], document.number
        said = outside_rules.en16931(syntax, data)
        assert said.against == [], document.number
        assert said.looked > 50


@settings(UNHURRIED, max_examples=12)
@given(documents())
def test_any_document_keeps_the_norm(found: list[Invoice]) -> None:
    for document in in_norm(found):
        for syntax, write in WRITERS.items():
            assert outside_rules.en16931(syntax, write(document)).against == []


@pytest.mark.parametrize("syntax", list(WRITERS))
@pytest.mark.parametrize("category", ["Z", "E", "AE", "O", "G", "K"])
def test_other_tax_categories_keep_the_norm(category: str, syntax: str) -> None:
    terms = contract()
    document = in_category(invoice(terms, bill(terms, 51500)), category)
    data = WRITERS[syntax](document)
    assert outside_rules.schema(data).against == []
    assert outside_rules.en16931(syntax, data).against == []


def test_a_currency_that_the_norm_cannot_carry_is_refused() -> None:
    dinars = [document for document in every_document() if document.currency == "KWD"]
    assert dinars
    for write in WRITERS.values():
        with pytest.raises(Refusal, match="BR-DEC"):
            write(dinars[0])


@pytest.mark.parametrize(
    ("syntax", "spoil", "rule"),
    [
        ("ubl", lambda t: t.replace(">1761.30<", ">1771.30<"), "BR-CO-17"),
        ("ubl", lambda t: t.replace(">11031.30<", ">11041.30<", 1), "BR-CO-15"),
        ("ubl", lambda t: t.replace(">10300.00</cbc:Line", ">10301.00</cbc:Line", 1), "BR-CO-10"),
        ("ubl", lambda t: t.replace('ID="EUR"', 'ID="EURO"', 1), "BR-CL-03"),
        ("ubl", lambda t: re.sub("<cbc:ID>INV-[0-9]+</cbc:ID>", "", t, count=1), "BR-02"),
        ("ubl", lambda t: t.replace("DE123456789", "123456789", 1), "BR-CO-09"),
        ("cii", lambda t: t.replace(">1761.30<", ">1771.30<"), "BR-S-09"),
        ("cii", lambda t: t.replace(">11031.30</ram:Grand", ">11032.30</ram:Grand"), "BR-CO-15"),
        ("cii", lambda t: t.replace(">380<", ">999<"), "TypeCode"),
        ("cii", lambda t: t.replace("<ram:Name>Ignition GmbH</ram:Name>", ""), "BR-06"),
    ],
)  # fmt: skip
def test_a_corrupted_invoice_breaks_the_norm(syntax: str, spoil: Spoil, rule: str) -> None:
    good = WRITERS[syntax](golden()["G7"][0]).decode()
    bad = spoil(good)
    assert bad != good
    said = " | ".join(outside_rules.en16931(syntax, bad.encode()).against)
    assert rule in said


def test_the_schemas_refuse_an_element_out_of_order() -> None:
    for write, name in ((ubl_xml, "cbc:IssueDate"), (cii_xml, "ram:TypeCode")):
        good = write(golden()["G7"][0]).decode()
        start = good.index(f"<{name}>")
        end = good.index(f"</{name}>", start) + len(f"</{name}>")
        moved = good[:start] + good[end:]
        place = moved.rindex("</")
        bad = moved[:place] + good[start:end] + moved[place:]
        assert outside_rules.schema(bad.encode()).against, name


def test_the_public_rules_have_slack_that_ours_do_not_have(tmp_path: Path) -> None:
    good = ubl_xml(golden()["G7"][0]).decode()
    one_cent_more = good.replace(">1761.30<", ">1761.31<").replace(">11031.30<", ">11031.31<")
    assert outside_rules.en16931("ubl", one_cent_more.encode()).against == []
    path = tmp_path / "invoice.xml"
    path.write_text(one_cent_more, encoding="utf-8")
    assert "BR-CO-17" in " ".join(str(finding) for finding in validate(path)[1])


# Factur-X


def test_every_pdf_holds_the_xml_that_keeps_the_norm() -> None:
    """factur-x takes the XML out of each and checks it against its schema."""
    documents = in_norm(every_document())
    for document in documents:
        pdf, record = export_documents("facturx", [document])
        name, xml = get_xml_from_pdf(io.BytesIO(pdf), check_xsd=True, check_schematron=False)
        assert name == "factur-x.xml"
        assert bytes(xml) == embedded_xml(pdf) == cii_xml(document)
        assert record.invoices == {document.number: document.payable}
    assert len(documents) > 40


@pytest.mark.parametrize(
    "spoil",
    [
        lambda xml: xml.replace("<ram:InvoiceCurrencyCode>EUR</ram:InvoiceCurrencyCode>", ""),
        lambda xml: xml.replace(">11031.30<", ">eleven thousand<"),
        lambda xml: "<a/>",
    ],
    ids=["element lost", "no number", "another document"],
)
def test_factur_x_refuses_a_pdf_with_a_corrupted_invoice(spoil: Spoil) -> None:
    """It answers with nothing instead of an error, which is why names are compared above."""

    def taken_out(xml: str) -> tuple[object, object]:
        page = b'#pdf.attach("factur-x.xml", bytes(sys.inputs.xml), mime-type: "text/xml")'
        pdf = typst.compile(page, format="pdf", sys_inputs={"xml": xml})
        name, found = get_xml_from_pdf(io.BytesIO(pdf), check_xsd=True, check_schematron=False)
        return name, found

    good = cii_xml(golden()["G7"][0]).decode()
    assert taken_out(good)[0] == "factur-x.xml"
    assert spoil(good) != good
    assert taken_out(spoil(good)) == (False, False)


# Journals


def test_bean_check_accepts_the_journal_of_all_documents(tmp_path: Path) -> None:
    path = tmp_path / "all.beancount"
    path.write_text(text_of("beancount"), encoding="utf-8")
    said = outside_rules.bean_check(path)
    assert said.against == []
    assert said.looked == sum(bool(journal(document)) for document in every_document())


@pytest.mark.parametrize(
    ("report", "spoil", "told"),
    [
        ("beancount/beancount#411", lambda t: t.replace("  11031.30 ~", "  11031.31 ~", 1),
         "Balance failed"),
        ("one cent", lambda t: t.replace("-1761.30 EUR", "-1761.31 EUR", 1), "balance"),
        ("half a cent", lambda t: t.replace("-1761.30 EUR", "-1761.305 EUR", 1), "balance"),
        ("an account nobody opened", lambda t: t.replace("open Liabilities:VAT", "open Assets:X"),
         "Liabilities:VAT"),
    ],
)  # fmt: skip
def test_bean_check_refuses_a_corrupted_journal(
    tmp_path: Path, report: str, spoil: Spoil, told: str
) -> None:
    good = export_documents("beancount", golden()["G7"][:1])[0].decode()
    bad = spoil(good)
    assert bad != good, report
    path = tmp_path / "bad.beancount"
    path.write_text(bad, encoding="utf-8")
    assert told in " ".join(outside_rules.bean_check(path).against), report


def test_without_our_tolerances_bean_check_lets_a_cent_pass(tmp_path: Path) -> None:
    """beancount/beancount#411: why every balance says `~ 0.00`."""
    good = export_documents("beancount", golden()["G7"][:1])[0].decode()
    bad = good.replace("  11031.30 ~", "  11031.31 ~", 1)
    assert bad != good
    path = tmp_path / "loose.beancount"
    path.write_text(
        bad.replace(" ~ 0.00", "").replace('option "inferred_tolerance_default" "*:0"', ""),
        encoding="utf-8",
    )
    assert outside_rules.bean_check(path).against == []


def test_hledger_accepts_the_debits_and_credits_of_all_documents(tmp_path: Path) -> None:
    path = tmp_path / "all.journal"
    path.write_text(outside_rules.as_hledger(text_of("csv")), encoding="utf-8")
    said = outside_rules.hledger(path)
    assert said.against == []
    assert said.looked == sum(bool(journal(document)) for document in every_document())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda t: t.replace(",1761.30,", ",1761.31,", 1), "sum should be 0 but is"),
        (lambda t: t.replace(",1030.00,,", ",,1030.00,", 1), "sum should be 0 but is"),
        (lambda t: t.replace(t.splitlines()[1] + "\n", "", 1), "could not balance"),
    ],
    ids=["one cent", "wrong side", "row lost"],
)
def test_hledger_refuses_corrupted_debits_and_credits(
    tmp_path: Path, spoil: Spoil, told: str
) -> None:
    good = export_documents("csv", golden()["G7"][:1])[0].decode()
    bad = spoil(good)
    assert bad != good
    path = tmp_path / "bad.journal"
    path.write_text(outside_rules.as_hledger(bad), encoding="utf-8")
    assert told in " ".join(outside_rules.hledger(path).against)


# FOCUS


@pytest.mark.parametrize("name", ["focus-1.4", "parquet"])
def test_focus_toolkit_accepts_all_documents(tmp_path: Path, name: str) -> None:
    data, record = export_documents(name, every_document())
    path = tmp_path / ("all.csv" if name == "focus-1.4" else "all.parquet")
    path.write_bytes(data)
    assert outside_rules.focus_1_4(path).against == []
    assert record.rows > len(every_document())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda t: t.replace(",Usage,", ",Usages,", 1), "ChargeCategory"),
        (lambda t: t.replace(",EUR,", ",EURO,", 1), "BillingCurrency"),
        (lambda t: t.replace(",10300.00,", ",10300.00 EUR,", 1), "invalid value"),
        (lambda t: t.replace("Z,", ",", 1), "bad_datetime"),
        (lambda t: t.replace("ServiceProviderName", "ProviderName", 1), "ServiceProviderName"),
        (lambda t: t.replace("Verified EUR", "", 1), "PricingUnit"),
    ],
    ids=["category", "currency", "number", "time", "column", "unit"],
)
def test_focus_toolkit_refuses_a_corrupted_file(tmp_path: Path, spoil: Spoil, told: str) -> None:
    good = export_documents("focus-1.4", golden()["G7"][:1])[0].decode()
    bad = spoil(good)
    assert bad != good
    path = tmp_path / "bad.csv"
    path.write_text(bad, encoding="utf-8")
    assert told in " ".join(outside_rules.focus_1_4(path).against)


def test_focus_1_2_taken_to_1_4_by_others_is_our_1_4(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(text_of("focus-1.2"), encoding="utf-8")
    said, theirs = outside_rules.focus_1_2(path, tmp_path / "out")
    assert said.against == []
    ours = list(csv.DictReader(io.StringIO(text_of("focus-1.4"))))
    assert len(theirs) == len(ours) == said.looked
    shared = (set(ours[0]) & set(theirs[0])) - {"HostProviderName", "InvoiceDetailId"}
    assert {"BilledCost", "ChargeClass", "ServiceProviderName"} <= shared
    for row, made in zip(ours, theirs, strict=True):
        assert {name: row[name] for name in shared} == {name: made[name] for name in shared}
    sums: dict[str, Decimal] = {}
    for made in theirs:
        sums[made["InvoiceId"]] = sums.get(made["InvoiceId"], Decimal(0)) + Decimal(
            made["BilledCost"]
        )
    assert sums == {document.number: document.payable for document in every_document()}


def test_focus_1_2_that_is_corrupted_is_not_converted(tmp_path: Path) -> None:
    good = export_documents("focus-1.2", golden()["G7"][:1])[0].decode()
    for number, bad in enumerate(
        (good.replace(",Usage,", ",Usages,", 1), good.replace("Z,", ",", 1))
    ):
        assert bad != good
        path = tmp_path / f"bad{number}.csv"
        path.write_text(bad, encoding="utf-8")
        said, rows = outside_rules.focus_1_2(path, tmp_path / f"out{number}")
        assert said.against
        assert rows == []
