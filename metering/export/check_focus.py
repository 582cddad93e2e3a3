"""Is a table of FOCUS rows sound? To the cent, for CSV and parquet alike.

In: a header and rows of text, as the file has them.
Out: what was found: version, rows, the sum of every invoice, and findings.
Never here: a tolerance; the whole of the FOCUS rules, which is for outside validators.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from metering.decimals import exact, parse_decimal, to_text
from metering.export.finding import Checked, Finding
from metering.export.focus_columns import CHARGE_CATEGORIES, FOCUS, FocusVersion
from metering.fields import parse_instant
from metering.money import check_currency, quantize
from metering.refusal import Refusal

__all__ = ["check_focus"]

_OLD_NAMES = ("ProviderName", "PublisherName")


def check_focus(header: Sequence[str], rows: Sequence[dict[str, str]]) -> Checked:
    """Columns, values row by row, and the sum of every invoice."""
    version = _version_of(header)
    needed = (*version.mandatory, "InvoiceId", "x_InvoicePayable")
    findings = [Finding("header", f"{name} is missing") for name in needed if name not in header]
    findings += [
        Finding("header", f"{name} is no column of FOCUS {version.version}")
        for name in header
        if name not in version.columns and not name.startswith("x_")
    ]
    if findings:
        return Checked(version.format, len(rows), findings)
    sums: dict[str, Decimal] = {}
    asked: dict[str, set[Decimal]] = {}
    for number, row in enumerate(rows, start=2):
        try:
            _check_row(version, row)
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
    return Checked(version.format, len(rows), findings, sums)


def _version_of(header: Sequence[str]) -> FocusVersion:
    """The version a header is of: the names that 1.3 replaced tell."""
    return FOCUS["1.2" if any(name in header for name in _OLD_NAMES) else "1.4"]


def _check_row(version: FocusVersion, row: dict[str, str]) -> None:
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
    _check_times(row)
    _check_quantity(row)
    for key in ("ServiceName", "ServiceCategory", "InvoiceIssuerName", "Provider"):
        for name in (name for name, of in version.columns.items() if of == key):
            if not row[name]:
                raise Refusal(name, "nothing", "text")


def _check_quantity(row: dict[str, str]) -> None:
    quantity, unit = row["PricingQuantity"], row["PricingUnit"]
    if quantity:
        parse_decimal(quantity, "PricingQuantity")
    if bool(quantity) != bool(unit):
        raise Refusal("PricingUnit", repr(unit), "a unit with each quantity, and only then")
    if (row["ChargeCategory"] == "Tax" and quantity) or (
        row["ChargeCategory"] == "Usage" and not quantity and not row["ChargeClass"]
    ):
        raise Refusal("PricingQuantity", repr(quantity), "a quantity for usage, none for tax")


def _check_times(row: dict[str, str]) -> None:
    """Periods, and ChargeClass: Correction exactly where an earlier period is billed again."""
    ends = {}
    for name in ("BillingPeriod", "ChargePeriod"):
        start = parse_instant(row[f"{name}Start"], f"{name}Start")
        ends[name] = parse_instant(row[f"{name}End"], f"{name}End")
        if ends[name] <= start:
            raise Refusal(f"{name}End", row[f"{name}End"], "a time after the start")
    billed_from = parse_instant(row["BillingPeriodStart"], "BillingPeriodStart")
    wanted = "Correction" if ends["ChargePeriod"] <= billed_from else ""
    if row["ChargeClass"] != wanted:
        raise Refusal(
            "ChargeClass", repr(row["ChargeClass"]), f"{wanted!r}",
            "Correction is for charges of a period billed before, and for no others",
        )  # fmt: skip
