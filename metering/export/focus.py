"""FOCUS cost and usage rows, the format that cost management tools read.

In: issued documents.
Out: one row model, and CSV of it in FOCUS 1.2 or 1.4 (`focus_columns` maps the columns). Per
document: a Usage row for each line, an Adjustment row for recouped search cost, a Credit row for
the holdback, a Tax row. The billed costs of one InvoiceId sum to what that document asks for,
exactly (BilledCost-C-007, which no outside tool checks); every row repeats that sum in
x_InvoicePayable.
Never here: rows for documents that are not issued; separators in numbers; a time without Z.

ChargeClass is Correction on a row that corrects a period billed before (a document that corrects
another, a line of late usage), and empty on a fix inside the period that is still open. Its charge
period is the one it is about; a correcting document is billed in the month it is issued in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.export.csv_safe import csv_text
from metering.export.focus_columns import FOCUS
from metering.export.manifest import Manifest, manifest_of
from metering.fields import instant_text
from metering.ledger import Invoice, InvoiceLine
from metering.plan import Period

__all__ = ["focus_csv", "focus_rows"]

SERVICE_NAME = "Ignition kernels"


def focus_rows(document: Invoice) -> list[dict[str, str]]:
    """Rows of one document, key of the row model to text; missing keys are null."""
    rows = [_line_row(document, line) for line in document.lines]
    if document.holdback:
        rows.append(
            {
                **_common(document, -document.holdback),
                "ChargeCategory": "Credit",
                "ChargeDescription": "Holdback until the audit"
                if document.holdback > 0
                else "Holdback released or settled",
                "ChargeFrequency": "One-Time",
                "InvoiceDetailId": "holdback",
            }
        )
    rows.append(
        {
            **_common(document, document.tax),
            "ChargeCategory": "Tax",
            "ChargeDescription": f"VAT {_percent(document.vat)} % on {to_text(document.taxable)}",
            "ChargeFrequency": "One-Time",
            "InvoiceDetailId": "tax",
        }
    )
    return rows


def focus_csv(documents: Sequence[Invoice], version: str = "1.2") -> tuple[str, Manifest]:
    """CSV text of all documents, in the order given, and its manifest."""
    wanted = FOCUS[version]
    rows = [row for document in documents for row in focus_rows(document)]
    text = csv_text(
        tuple(wanted.columns),
        ([row.get(key, "") for key in wanted.columns.values()] for row in rows),
    )
    return text, manifest_of(wanted.format, text.encode(), len(rows), documents)


def _line_row(document: Invoice, line: InvoiceLine) -> dict[str, str]:
    fee_line = line.fee_line
    row = {
        **_common(document, line.amount),
        **_late(document, fee_line.corrects),
        "ChargeCategory": "Adjustment" if fee_line.kind == "recoupment" else "Usage",
        "ChargeDescription": line.description,
        "ChargeFrequency": "Usage-Based",
        "InvoiceDetailId": line.line_id,
        "x_LineId": line.line_id,
    }
    if fee_line.kind != "share":
        return row
    row |= {
        "PricingQuantity": _with_point(fee_line.billed_savings),
        "PricingUnit": f"Verified {document.currency}",
        "x_SavingsPoint": _with_point(fee_line.point),
        "x_SavingsLCB95": _with_point(fee_line.bound),
        "x_BaselineId": fee_line.baseline_id,
        "x_UpliftId": fee_line.uplift_id,
    }
    if fee_line.model:
        row["ResourceId"] = f"{fee_line.system}/{fee_line.model}"
        row["ResourceName"] = fee_line.model
    if fee_line.volume is not None:
        row["ConsumedQuantity"] = _with_point(Decimal(fee_line.volume))
        row["ConsumedUnit"] = "Samples"
    if fee_line.counterfactual is not None:
        row["x_CounterfactualCost"] = _with_point(fee_line.counterfactual)
    return row


def _common(document: Invoice, amount: Decimal) -> dict[str, str]:
    """Columns every row has. No list or contracted price differs from the billed amount."""
    billed, correction = _billed_in(document)
    cost = _with_point(amount)
    return {
        "BilledCost": cost,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "BillingAccountId": document.customer.party_id,
        "BillingAccountName": document.customer.name,
        "BillingAccountType": "Customer",
        "BillingCurrency": document.currency,
        "BillingPeriodStart": instant_text(billed.start),
        "BillingPeriodEnd": instant_text(billed.end),
        "ChargePeriodStart": instant_text(document.period.start),
        "ChargePeriodEnd": instant_text(document.period.end),
        "ChargeClass": "Correction" if correction else "",
        "InvoiceId": document.number,
        "InvoiceIssuerName": document.provider.name,
        "Provider": document.provider.name,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Machine Learning",
        "ServiceName": SERVICE_NAME,
        "x_ContractId": document.contract_id,
        "x_CorrectsInvoiceId": document.corrects or "",
        "x_DocumentSha256": document.digest,
        "x_EvidenceBundleSha256": document.evidence_digest,
        "x_InvoicePayable": _with_point(document.payable),
        "x_MethodVersion": document.method_version,
    }


def _billed_in(document: Invoice) -> tuple[Period, bool]:
    """The period a document is billed in, and whether it corrects an earlier one.

    A correction is billed in its month of issue, or in what that month has left after the period
    it is about, where periods do not begin with the month.
    """
    period = document.period
    if document.kind == "invoice" or document.issued_at < period.end:
        return period, False
    month = Period.month_of(document.issued_at, period.zone)
    return replace(month, start=max(month.start, period.end)), True


def _late(document: Invoice, corrects: str) -> dict[str, str]:
    """Columns of late usage: the earlier, invoiced period that `corrects` is the label of."""
    if not corrects:
        return {}
    zone, latest = document.period.zone, document.period.start
    if len(corrects) == len("2026-11"):
        period = Period.month(corrects, zone)
    else:
        period = Period.anchored(date.fromisoformat(corrects), 1, zone)[0]
    return {
        "ChargeClass": "Correction",
        "ChargePeriodStart": instant_text(period.start),
        "ChargePeriodEnd": instant_text(min(period.end, latest)),
    }


def _with_point(value: Decimal) -> str:
    """Decimal text that always shows a point: some readers type a column by its first cell."""
    text = to_text(value)
    return text if "." in text else text + ".0"


def _percent(rate: Decimal) -> str:
    with exact():
        return to_text((rate * 100).normalize())
