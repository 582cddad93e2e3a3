"""An issued document as EN 16931 sees it, before any syntax: UBL and CII write the same one.

In: one issued document.
Out: lines with their tax category, one tax group per category and rate (BG-23), the totals
(BG-22), all with the sign the norm wants: a credit note carries positive amounts.
Never here: XML; an amount that is not in the issued document; a document that names no tax
number where the norm needs one.

BT, BG and BR numbers are those of EN 16931. The holdback is a document-level allowance (BG-20)
with its own tax category; a released holdback is a line. A rate of zero in the standard category
is the norm's category Z (BR-S-05 wants a rate above zero).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.ledger import Invoice, InvoiceLine
from metering.money import minor_unit
from metering.refusal import Refusal

__all__ = ["EN16931", "RAM", "RSM", "NormDocument", "NormLine", "TaxGroup", "norm_document"]

EN16931 = "urn:cen.eu:en16931:2017"
RAM = "urn:un:unece:uncefact:data:standard:ReusableAggregateBusinessInformationEntity:100"
RSM = "urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:100"
"""Namespaces of the CII syntax."""

_HOLDBACK = "Holdback until the audit"
_AT_ISSUE = "Holdback: its tax was due at issue and is in the invoice"


@dataclass(frozen=True)
class NormLine:
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


@dataclass(frozen=True)
class NormDocument:
    """One document with the amounts that are shown; `withheld` is the holdback taken off."""

    credit: bool
    number: str
    lines: tuple[NormLine, ...]
    withheld: Decimal
    withheld_reason: str
    withheld_category: str
    withheld_rate: Decimal
    tax_groups: tuple[TaxGroup, ...]
    line_total: Decimal
    net: Decimal
    tax: Decimal
    payable: Decimal
    note: str


def norm_document(document: Invoice) -> NormDocument:
    """The document in the terms of the norm; refuses what it cannot carry, naming the field."""
    _check(document)
    sign = -1 if document.kind == "credit_note" else 1
    with exact():
        lines = _lines(document, sign)
        withheld = max(Decimal(0), document.holdback * sign)
        line_total = sum((line.amount for line in lines), Decimal(0))
        # Taxed at release the holdback lowers the base; taxed at issue it does not.
        untaxed = document.holdback_tax == "issue" and bool(document.vat)
        return NormDocument(
            credit=sign < 0,
            number=document.number,
            lines=tuple(lines),
            withheld=withheld,
            withheld_reason="Holdback that was never paid" if sign < 0 else _HOLDBACK,
            withheld_category="E" if untaxed else _category(document),
            withheld_rate=Decimal(0) if untaxed else document.vat,
            tax_groups=tuple(_tax_groups(document, lines, sign, withheld)),
            line_total=line_total,
            net=line_total - withheld,
            tax=document.tax * sign,
            payable=document.payable * sign,
            note=_note(document),
        )


def _check(document: Invoice) -> None:
    if minor_unit(document.currency) > 2:
        raise Refusal(
            "invoice.currency", document.currency, "at most two decimals (BR-DEC)",
            "export the journal or FOCUS instead",
        )  # fmt: skip
    needs_seller = document.tax_category != "O"
    if needs_seller and document.provider.tax_id is None:
        raise Refusal(
            "invoice.provider.tax_id", "nothing", "a VAT number (BR-S-02 and its kin)",
            "add it to the contract, or use tax category O",
        )  # fmt: skip
    if document.tax_category in ("AE", "K") and document.customer.tax_id is None:
        raise Refusal("invoice.customer.tax_id", "nothing", "a VAT number for reverse charge")


def _category(document: Invoice) -> str:
    return "Z" if document.tax_category == "S" and not document.vat else document.tax_category


def _note(document: Invoice) -> str:
    parts = [
        *document.notes,
        *document.reasons,
        f"Evidence {document.evidence_digest}",
        f"method {document.method_version}",
        f"contract {document.contract_digest}",
        f"plan {document.plan_digest}",
    ]
    return "; ".join(parts)


def _lines(document: Invoice, sign: int) -> list[NormLine]:
    """The document's lines, and a line for a released holdback."""
    lines = [_shown(document, line, sign) for line in document.lines]
    released = -document.holdback * sign
    if released > 0:
        untaxed = document.holdback_tax == "issue" and document.vat
        lines.append(
            NormLine(
                line_id="holdback",
                name="Release of holdback",
                description=f"Holdback of {document.corrects or document.number}",
                amount=released,
                category="E" if untaxed else _category(document),
                rate=Decimal(0) if untaxed else document.vat,
            )
        )
    return lines


def _tax_groups(
    document: Invoice, lines: list[NormLine], sign: int, withheld: Decimal
) -> list[TaxGroup]:
    """Tax groups whose taxable amounts sum to the total without tax.

    The document's tax is all in its main category; a holdback taxed at issue stands in a group
    of its own without tax.
    """
    at_issue = document.holdback_tax == "issue" and bool(document.vat)
    untaxed = sum((line.amount for line in lines if at_issue and line.category == "E"), Decimal(0))
    total = sum((line.amount for line in lines), Decimal(0))
    main = total - untaxed - (Decimal(0) if at_issue else withheld)
    # BR-S-10, BR-Z-10: a reason is for exemptions.
    exempt = _category(document) not in ("S", "Z")
    groups = [
        TaxGroup(
            _category(document),
            document.vat,
            main,
            document.tax * sign,
            document.tax_exemption_reason if exempt else None,
        )
    ]
    if at_issue and (untaxed or withheld):
        groups.append(TaxGroup("E", Decimal(0), untaxed - withheld, Decimal(0), _AT_ISSUE))
    return groups


def _shown(document: Invoice, line: InvoiceLine, sign: int) -> NormLine:
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
    return NormLine(
        line_id=line.line_id,
        name=line.description[:120],
        description="" if fee_line.reason == line.description else fee_line.reason,
        amount=line.amount * sign + 0,
        category=_category(document),
        rate=document.vat,
        properties=tuple(properties),
    )
