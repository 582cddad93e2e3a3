"""Checks of a file that this room wrote, or says it wrote.

In: a path.
Out: findings, none when the file is sound: structure, exact sums, digests of a manifest that
lies beside it.
Never here: a tolerance; a repair. These checks prove cents; conformance to the outside formats
is for outside validators.
"""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from metering import canonical
from metering.contract import Contract, VerifiedSavings
from metering.decimals import exact, parse_decimal, to_text
from metering.export.beancount import transaction_sums
from metering.export.focus import CHARGE_CATEGORIES, MANDATORY_COLUMNS
from metering.export.journal import JOURNAL_COLUMNS
from metering.export.manifest import Manifest
from metering.export.ubl import CAC, CBC
from metering.fields import parse_instant
from metering.ledger import Invoice
from metering.money import check_currency, quantize
from metering.plan import MeasurementPlan, PriceBook
from metering.refusal import Refusal
from metering.savings import SavingsLine
from metering.usage import UsageTotals

__all__ = ["Finding", "validate"]

MAX_BYTES = 256 * 1024 * 1024
_SCHEMAS: dict[str, Callable[[object], object]] = {
    "ignition.contract.v1": Contract.from_json,
    "ignition.export-manifest.v1": Manifest.from_json,
    "ignition.invoice.v1": Invoice.from_json,
    "ignition.plan.v1": MeasurementPlan.from_json,
    "ignition.pricebook.v1": PriceBook.from_json,
    "ignition.savings.v1": SavingsLine.from_json,
    "ignition.usage-totals.v1": UsageTotals.from_json,
    "ignition.verified.v1": VerifiedSavings.from_json,
}


@dataclass(frozen=True)
class Finding:
    """What is wrong and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def validate(path: Path) -> tuple[str, list[Finding]]:
    """(format found, findings). Raises `Refusal` when the file is none of this room's formats."""
    data = _read(path)
    kind = path.suffix.lower()
    if kind == ".json":
        found, findings = _json(data)
    elif kind == ".csv":
        found, findings = _csv(data)
    elif kind == ".xml":
        found, findings = "ubl", _ubl(data)
    elif kind in (".beancount", ".bean"):
        found, findings = "beancount", _beancount(data)
    else:
        raise Refusal("file", path.name, "a name ending in .json, .csv, .xml or .beancount")
    beside = path.with_name(path.name + ".manifest.json")
    if beside.exists():
        findings += _against(data, found, Manifest.from_json(canonical.loads(_read(beside))))
    return found, findings


