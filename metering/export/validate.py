"""Checks of a file that this room wrote, or says it wrote.

In: a path.
Out: findings, none when the file is sound: structure, exact sums, digests of a manifest that
lies beside it.
Never here: a tolerance; a repair; an entity expanded or a reference followed. These checks prove
cents; conformance to the outside formats is for outside validators.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

from metering import canonical
from metering.contract import Contract, VerifiedSavings
from metering.decimals import exact, parse_decimal, to_text
from metering.export.beancount import balance_findings, transaction_sums
from metering.export.check_focus import check_focus
from metering.export.check_norm import check_norm
from metering.export.finding import Checked, Finding
from metering.export.journal import JOURNAL_COLUMNS
from metering.export.manifest import Manifest
from metering.export.xml_text import parse_xml
from metering.ledger import Invoice
from metering.money import check_currency
from metering.plan import MeasurementPlan, PriceBook
from metering.refusal import Refusal
from metering.savings import SavingsLine
from metering.usage import UsageTotals

__all__ = ["CHECKS", "validate"]

MAX_BYTES = 256 * 1024 * 1024
_SCHEMAS: dict[str, Callable[[object], object]] = {
    "ignition.contract.v1": Contract.from_json,
    "ignition.export-manifest.v1": Manifest.from_json,
    "ignition.invoice.v1": Invoice.from_json,
    "ignition.plan.v1": MeasurementPlan.from_json,
    "ignition.plan.v2": MeasurementPlan.from_json,
    "ignition.pricebook.v1": PriceBook.from_json,
    "ignition.savings.v1": SavingsLine.from_json,
    "ignition.usage-totals.v1": UsageTotals.from_json,
    "ignition.verified.v1": VerifiedSavings.from_json,
}


def validate(path: Path) -> tuple[str, list[Finding]]:
    """(format found, findings). Raises `Refusal` when the file is none of this room's formats."""
    check = CHECKS.get(path.suffix.lower())
    if check is None:
        raise Refusal("file", path.name, "a name ending in " + ", ".join(sorted(CHECKS)))
    data = _read(path)
    checked = check(data)
    findings = list(checked.findings)
    beside = path.with_name(path.name + ".manifest.json")
    if beside.exists():
        findings += _against(data, checked, Manifest.from_json(canonical.loads(_read(beside))))
    return checked.format, findings


def _read(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise Refusal("file", f"{path.stat().st_size} bytes", f"at most {MAX_BYTES}")
    return path.read_bytes()


def _json(data: bytes) -> Checked:
    value = canonical.loads(data)
    schema = value.get("schema") if isinstance(value, dict) else None
    reader = _SCHEMAS.get(schema) if isinstance(schema, str) else None
    if reader is None or not isinstance(schema, str):
        raise Refusal("schema", repr(schema), "one of " + ", ".join(sorted(_SCHEMAS)))
    try:
        reader(value)
    except Refusal as refusal:
        return Checked(schema, 1, [Finding.of(refusal)])
    return Checked(schema, 1, [])


def _csv(data: bytes) -> Checked:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8", "replace"), newline=""))
        header = list(reader.fieldnames or [])
        rows = list(reader)
    except csv.Error as error:
        raise Refusal("file", "text that is not CSV", "a CSV file", str(error)) from error
    if "BilledCost" in header:
        return check_focus(header, rows)
    if header == list(JOURNAL_COLUMNS):
        return Checked("csv", len(rows), _journal(rows))
    raise Refusal("header", ",".join(header[:3]), "a FOCUS or journal header")


def _parquet(data: bytes) -> Checked:
    # Only a parquet file needs its library.
    from metering.export.parquet import read_parquet

    try:
        header, rows = read_parquet(data)
    except Refusal as refusal:
        return _unreadable("parquet", refusal)
    checked = check_focus(header, rows)
    return Checked("parquet", checked.rows, checked.findings, checked.invoices)


def _xml(data: bytes) -> Checked:
    try:
        root = parse_xml(data)
    except Refusal as refusal:
        return _unreadable("xml", refusal)
    return check_norm(root)


def _pdf(data: bytes) -> Checked:
    # Only a PDF needs its library.
    from metering.export.facturx import embedded_xml

    try:
        attached = embedded_xml(data)
    except Refusal as refusal:
        return _unreadable("facturx", refusal)
    return _xml(attached)


def _unreadable(format_name: str, refusal: Refusal) -> Checked:
    return Checked(format_name, 0, [Finding.of(refusal)])


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


def _beancount(data: bytes) -> Checked:
    text = data.decode("utf-8", "replace")
    try:
        sums = transaction_sums(text)
        findings = balance_findings(text)
    except Refusal as refusal:
        return Checked("beancount", 0, [Finding.of(refusal)])
    findings += [
        Finding(head, f"sums to {to_text(total)} {currency}, not 0")
        for head, total, currency in sums
        if total
    ]
    if 'option "inferred_tolerance_default" "*:0"' not in text:
        findings.append(Finding("options", "without zero tolerance a wrong cent passes"))
    postings = sum(line.startswith("  ") for line in text.splitlines())
    return Checked("beancount", postings, findings)


def _against(data: bytes, checked: Checked, record: Manifest) -> list[Finding]:
    findings = []
    if record.format != checked.format:
        what = f"{record.format}, but the file is {checked.format}"
        findings.append(Finding("manifest.format", what))
    if canonical.digest_bytes(data) != record.sha256:
        findings.append(Finding("manifest.sha256", "the file was changed after it was written"))
    if checked.rows != record.rows:
        what = f"{record.rows}, but the file has {checked.rows}"
        findings.append(Finding("manifest.rows", what))
    for number, total in checked.invoices.items():
        if record.invoices.get(number) != total:
            what = f"the file makes {to_text(total)} of {number}, the manifest does not"
            findings.append(Finding("manifest.invoices", what))
    return findings


CHECKS: Mapping[str, Callable[[bytes], Checked]] = {
    ".bean": _beancount,
    ".beancount": _beancount,
    ".csv": _csv,
    ".json": _json,
    ".parquet": _parquet,
    ".pdf": _pdf,
    ".xml": _xml,
}
