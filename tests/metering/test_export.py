"""Exports: structure and exact cents; every check also sees a corrupted copy fail."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from metering import canonical
from metering.contract import flat_share
from metering.export import (
    JOURNAL_COLUMNS,
    Manifest,
    beancount_text,
    csv_text,
    focus_csv,
    journal_csv,
    safe_cell,
    ubl_xml,
    validate,
)
from metering.export.ubl import CAC, CBC
from metering.ledger import Invoice, journal
from metering.refusal import Refusal
from tests.metering.export_cases import history, issued, rows_of, terms
from tests.metering.money_cases import CUSTOMER

# CSV


@pytest.mark.parametrize(
    ("report", "cell", "safe"),
    [
        ("grafana/grafana#17363", "-200.00", "-200.00"),
        ("woocommerce/woocommerce#25379", "-70", "-70"),
        ("formula", "=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("formula after spaces", "  =1+1", "'  =1+1"),
        ("formula after a tab", "\t=1+1", "' =1+1"),
        ("at sign", "@SUM(A1)", "'@SUM(A1)"),
        ("plus", "+49 30 1234", "'+49 30 1234"),
        ("minus that is no number", "-2+3", "'-2+3"),
        ("full width", "\uff1d1+1", "'\uff1d1+1"),
        ("nul and newline", "a\x00b\nc", "a b c"),
        ("plain", "Example AG", "Example AG"),
        ("empty", "", ""),
    ],
)
def test_formulas_are_defused_and_numbers_are_not(report: str, cell: str, safe: str) -> None:
    assert safe_cell(cell) == safe, report


def test_rows_must_fit_the_header() -> None:
    with pytest.raises(ValueError, match="row of 1 cells"):
        csv_text(["a", "b"], [["1"]])


# UBL


def tree(document: Invoice) -> ET.Element:
    return ET.fromstring(ubl_xml(document))  # noqa: S314 - our own output


def texts(root: ET.Element, path: str) -> list[str]:
    steps = [f"{{{CBC if step.startswith('b:') else CAC}}}{step[2:]}" for step in path.split("/")]
    return [node.text or "" for node in root.findall("/".join(steps))]


def test_invoice_totals_are_those_of_the_document() -> None:
    root = tree(issued())
    assert root.tag == "{urn:oasis:names:specification:ubl:schema:xsd:Invoice-2}Invoice"
    total = "a:LegalMonetaryTotal/b:"
    assert texts(root, total + "LineExtensionAmount") == ["10300.00"]
    assert texts(root, total + "AllowanceTotalAmount") == ["1030.00"]
    assert texts(root, total + "TaxExclusiveAmount") == ["9270.00"]
    assert texts(root, total + "TaxInclusiveAmount") == ["11031.30"]
    assert texts(root, total + "PayableAmount") == ["11031.30"]
    assert texts(root, "a:TaxTotal/a:TaxSubtotal/b:TaxableAmount") == ["9270.00"]
    assert texts(root, "a:TaxTotal/a:TaxSubtotal/a:TaxCategory/b:Percent") == ["19"]
    assert texts(root, "b:InvoiceTypeCode") == ["380"]
    assert texts(root, "b:IssueDate") == ["2026-12-01"]
    assert texts(root, "b:DueDate") == ["2026-12-31"]
    assert texts(root, "a:InvoicePeriod/b:EndDate") == ["2026-11-30"]
    assert texts(root, "b:ProfileID") == ["urn:fdc:peppol.eu:2017:poacc:billing:01:1.0"]
    assert texts(root, "a:InvoiceLine/b:InvoicedQuantity") == ["1"]
    assert "short-run plan" in texts(root, "b:Note")[0]


def test_a_release_is_a_line_and_a_correction_of_the_fee() -> None:
    release = history()[2]
    root = tree(release)
    assert texts(root, "a:InvoiceLine/b:LineExtensionAmount") == ["-200.00", "1030.00"]
    assert texts(root, "a:InvoiceLine/b:InvoicedQuantity") == ["-1", "1"]
    assert texts(root, "a:InvoiceLine/a:Price/b:PriceAmount") == ["200.00", "1030.00"]
    assert texts(root, "a:LegalMonetaryTotal/b:PayableAmount") == ["987.70"]
    reference = "a:BillingReference/a:InvoiceDocumentReference/b:ID"
    assert texts(root, reference) == ["INV-2026-0001"]


def test_a_credit_note_carries_positive_amounts() -> None:
    root = tree(history()[3])
    assert root.tag.endswith("}CreditNote")
    assert texts(root, "b:CreditNoteTypeCode") == ["381"]
    assert texts(root, "a:CreditNoteLine/b:LineExtensionAmount") == ["10300.00"]
    assert texts(root, "a:LegalMonetaryTotal/b:PayableAmount") == ["11031.30"]
    assert texts(root, "b:DueDate") == []


def test_a_holdback_taxed_at_issue_stands_in_a_group_of_its_own() -> None:
    root = tree(issued(terms(holdback_tax="issue")))
    assert texts(root, "a:TaxTotal/a:TaxSubtotal/b:TaxableAmount") == ["10300.00", "-1030.00"]
    assert texts(root, "a:TaxTotal/a:TaxSubtotal/b:TaxAmount") == ["1957.00", "0.00"]
    assert texts(root, "a:TaxTotal/a:TaxSubtotal/a:TaxCategory/b:ID") == ["S", "E"]
    assert texts(root, "a:LegalMonetaryTotal/b:PayableAmount") == ["11227.00"]


def test_elements_come_in_the_order_of_the_schema() -> None:
    order = [
        "CustomizationID", "ProfileID", "ID", "IssueDate", "DueDate", "InvoiceTypeCode", "Note",
        "DocumentCurrencyCode", "BuyerReference", "InvoicePeriod", "BillingReference",
        "ContractDocumentReference", "AccountingSupplierParty", "AccountingCustomerParty",
        "PaymentTerms", "AllowanceCharge", "TaxTotal", "LegalMonetaryTotal", "InvoiceLine",
    ]  # fmt: skip
    for document in (issued(), history()[2], history()[4]):
        names = [node.tag.split("}")[1] for node in tree(document)]
        assert names == sorted(names, key=order.index)


def test_what_the_norm_cannot_carry_is_refused_by_field() -> None:
    anonymous = replace(terms().provider, tax_id=None)
    with pytest.raises(Refusal, match=r"provider\.tax_id"):
        ubl_xml(issued(terms(provider=anonymous)))
    with pytest.raises(Refusal, match="BR-DEC"):
        ubl_xml(issued(terms(currency="KWD")))
    buyer = replace(CUSTOMER, tax_id=None)
    reverse = {"vat": Decimal(0), "tax_category": "AE", "tax_exemption_reason": "Reverse charge"}
    with pytest.raises(Refusal, match=r"customer\.tax_id"):
        ubl_xml(issued(terms(customer=buyer, **reverse)))
    root = tree(issued(terms(**reverse)))
    path = "a:TaxTotal/a:TaxSubtotal/a:TaxCategory/b:TaxExemptionReason"
    assert texts(root, path) == ["Reverse charge"]


def test_outside_the_scope_of_tax_nobody_needs_a_tax_number() -> None:
    outside = {"vat": Decimal(0), "tax_category": "O", "tax_exemption_reason": "Not subject"}
    plain = replace(terms().provider, tax_id=None, endpoint=None, endpoint_scheme=None)
    root = tree(issued(terms(provider=plain, **outside)))
    assert texts(root, "a:TaxTotal/a:TaxSubtotal/a:TaxCategory/b:Percent") == []
    assert texts(root, "b:CustomizationID") == ["urn:cen.eu:en16931:2017"]
    assert texts(root, "b:ProfileID") == []


def test_text_that_xml_cannot_hold_becomes_space() -> None:
    odd = replace(CUSTOMER, name="A\x00B <&> \uffff")
    names = texts(
        tree(issued(terms(customer=odd))), "a:AccountingCustomerParty/a:Party/a:PartyName/b:Name"
    )
    assert names == ["A B <&>"]


# Journal


def test_the_journal_file_balances_per_document() -> None:
    documents = history()
    text, record = journal_csv(documents)
    rows = rows_of(text)
    assert list(rows[0]) == list(JOURNAL_COLUMNS)
    for document in documents:
        mine = [row for row in rows if row["DocumentNumber"] == document.number]
        assert sum(Decimal(r["Debit"] or 0) - Decimal(r["Credit"] or 0) for r in mine) == 0
        assert len(mine) == len(journal(document))
    assert record.sums["EUR"] == sum(Decimal(row["Debit"] or 0) for row in rows)
    assert all(bool(row["Debit"]) != bool(row["Credit"]) for row in rows)


def test_beancount_text_allows_no_wrong_cent() -> None:
    text = beancount_text(history())
    assert 'option "inferred_tolerance_default" "*:0"' in text
    balance = [row for row in text.splitlines() if " balance " in row]
    assert len(balance) == 4
    assert all("~ 0.00 EUR" in row for row in balance)
    assert "; INV-2026-0004: zero" in text
    assert text == beancount_text(history())


def test_beancount_quotes_survive_a_hostile_name() -> None:
    odd = replace(CUSTOMER, name='A "quoted"\nname \\')
    line = next(
        row for row in beancount_text([issued(terms(customer=odd))]).splitlines() if " * " in row
    )
    assert line.count('"') == 4


# Yen, and the checks on files


def test_a_currency_without_decimals_stays_whole() -> None:
    yen = terms(currency="JPY", tiers=flat_share("0.20"))
    document = issued(yen)
    assert {Decimal(r["BilledCost"]) for r in rows_of(focus_csv([document])[0])} == {
        Decimal(10300), Decimal(-1030), Decimal(1761),
    }  # fmt: skip
    assert texts(tree(document), "a:LegalMonetaryTotal/b:PayableAmount") == ["11031"]
    assert "~ 0 JPY" in beancount_text([document])


def written(folder: Path, name: str, data: bytes, record: Manifest | None = None) -> Path:
    path = folder / name
    path.write_bytes(data)
    if record is not None:
        beside = folder / (name + ".manifest.json")
        beside.write_text(canonical.pretty(record.to_json()), encoding="utf-8")
    return path


def exports(folder: Path) -> dict[str, Path]:
    focus, focus_record = focus_csv(history())
    book, book_record = journal_csv(history())
    return {
        "focus-1.2": written(folder, "focus.csv", focus.encode(), focus_record),
        "csv": written(folder, "journal.csv", book.encode(), book_record),
        "ubl": written(folder, "invoice.xml", ubl_xml(issued())),
        "beancount": written(folder, "journal.beancount", beancount_text(history()).encode()),
        "ignition.invoice.v1": written(
            folder, "invoice.json", canonical.dumps(issued().to_json())
        ),
    }  # fmt: skip


def test_what_we_write_holds(tmp_path: Path) -> None:
    for kind, path in exports(tmp_path).items():
        assert validate(path) == (kind, [])
    for number, document in enumerate(history()):
        path = written(tmp_path, f"{number}.xml", ubl_xml(document))
        assert validate(path) == ("ubl", []), document.number


@pytest.mark.parametrize(
    ("kind", "spoil", "finding"),
    [
        ("focus-1.2", lambda t: t.replace("1761.30", "1761.31", 1), "sum to"),
        ("focus-1.2", lambda t: t.replace(",Usage,", ",Usages,", 1), "ChargeCategory"),
        ("focus-1.2", lambda t: t.replace(",EUR,", ",EURO,", 1), "BillingCurrency"),
        ("focus-1.2", lambda t: t.replace("10300.00", "10.300,00", 1), "one cell per column"),
        ("focus-1.2", lambda t: t.replace("PricingUnit", "Unit", 1), "PricingUnit is missing"),
        ("focus-1.2", lambda t: t.replace("2026-10-31T23:00:00Z", "2026-10-31", 1), "RFC 3339"),
        ("focus-1.2", lambda t: t.replace("10300.00", "10300,00", 1), "one cell per column"),
        ("focus-1.2", lambda t: t.replace(t.splitlines()[2] + "\n", "", 1), "sum to"),
        ("focus-1.2", lambda t: t.replace(t.splitlines()[2] + "\n", "", 1), "manifest.rows"),
        ("focus-1.2", lambda t: t + "\n", "manifest.sha256"),
        ("csv", lambda t: t.replace("1030.00", "1030.01", 1), "0.01 EUR, not 0"),
        ("csv", lambda t: t.replace(",EUR,", ",eur,", 1), "ISO 4217"),
        ("ubl", lambda t: t.replace(">1761.30<", ">1761.31<", 1), "BR-CO-15"),
        ("ubl", lambda t: t.replace(">9270.00<", ">9270.01<", 1), "should be"),
        ("ubl", lambda t: t.replace(">10300.00<", ">10300.01<", 1), "should be"),
        ("ubl", lambda t: t.replace(">11031.30<", ">11031.31<", 1), "should be"),
        ("ubl", lambda t: t.replace("InvoiceLine>", "Line>"), "BR-16"),
        ("ubl", lambda t: t.replace("PayableAmount", "Payable"), "this element"),
        ("ubl", lambda t: t.replace('ID="EUR">11031.30<', 'ID="USD">11031.30<', 1), "USD in a"),
        ("beancount", lambda t: t.replace("11031.30 EUR", "11031.31 EUR", 1), "0.01 EUR, not 0"),
        ("beancount", lambda t: t.replace('"*:0"', '"*:0.01"'), "zero tolerance"),
        ("beancount", lambda t: t.replace(" ~ 0.00", "", 1), "lets cents pass"),
        ("beancount", lambda t: t.replace("~ 0.00", "~ 0.01", 1), "lets cents pass"),
        ("beancount", lambda t: t.replace(" ~ 0.00 EUR", "1 ~ 0.00 EUR", 1), "should be"),
        ("focus-1.2", lambda t: t.replace(",Correction,", ",,", 1), "ChargeClass"),
        ("focus-1.2", lambda t: t.replace(",Usage,,", ",Usage,Correction,", 1), "ChargeClass"),
        ("focus-1.2", lambda t: t.replace("Verified EUR", "", 1), "PricingUnit"),
        ("focus-1.2", lambda t: t.replace("ResourceName", "Extra", 1), "no column of FOCUS 1.2"),
        ("beancount", lambda t: t.replace("11031.30 EUR", "11031,30 EUR", 1), "decimal text"),
        ("beancount", lambda t: t.replace("11031.30 EUR", "11031.30 USD", 1), "one currency"),
        ("focus-1.2", lambda t: t.replace("x_InvoicePayable", "Payable", 1), "is missing"),
        ("ignition.invoice.v1", lambda t: t.replace('"11031.30"', '"11031.31"'), "payable"),
    ],
)
def test_a_corrupted_copy_does_not_hold(
    tmp_path: Path, kind: str, spoil: Callable[[str], str], finding: str
) -> None:
    path = exports(tmp_path)[kind]
    good = path.read_text(encoding="utf-8")
    bad = spoil(good)
    assert bad != good
    path.write_text(bad, encoding="utf-8")
    found, findings = validate(path)
    assert found == kind
    assert finding in " | ".join(str(one) for one in findings)


def test_every_single_digit_of_a_ubl_amount_is_guarded(tmp_path: Path) -> None:
    """The official rules let one cent of tax pass; ours do not."""
    good = ubl_xml(issued()).decode()
    path = tmp_path / "x.xml"
    for tag in ("TaxAmount", "TaxableAmount", "LineExtensionAmount", "PayableAmount"):
        start = good.index(">", good.index(f"<cbc:{tag}")) + 1
        digit = good[start]
        path.write_text(good[:start] + str((int(digit) + 1) % 10) + good[start + 1 :])
        assert validate(path)[1], tag


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"x,y\n1,2\n"),
        ("a.csv", b'"' + b"x" * 200_000 + b'"\n'),
        ("a.json", b'{"schema": "x"}'),
        ("a.json", b"[]"),
        ("a.txt", b""),
    ],
    ids=["columns", "cell too long", "schema", "list", "suffix"],
)
def test_files_of_other_people_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(Refusal, match="wanted"):
        validate(written(tmp_path, name, data))
