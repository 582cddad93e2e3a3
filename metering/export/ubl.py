"""UBL 2.1 invoice and credit note in the shape of EN 16931 and Peppol BIS Billing 3.

In: one issued document.
Out: XML bytes, UTF-8, of what `en16931` says the document is.
Never here: an amount computed anew.

BT and BR numbers in comments are those of EN 16931. The Peppol identifiers are used only when
both parties have an electronic address; otherwise the document is plain EN 16931.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from decimal import Decimal

from metering.contract import Party
from metering.decimals import exact, to_text
from metering.export.en16931 import EN16931, NormDocument, NormLine, norm_document
from metering.export.xml_text import xml_text
from metering.ledger import Invoice
from metering.money import quantize

__all__ = ["CAC", "CBC", "ubl_xml"]

CAC = "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2"
CBC = "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2"
ROOT = "urn:oasis:names:specification:ubl:schema:xsd:{}-2"
PEPPOL = EN16931 + "#compliant#urn:fdc:peppol.eu:2017:poacc:billing:3.0"
_PREFIXES = {"inv": ROOT.format("Invoice"), "cn": ROOT.format("CreditNote"), "cac": CAC, "cbc": CBC}
for _prefix, _uri in _PREFIXES.items():
    ET.register_namespace(_prefix, _uri)
PEPPOL_PROFILE = "urn:fdc:peppol.eu:2017:poacc:billing:01:1.0"


def ubl_xml(document: Invoice) -> bytes:
    """XML of one document. Refuses what the norm cannot carry, naming the field to fix."""
    shown = norm_document(document)
    kind = "CreditNote" if shown.credit else "Invoice"
    root = ET.Element(f"{{{ROOT.format(kind)}}}{kind}")
    with exact():
        _head(root, document, shown)
        _party(root, "AccountingSupplierParty", document.provider, document.tax_category)
        _party(root, "AccountingCustomerParty", document.customer, document.tax_category)
        if document.tax_category == "K":  # BR-IC-12: the country it is delivered to
            place = _sub(_sub(root, CAC, "Delivery"), CAC, "DeliveryLocation")
            country = _sub(_sub(place, CAC, "Address"), CAC, "Country")
            _text(country, "IdentificationCode", document.customer.country)
        terms = _sub(root, CAC, "PaymentTerms")
        _text(terms, "Note", f"Due on {document.due_on}")
        if shown.withheld:
            _allowance(root, document, shown)
        _totals(root, document.currency, shown)
        for line in shown.lines:
            _line(root, document.currency, line, shown.credit)
    ET.indent(root)
    text = str(ET.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _head(root: ET.Element, document: Invoice, shown: NormDocument) -> None:
    credit = shown.credit
    peppol = document.provider.endpoint is not None and document.customer.endpoint is not None
    _text(root, "CustomizationID", PEPPOL if peppol else EN16931)
    if peppol:
        _text(root, "ProfileID", PEPPOL_PROFILE)
    _text(root, "ID", document.number)
    _text(root, "IssueDate", document.issued_on.isoformat())
    if not credit:
        _text(root, "DueDate", document.due_on.isoformat())
    _text(root, "CreditNoteTypeCode" if credit else "InvoiceTypeCode", "381" if credit else "380")
    _text(root, "Note", shown.note)
    _text(root, "DocumentCurrencyCode", document.currency)
    _text(root, "BuyerReference", document.contract_id)
    period = _sub(root, CAC, "InvoicePeriod")
    zone_start = document.period.local_start.date()
    zone_end = document.period.local_last_day
    _text(period, "StartDate", zone_start.isoformat())
    _text(period, "EndDate", zone_end.isoformat())
    if document.corrects is not None:
        reference = _sub(_sub(root, CAC, "BillingReference"), CAC, "InvoiceDocumentReference")
        _text(reference, "ID", document.corrects)
    contract = _sub(root, CAC, "ContractDocumentReference")
    _text(contract, "ID", f"{document.contract_id} version {document.contract_version}")


def _party(root: ET.Element, role: str, party: Party, category: str) -> None:
    node = _sub(_sub(root, CAC, role), CAC, "Party")
    if party.endpoint is not None and party.endpoint_scheme is not None:
        _text(node, "EndpointID", party.endpoint, schemeID=party.endpoint_scheme)
    _text(_sub(node, CAC, "PartyIdentification"), "ID", party.party_id)
    _text(_sub(node, CAC, "PartyName"), "Name", party.name)
    address = _sub(node, CAC, "PostalAddress")
    for tag, value in (
        ("StreetName", party.street),
        ("CityName", party.city),
        ("PostalZone", party.postal_code),
    ):
        if value is not None:
            _text(address, tag, value)
    _text(_sub(address, CAC, "Country"), "IdentificationCode", party.country)
    if party.tax_id is not None and category != "O":  # BR-O-02: no VAT number under category O
        scheme = _sub(node, CAC, "PartyTaxScheme")
        _text(scheme, "CompanyID", party.tax_id)
        _text(_sub(scheme, CAC, "TaxScheme"), "ID", "VAT")
    legal = _sub(node, CAC, "PartyLegalEntity")
    _text(legal, "RegistrationName", party.name)
    if party.registration_id is not None:
        _text(legal, "CompanyID", party.registration_id)


def _allowance(root: ET.Element, document: Invoice, shown: NormDocument) -> None:
    """The holdback, BG-20."""
    node = _sub(root, CAC, "AllowanceCharge")
    _text(node, "ChargeIndicator", "false")
    _text(node, "AllowanceChargeReason", shown.withheld_reason)
    _amount(node, "Amount", shown.withheld, document.currency)
    _category(node, "TaxCategory", shown.withheld_category, shown.withheld_rate, reason=None)


def _totals(root: ET.Element, currency: str, shown: NormDocument) -> None:
    total = _sub(root, CAC, "TaxTotal")
    _amount(total, "TaxAmount", shown.tax, currency)
    for part in shown.tax_groups:
        node = _sub(total, CAC, "TaxSubtotal")
        _amount(node, "TaxableAmount", part.taxable, currency)
        _amount(node, "TaxAmount", part.tax, currency)
        _category(node, "TaxCategory", part.category, part.rate, part.reason)
    money = _sub(root, CAC, "LegalMonetaryTotal")
    _amount(money, "LineExtensionAmount", shown.line_total, currency)
    _amount(money, "TaxExclusiveAmount", shown.net, currency)
    _amount(money, "TaxInclusiveAmount", shown.net + shown.tax, currency)
    if shown.withheld:
        _amount(money, "AllowanceTotalAmount", shown.withheld, currency)
    _amount(money, "PayableAmount", shown.payable, currency)


def _line(root: ET.Element, currency: str, line: NormLine, credit: bool) -> None:
    """BG-25. Quantity 1 or -1 at the line's amount: a price is never negative (BR-27)."""
    node = _sub(root, CAC, "CreditNoteLine" if credit else "InvoiceLine")
    _text(node, "ID", line.line_id)
    quantity = "-1" if line.amount < 0 else "1"
    tag = "CreditedQuantity" if credit else "InvoicedQuantity"
    _text(node, tag, quantity, unitCode="C62")
    _amount(node, "LineExtensionAmount", line.amount, currency)
    item = _sub(node, CAC, "Item")
    if line.description:
        _text(item, "Description", line.description)
    _text(item, "Name", line.name)
    _category(item, "ClassifiedTaxCategory", line.category, line.rate, reason=None)
    for name, value in line.properties:
        prop = _sub(item, CAC, "AdditionalItemProperty")
        _text(prop, "Name", name)
        _text(prop, "Value", value)
    price = _sub(node, CAC, "Price")
    _amount(price, "PriceAmount", abs(line.amount), currency)


def _category(
    parent: ET.Element, tag: str, category: str, rate: Decimal, reason: str | None
) -> None:
    node = _sub(parent, CAC, tag)
    _text(node, "ID", category)
    if category != "O":  # BR-O-05: no rate under category O
        _text(node, "Percent", to_text((rate * 100).normalize()))
    if reason is not None:
        _text(node, "TaxExemptionReason", reason)
    _text(_sub(node, CAC, "TaxScheme"), "ID", "VAT")


def _sub(parent: ET.Element, namespace: str, tag: str) -> ET.Element:
    return ET.SubElement(parent, f"{{{namespace}}}{tag}")


def _text(parent: ET.Element, tag: str, value: str, **attributes: str) -> None:
    """A basic component. Characters that XML 1.0 cannot hold become spaces."""
    node = ET.SubElement(parent, f"{{{CBC}}}{tag}", attributes)
    node.text = xml_text(value)


def _amount(parent: ET.Element, tag: str, value: Decimal, currency: str) -> None:
    _text(parent, tag, to_text(quantize(value, currency)), currencyID=currency)