def _read(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise Refusal("file", f"{path.stat().st_size} bytes", f"at most {MAX_BYTES}")
    return path.read_bytes()


def _json(data: bytes) -> tuple[str, list[Finding]]:
    value = canonical.loads(data)
    schema = value.get("schema") if isinstance(value, dict) else None
    reader = _SCHEMAS.get(schema) if isinstance(schema, str) else None
    if reader is None or not isinstance(schema, str):
        raise Refusal("schema", repr(schema), "one of " + ", ".join(sorted(_SCHEMAS)))
    try:
        reader(value)
    except Refusal as refusal:
        return schema, [Finding(refusal.field, str(refusal))]
    return schema, []


def _csv(data: bytes) -> tuple[str, list[Finding]]:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8", "replace"), newline=""))
        header = list(reader.fieldnames or [])
        rows = list(reader)
    except csv.Error as error:
        raise Refusal("file", "text that is not CSV", "a CSV file", str(error)) from error
    if "BilledCost" in header:
        return "focus-1.2", _focus(header, rows)
    if header == list(JOURNAL_COLUMNS):
        return "journal-csv", _journal(rows)
    raise Refusal("header", ",".join(header[:3]), "a FOCUS or journal header")


def _focus(header: list[str], rows: list[dict[str, str]]) -> list[Finding]:
    needed = (*MANDATORY_COLUMNS, "InvoiceId", "x_InvoicePayable")
    findings = [Finding("header", f"{name} is missing") for name in needed if name not in header]
    if findings:
        return findings
    sums: dict[str, Decimal] = {}
    asked: dict[str, set[Decimal]] = {}
    for number, row in enumerate(rows, start=2):
        try:
            _focus_row(row)
            invoice = row["InvoiceId"]
            payable = parse_decimal(row["x_InvoicePayable"], "x_InvoicePayable")
            with exact():
                cost = parse_decimal(row["BilledCost"], "BilledCost")
                sums[invoice] = sums.get(invoice, Decimal(0)) + cost
            asked.setdefault(invoice, set()).add(payable)
        except Refusal as refusal:
            findings.append(Finding(f"line {number}", str(refusal)))
    for invoice, total in sums.items():
        if asked[invoice] != {total}:
            wanted = " or ".join(to_text(payable) for payable in sorted(asked[invoice]))
            what = f"billed costs sum to {to_text(total)}, not {wanted}"
            findings.append(Finding(f"invoice {invoice}", what))
    return findings


def _focus_row(row: dict[str, str]) -> None:
    if None in row or None in row.values():
        raise Refusal("row", "another number of cells than the header", "one cell per column")
    for name in ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"):
        parse_decimal(row[name], name)
    currency = check_currency(row["BillingCurrency"], "BillingCurrency")
    cost = parse_decimal(row["BilledCost"], "BilledCost")
    if cost != quantize(cost, currency):
        raise Refusal("BilledCost", row["BilledCost"], f"whole minor units of {currency}")
    if row["ChargeCategory"] not in CHARGE_CATEGORIES:
        raise Refusal("ChargeCategory", row["ChargeCategory"], ", ".join(CHARGE_CATEGORIES))
    if row["ChargeClass"] not in ("", "Correction"):
        raise Refusal("ChargeClass", row["ChargeClass"], "Correction or empty")
    quantity = row["PricingQuantity"]
    if quantity:
        parse_decimal(quantity, "PricingQuantity")
    if (row["ChargeCategory"] == "Tax" and quantity) or (
        row["ChargeCategory"] == "Usage" and not quantity and not row["ChargeClass"]
    ):
        raise Refusal("PricingQuantity", repr(quantity), "a quantity for usage, none for tax")
    for name in ("BillingPeriod", "ChargePeriod"):
        start = parse_instant(row[f"{name}Start"], f"{name}Start")
        if parse_instant(row[f"{name}End"], f"{name}End") <= start:
            raise Refusal(f"{name}End", row[f"{name}End"], "a time after the start")
    for name in ("ServiceName", "ServiceCategory", "ProviderName", "InvoiceIssuerName"):
        if not row[name]:
            raise Refusal(name, "nothing", "text")


def _journal(rows: list[dict[str, str]]) -> list[Finding]:
    findings = []
    sums: dict[tuple[str, str], Decimal] = {}
    for number, row in enumerate(rows, start=2):
        try:
            if bool(row["Debit"]) == bool(row["Credit"]):
                raise Refusal("Debit, Credit", f"{row['Debit']}, {row['Credit']}", "one of both")
            debit = parse_decimal(row["Debit"] or "0", "Debit")
            credit = parse_decimal(row["Credit"] or "0", "Credit")
            if min(debit, credit) < 0:
                raise Refusal("Debit, Credit", to_text(min(debit, credit)), "zero or more")
            key = (row["JournalNumber"], check_currency(row["Currency"], "Currency"))
            with exact():
                sums[key] = sums.get(key, Decimal(0)) + debit - credit
        except Refusal as refusal:
            findings.append(Finding(f"line {number}", str(refusal)))
    findings += [
        Finding(f"journal {name}", f"debits less credits are {to_text(total)} {currency}, not 0")
        for (name, currency), total in sums.items()
        if total
    ]
    return findings


def _beancount(data: bytes) -> list[Finding]:
    text = data.decode("utf-8", "replace")
    try:
        sums = transaction_sums(text)
    except Refusal as refusal:
        return [Finding(refusal.field, str(refusal))]
    findings = [
        Finding(head, f"sums to {to_text(total)} {currency}, not 0")
        for head, total, currency in sums
        if total
    ]
    if 'option "inferred_tolerance_default" "*:0"' not in text:
        findings.append(Finding("options", "without zero tolerance a wrong cent passes"))
    return findings


def _ubl(data: bytes) -> list[Finding]:
    if b"<!DOCTYPE" in data:
        return [Finding("xml", "a document type declaration is not allowed")]
    try:
        root = ET.fromstring(data)  # noqa: S314 - no DOCTYPE, so no entities to expand
    except ET.ParseError as error:
        return [Finding("xml", str(error))]
    credit = root.tag.endswith("}CreditNote")
    try:
        with exact():
            return _ubl_sums(root, "CreditNoteLine" if credit else "InvoiceLine")
    except Refusal as refusal:
        return [Finding(refusal.field, str(refusal))]


def _ubl_sums(root: ET.Element, line_tag: str) -> list[Finding]:
    """BR-CO-10, 13, 14, 15, 16 and the tax of each group, without their slack."""
    lines = [_value(line, "LineExtensionAmount") for line in root.findall(f"{{{CAC}}}{line_tag}")]
    if not lines:
        return [Finding("lines", "none, but one is needed (BR-16)")]
    allowances = sum(
        (_value(node, "Amount") for node in root.findall(f"{{{CAC}}}AllowanceCharge")), Decimal(0)
    )
    money = _child(root, "LegalMonetaryTotal")
    tax_total = _child(root, "TaxTotal")
    groups = tax_total.findall(f"{{{CAC}}}TaxSubtotal")
    tax = _value(tax_total, "TaxAmount")
    net = _value(money, "TaxExclusiveAmount")
    rules = [
        ("BR-CO-10", _value(money, "LineExtensionAmount"), sum(lines, Decimal(0))),
        ("BR-CO-13", net, sum(lines, Decimal(0)) - allowances),
        ("BR-CO-14", tax, sum((_value(group, "TaxAmount") for group in groups), Decimal(0))),
        ("BR-CO-15", _value(money, "TaxInclusiveAmount"), net + tax),
        ("BR-CO-16", _value(money, "PayableAmount"), net + tax),
        ("tax base", net, sum((_value(group, "TaxableAmount") for group in groups), Decimal(0))),
    ]
    if root.find(f"{{{CAC}}}BillingReference") is None:
        rules += [("BR-CO-17", _value(group, "TaxAmount"), _group_tax(group)) for group in groups]
    return [
        Finding(rule, f"{to_text(got)} should be {to_text(wanted)}")
        for rule, got, wanted in rules
        if got != wanted
    ]


def _group_tax(group: ET.Element) -> Decimal:
    percent = group.find(f"{{{CAC}}}TaxCategory/{{{CBC}}}Percent")
    rate = parse_decimal((percent.text or "") if percent is not None else "0", "Percent")
    amount = group.find(f"{{{CBC}}}TaxableAmount")
    currency = check_currency(amount.get("currencyID") if amount is not None else None)
    return quantize(_value(group, "TaxableAmount") * rate / 100, currency)


def _child(node: ET.Element, tag: str) -> ET.Element:
    found = node.find(f"{{{CAC}}}{tag}")
    if found is None:
        raise Refusal(tag, "nothing", "this element")
    return found


def _value(node: ET.Element, tag: str) -> Decimal:
    found = node.find(f"{{{CBC}}}{tag}")
    if found is None:
        raise Refusal(tag, "nothing", "this element")
    return parse_decimal(found.text or "", tag)


def _against(data: bytes, found: str, record: Manifest) -> list[Finding]:
    findings = []
    if record.format != found:
        findings.append(Finding("manifest.format", f"{record.format}, but the file is {found}"))
    if canonical.digest_bytes(data) != record.sha256:
        findings.append(Finding("manifest.sha256", "the file was changed after it was written"))
    rows = len(list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")))) - 1
    if rows != record.rows:
        findings.append(Finding("manifest.rows", f"{record.rows}, but the file has {rows}"))
    return findings
