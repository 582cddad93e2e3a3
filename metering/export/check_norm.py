"""Do the sums of an e-invoice hold? EN 16931 without the slack of its public rules.

In: the root element of a UBL or CII document.
Out: what was found: syntax, number of lines, the payable amount, and findings.
Never here: a tolerance; the whole norm, which is for outside validators.

The public rules let a cent of tax pass; these do not. BR numbers are those of EN 16931.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import exact, parse_decimal, to_text
from metering.export.en16931 import RAM, RSM
from metering.export.finding import Checked, Finding
from metering.export.ubl import CAC, CBC, ROOT
from metering.money import check_currency, quantize
from metering.refusal import Refusal

__all__ = ["check_norm"]

_LINE = "SpecifiedLineTradeSettlement"
_LINE_MONEY = "SpecifiedTradeSettlementLineMonetarySummation"


@dataclass(frozen=True)
class _Group:
    """One tax group as shown; `rate` in percent."""

    base: Decimal
    tax: Decimal
    rate: Decimal


@dataclass(frozen=True)
class _Shown:
    """The amounts of a document, whichever syntax they came in."""

    number: str
    currency: str
    credit: bool
    corrects: bool
    lines: Sequence[Decimal]
    allowances: Sequence[Decimal]
    groups: Sequence[_Group]
    line_total: Decimal
    net: Decimal
    tax: Decimal
    gross: Decimal
    payable: Decimal


def check_norm(root: ET.Element) -> Checked:
    """The sums of one document; one that lacks an amount gets a finding that names it.

    Refuses any other root element than those of UBL and CII.
    """
    syntax = _syntax(root)
    try:
        with exact():
            shown = _from_ubl(root) if syntax == "ubl" else _from_cii(root)
            findings = _sums(shown) + _currencies(root, shown.currency)
    except Refusal as refusal:
        return Checked(syntax, 0, [Finding.of(refusal)])
    signed = -shown.payable if shown.credit else shown.payable
    return Checked(syntax, len(shown.lines), findings, {shown.number: signed})


def _syntax(root: ET.Element) -> str:
    if root.tag == f"{{{RSM}}}CrossIndustryInvoice":
        return "facturx"
    if root.tag in {f"{{{ROOT.format(kind)}}}{kind}" for kind in ("Invoice", "CreditNote")}:
        return "ubl"
    raise Refusal("xml", root.tag, "a UBL Invoice or CreditNote, or a CrossIndustryInvoice")


def _sums(shown: _Shown) -> list[Finding]:
    """BR-CO-10, 13, 14, 15, 16 and, where a document stands alone, the tax of each group."""
    if not shown.lines:
        return [Finding("lines", "none, but one is needed (BR-16)")]
    zero = Decimal(0)
    lines = sum(shown.lines, zero)
    rules = [
        ("BR-CO-10", shown.line_total, lines),
        ("BR-CO-13", shown.net, lines - sum(shown.allowances, zero)),
        ("BR-CO-14", shown.tax, sum((group.tax for group in shown.groups), zero)),
        ("BR-CO-15", shown.gross, shown.net + shown.tax),
        ("BR-CO-16", shown.payable, shown.net + shown.tax),
        ("tax base", shown.net, sum((group.base for group in shown.groups), zero)),
    ]
    if not shown.corrects:
        rules += [
            ("BR-CO-17", group.tax, quantize(group.base * group.rate / 100, shown.currency))
            for group in shown.groups
        ]
    return [
        Finding(rule, f"{to_text(got)} should be {to_text(wanted)}")
        for rule, got, wanted in rules
        if got != wanted
    ]


def _currencies(root: ET.Element, wanted: str) -> list[Finding]:
    """Every amount is in the document's currency."""
    found = sorted({node.get("currencyID", wanted) for node in root.iter()} - {wanted})
    return [Finding("currencyID", f"{name} in a document in {wanted}") for name in found]


def _from_ubl(root: ET.Element) -> _Shown:
    credit = root.tag.endswith("}CreditNote")
    line = "CreditNoteLine" if credit else "InvoiceLine"
    money, tax = _child(root, CAC, "LegalMonetaryTotal"), _child(root, CAC, "TaxTotal")
    return _Shown(
        number=_child(root, CBC, "ID").text or "",
        currency=check_currency(_child(root, CBC, "DocumentCurrencyCode").text),
        credit=credit,
        corrects=root.find(f"{{{CAC}}}BillingReference") is not None,
        lines=[
            _value(node, CBC, "LineExtensionAmount") for node in root.findall(f"{{{CAC}}}{line}")
        ],
        allowances=[
            _value(node, CBC, "Amount") for node in root.findall(f"{{{CAC}}}AllowanceCharge")
        ],
        groups=[
            _Group(
                _value(node, CBC, "TaxableAmount"),
                _value(node, CBC, "TaxAmount"),
                _rate(node.find(f"{{{CAC}}}TaxCategory/{{{CBC}}}Percent")),
            )
            for node in tax.findall(f"{{{CAC}}}TaxSubtotal")
        ],
        line_total=_value(money, CBC, "LineExtensionAmount"),
        net=_value(money, CBC, "TaxExclusiveAmount"),
        tax=_value(tax, CBC, "TaxAmount"),
        gross=_value(money, CBC, "TaxInclusiveAmount"),
        payable=_value(money, CBC, "PayableAmount"),
    )


def _from_cii(root: ET.Element) -> _Shown:
    head = _child(root, RSM, "ExchangedDocument")
    trade = _child(root, RSM, "SupplyChainTradeTransaction")
    settled = _child(trade, RAM, "ApplicableHeaderTradeSettlement")
    money = _child(settled, RAM, "SpecifiedTradeSettlementHeaderMonetarySummation")
    return _Shown(
        number=_child(head, RAM, "ID").text or "",
        currency=check_currency(_child(settled, RAM, "InvoiceCurrencyCode").text),
        credit=_child(head, RAM, "TypeCode").text == "381",
        corrects=settled.find(f"{{{RAM}}}InvoiceReferencedDocument") is not None,
        lines=[
            _value(_child(_child(line, RAM, _LINE), RAM, _LINE_MONEY), RAM, "LineTotalAmount")
            for line in trade.findall(f"{{{RAM}}}IncludedSupplyChainTradeLineItem")
        ],
        allowances=[
            _value(node, RAM, "ActualAmount")
            for node in settled.findall(f"{{{RAM}}}SpecifiedTradeAllowanceCharge")
        ],
        groups=[
            _Group(
                _value(node, RAM, "BasisAmount"),
                _value(node, RAM, "CalculatedAmount"),
                _rate(node.find(f"{{{RAM}}}RateApplicablePercent")),
            )
            for node in settled.findall(f"{{{RAM}}}ApplicableTradeTax")
        ],
        line_total=_value(money, RAM, "LineTotalAmount"),
        net=_value(money, RAM, "TaxBasisTotalAmount"),
        tax=_value(money, RAM, "TaxTotalAmount"),
        gross=_value(money, RAM, "GrandTotalAmount"),
        payable=_value(money, RAM, "DuePayableAmount"),
    )


def _rate(node: ET.Element | None) -> Decimal:
    return Decimal(0) if node is None else parse_decimal(node.text or "", "Percent")


def _child(node: ET.Element, namespace: str, tag: str) -> ET.Element:
    found = node.find(f"{{{namespace}}}{tag}")
    if found is None:
        raise Refusal(tag, "nothing", "this element")
    return found


def _value(node: ET.Element, namespace: str, tag: str) -> Decimal:
    return parse_decimal(_child(node, namespace, tag).text or "", tag)
