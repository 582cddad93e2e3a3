"""FOCUS 1.2 cost and usage rows, the format that cost management tools read.

In: issued documents.
Out: one CSV with the mandatory columns of FOCUS 1.2, the conditional ones that apply, and our
own columns under `x_`. Per document: a Usage row for each line, an Adjustment row for recouped
search cost, a Credit row for the holdback, a Tax row. The billed costs of one InvoiceId sum to
what that document asks for, exactly; every row repeats that sum in x_InvoicePayable.
Never here: rows for documents that are not issued; separators in numbers; a time without Z.

ChargeClass is Correction for documents that correct an earlier one, empty otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.export.csv_safe import csv_text
from metering.export.manifest import Manifest, manifest
from metering.fields import instant_text
from metering.ledger import Invoice, InvoiceLine

__all__ = ["CHARGE_CATEGORIES", "FOCUS_COLUMNS", "MANDATORY_COLUMNS", "focus_csv", "focus_rows"]

MANDATORY_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency",
    "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass",
    "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit",
    "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
)  # fmt: skip
FOCUS_COLUMNS = (
    *MANDATORY_COLUMNS,
    "ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "InvoiceId", "ResourceId",
    "ResourceName", "ServiceSubcategory",
    "x_BaselineId", "x_ContractId", "x_CorrectsInvoiceId", "x_CounterfactualCost",
    "x_DocumentSha256", "x_EvidenceBundleSha256", "x_InvoicePayable", "x_LineId",
    "x_MethodVersion", "x_SavingsLCB95", "x_SavingsPoint", "x_UpliftId",
)  # fmt: skip
CHARGE_CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
SERVICE_NAME = "Ignition kernels"


def focus_rows(document: Invoice) -> list[dict[str, str]]:
    """Rows of one document, column name to text; missing columns are null."""
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
            }
        )
    rows.append(
        {
            **_common(document, document.tax),
            "ChargeCategory": "Tax",
            "ChargeDescription": f"VAT {_percent(document.vat)} % on {to_text(document.taxable)}",
            "ChargeFrequency": "One-Time",
        }
    )
    return rows


def focus_csv(documents: Sequence[Invoice]) -> tuple[str, Manifest]:
    """CSV text of all documents, in the order given, and its manifest."""
    rows = [row for document in documents for row in focus_rows(document)]
    text = csv_text(FOCUS_COLUMNS, ([row.get(name, "") for name in FOCUS_COLUMNS] for row in rows))
    sums: dict[str, Decimal] = {}
    with exact():
        for document in documents:
            sums[document.currency] = sums.get(document.currency, Decimal(0)) + document.payable
    payable = {document.number: document.payable for document in documents}
    return text, manifest("focus-1.2", text.encode(), len(rows), sums, payable)


def _line_row(document: Invoice, line: InvoiceLine) -> dict[str, str]:
    fee_line = line.fee_line
    row = {
        **_common(document, line.amount),
        "ChargeCategory": "Adjustment" if fee_line.kind == "recoupment" else "Usage",
        "ChargeDescription": line.description,
        "ChargeFrequency": "Usage-Based",
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
    start, end = instant_text(document.period.start), instant_text(document.period.end)
    cost = _with_point(amount)
    return {
        "BilledCost": cost,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "BillingAccountId": document.customer.party_id,
        "BillingAccountName": document.customer.name,
        "BillingCurrency": document.currency,
        "BillingPeriodStart": start,
        "BillingPeriodEnd": end,
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "ChargeClass": "" if document.kind == "invoice" else "Correction",
        "InvoiceId": document.number,
        "InvoiceIssuerName": document.provider.name,
        "ProviderName": document.provider.name,
        "PublisherName": document.provider.name,
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


def _with_point(value: Decimal) -> str:
    """Decimal text that always shows a point: some readers type a column by its first cell."""
    text = to_text(value)
    return text if "." in text else text + ".0"


def _percent(rate: Decimal) -> str:
    with exact():
        return to_text((rate * 100).normalize())
