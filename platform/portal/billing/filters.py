"""Filters of savings, invoices and postings."""

import django_filters

from portal.billing.models import Dispute, Invoice, JournalEntry, ParkedUsage
from portal.web.filtering import ListFilter


class InvoiceFilter(ListFilter):
    """Documents by number, kind, period and state."""

    number = django_filters.CharFilter(lookup_expr="icontains", label="Number contains")
    kind = django_filters.ChoiceFilter(
        choices=Invoice.Kind.choices, label="Kind", empty_label="any"
    )
    period = django_filters.CharFilter(field_name="period__label", label="Period, as 2026-11")
    live = django_filters.ChoiceFilter(
        choices=(("True", "issued"), ("False", "superseded")), label="State", empty_label="any"
    )

    class Meta:
        model = Invoice
        fields = ("number", "kind", "period", "live")


class DisputeFilter(ListFilter):
    """Disputes by state and invoice."""

    outcome = django_filters.ChoiceFilter(
        choices=Dispute.Outcome.choices, label="State", empty_label="any"
    )
    invoice = django_filters.CharFilter(
        field_name="invoice__number", lookup_expr="icontains", label="Invoice contains"
    )

    class Meta:
        model = Dispute
        fields = ("outcome", "invoice")


class JournalFilter(ListFilter):
    """Postings by account and invoice."""

    account = django_filters.CharFilter(lookup_expr="icontains", label="Account contains")
    invoice = django_filters.CharFilter(
        field_name="invoice__number", lookup_expr="icontains", label="Invoice contains"
    )

    class Meta:
        model = JournalEntry
        fields = ("account", "invoice")


class ParkedFilter(ListFilter):
    """Parked lines by fate."""

    fate = django_filters.CharFilter(label="Fate")

    class Meta:
        model = ParkedUsage
        fields = ("fate",)
