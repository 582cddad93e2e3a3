"""Lines and tax groups of a UBL document, before any XML.

In: one issued document and the sign its amounts are shown with.
Out: lines with their tax category, and one tax group per category and rate (BG-23).
Never here: XML; an amount that is not in the issued document.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import to_text
from metering.ledger import Invoice, InvoiceLine

__all__ = ["TaxGroup", "UblLine", "tax_breakdown", "ubl_lines"]

_AT_ISSUE = "Holdback: its tax was due at issue and is in the invoice"


@dataclass(frozen=True)
class UblLine:
    """One line as shown: amount with the document's sign, tax category and rate."""

    line_id: str
    name: str
    description: str
    amount: Decimal
    category: str
    rate: Decimal
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TaxGroup:
    """Taxable amount and tax of one category and rate."""

    category: str
    rate: Decimal
    taxable: Decimal
    tax: Decimal
    reason: str | None


def ubl_lines(document: Invoice, sign: int) -> list[UblLine]:
    """The document's lines, and a line for a released holdback."""
    lines = [_shown(document, line, sign) for line in document.lines]
    released = -document.holdback * sign
    if released > 0:
        untaxed = document.holdback_tax == "issue" and document.vat
        lines.append(
            UblLine(
                line_id="holdback",
                name="Release of holdback",
                description=f"Holdback of {document.corrects or document.number}",
                amount=released,
                category="E" if untaxed else document.tax_category,
                rate=Decimal(0) if untaxed else document.vat,
            )
        )
    return lines


def tax_breakdown(
    document: Invoice, lines: list[UblLine], sign: int, withheld: Decimal
) -> list[TaxGroup]:
    """Tax groups whose taxable amounts sum to the total without tax.

    The document's tax is all in its main category; a holdback taxed at issue stands in a group
    of its own without tax.
    """
    at_issue = document.holdback_tax == "issue" and bool(document.vat)
    untaxed = sum((line.amount for line in lines if at_issue and line.category == "E"), Decimal(0))
    total = sum((line.amount for line in lines), Decimal(0))
    main = total - untaxed - (Decimal(0) if at_issue else withheld)
    groups = [
        TaxGroup(
            document.tax_category,
            document.vat,
            main,
            document.tax * sign,
            document.tax_exemption_reason,
        )
    ]
    if at_issue and (untaxed or withheld):
        groups.append(TaxGroup("E", Decimal(0), untaxed - withheld, Decimal(0), _AT_ISSUE))
    return groups


def _shown(document: Invoice, line: InvoiceLine, sign: int) -> UblLine:
    fee_line = line.fee_line
    properties = [
        (name, value)
        for name, value in (
            ("Baseline", fee_line.baseline_id),
            ("Uplift", fee_line.uplift_id),
            ("Samples", "" if fee_line.volume is None else str(fee_line.volume)),
        )
        if value
    ]
    if fee_line.kind == "share" and fee_line.model:
        properties += [
            ("Savings, point estimate", to_text(fee_line.point)),
            ("Savings, lower 95 % bound", to_text(fee_line.bound)),
            ("Savings billed on", to_text(fee_line.billed_savings)),
        ]
    return UblLine(
        line_id=line.line_id,
        name=line.description[:120],
        description=fee_line.reason,
        amount=line.amount * sign + 0,
        category=document.tax_category,
        rate=document.vat,
        properties=tuple(properties),
    )
