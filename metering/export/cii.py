"""UN/CEFACT Cross Industry Invoice in the EN 16931 profile: the XML inside a Factur-X PDF.

In: one issued document.
Out: XML bytes, UTF-8, of what `en16931` says the document is, valid under the profile's schema.
Never here: an amount computed anew; a PDF.

Elements, their order and the schema check are drafthorse's; BT numbers are those of EN 16931.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from drafthorse.models.accounting import ApplicableTradeTax, CategoryTradeTax, TradeAllowanceCharge
from drafthorse.models.document import Document
from drafthorse.models.note import IncludedNote
from drafthorse.models.party import TaxRegistration
from drafthorse.models.payment import PaymentTerms
from drafthorse.models.product import ProductCharacteristic
from drafthorse.models.tradelines import LineItem

from metering.contract import Party
from metering.decimals import exact
from metering.export.en16931 import EN16931, NormDocument, NormLine, norm_document
from metering.export.xml_text import xml_text
from metering.ledger import Invoice
from metering.money import quantize

__all__ = ["cii_xml"]

SCHEMA = "FACTUR-X_EN16931"


def cii_xml(document: Invoice) -> bytes:
    """XML of one document. Refuses what the norm cannot carry, naming the field to fix."""
    shown = norm_document(document)
    # drafthorse declares its fields as descriptors without types.
    made: Any = Document()
    made.context.guideline_parameter.id = EN16931
    made.header.id = document.number
    made.header.type_code = "381" if shown.credit else "380"
    made.header.issue_date_time = document.issued_on
    note: Any = IncludedNote()
    note.content = xml_text(shown.note)
    made.header.notes.add(note)
    with exact():
        _agreement(made.trade.agreement, document)
        if document.tax_category == "K":  # BR-IC-12: the country it is delivered to
            made.trade.delivery.ship_to.address.country_id = document.customer.country
        _settlement(made.trade.settlement, document, shown)
        for line in shown.lines:
            made.trade.items.add(_line(document.currency, line))
        data: bytes = made.serialize(schema=SCHEMA)
    return data


def _agreement(agreement: Any, document: Invoice) -> None:
    agreement.buyer_reference = xml_text(document.contract_id)
    _party(agreement.seller, document.provider, document.tax_category)
    _party(agreement.buyer, document.customer, document.tax_category)
    contract = f"{document.contract_id} version {document.contract_version}"
    agreement.contract.issuer_assigned_id = xml_text(contract)


def _party(target: Any, party: Party, category: str) -> None:
    target.id = xml_text(party.party_id)
    target.name = xml_text(party.name)
    if party.registration_id is not None:
        target.legal_organization.id = xml_text(party.registration_id)
    for name, value in (
        ("postcode", party.postal_code), ("line_one", party.street), ("city_name", party.city),
        ("country_id", party.country),
    ):  # fmt: skip
        if value is not None:
            setattr(target.address, name, xml_text(value))
    if party.endpoint is not None and party.endpoint_scheme is not None:
        target.electronic_address.uri_ID = (party.endpoint_scheme, xml_text(party.endpoint))
    if party.tax_id is not None and category != "O":  # BR-O-02: no VAT number under category O
        target.tax_registrations.add(TaxRegistration(id=("VA", xml_text(party.tax_id))))


def _settlement(settlement: Any, document: Invoice, shown: NormDocument) -> None:
    settlement.currency_code = document.currency
    for group in shown.tax_groups:
        tax: Any = ApplicableTradeTax()
        tax.calculated_amount = _money(group.tax, document.currency)
        tax.type_code = "VAT"
        if group.reason is not None:
            tax.exemption_reason = xml_text(group.reason)
        tax.basis_amount = _money(group.taxable, document.currency)
        _category(tax, group.category, group.rate)
        settlement.trade_tax.add(tax)
    settlement.period.start = document.period.local_start.date()
    settlement.period.end = document.period.local_last_day
    if shown.withheld:
        settlement.allowance_charge.add(_allowance(document.currency, shown))
    terms: Any = PaymentTerms()
    terms.description = f"Due on {document.due_on}"
    terms.due = document.due_on
    settlement.terms.add(terms)
    _totals(settlement.monetary_summation, document.currency, shown)
    if document.corrects is not None:
        settlement.invoice_referenced_document.issuer_assigned_id = document.corrects


def _allowance(currency: str, shown: NormDocument) -> Any:
    """The holdback, BG-20."""
    allowance: Any = TradeAllowanceCharge()
    allowance.indicator = False
    allowance.actual_amount = _money(shown.withheld, currency)
    allowance.reason = shown.withheld_reason
    tax: Any = CategoryTradeTax()
    tax.type_code = "VAT"
    _category(tax, shown.withheld_category, shown.withheld_rate)
    allowance.trade_tax.add(tax)
    return allowance


def _totals(totals: Any, currency: str, shown: NormDocument) -> None:
    totals.line_total = _money(shown.line_total, currency)
    totals.allowance_total = _money(shown.withheld, currency)
    totals.tax_basis_total = _money(shown.net, currency)
    totals.tax_total = (_money(shown.tax, currency), currency)
    totals.grand_total = _money(shown.net + shown.tax, currency)
    totals.due_amount = _money(shown.payable, currency)


def _line(currency: str, line: NormLine) -> Any:
    """BG-25. Quantity 1 or -1 at the line's amount: a price is never negative (BR-27)."""
    item: Any = LineItem()
    item.document.line_id = line.line_id
    item.product.name = xml_text(line.name)
    if line.description:
        item.product.description = xml_text(line.description)
    for name, value in line.properties:
        characteristic: Any = ProductCharacteristic()
        characteristic.description = name
        characteristic.value = xml_text(value)
        item.product.characteristics.add(characteristic)
    item.agreement.net.amount = _money(abs(line.amount), currency)
    item.delivery.billed_quantity = (Decimal(-1 if line.amount < 0 else 1), "C62")
    item.settlement.trade_tax.type_code = "VAT"
    _category(item.settlement.trade_tax, line.category, line.rate)
    item.settlement.monetary_summation.total_amount = _money(line.amount, currency)
    return item


def _category(tax: Any, category: str, rate: Decimal) -> None:
    tax.category_code = category
    if category != "O":  # BR-O-05: no rate under category O
        tax.rate_applicable_percent = Decimal(f"{(rate * 100).normalize():f}")


def _money(value: Decimal, currency: str) -> Decimal:
    return quantize(value, currency)
