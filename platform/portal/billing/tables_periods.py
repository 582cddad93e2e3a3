"""Lists of finance: periods with their state, and the trial balance."""

from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html

from portal.web.columns import ListTable, MoneyColumn, NumberColumn
from portal.web.templatetags.portal_tags import instant, mark, period


class PeriodTable(ListTable):
    """Months of contracts."""

    caption = "Every month of every signed contract, newest first"
    csv_columns = (
        ("contract_id", "version__contract_id"), ("period", "label"), ("zone", "span__zone"),
        ("period_start", "span__start"), ("period_end", "span__end"),
        ("state", "standing__state__value"), ("since", "standing__since"),
        ("why", "standing__why"), ("next", "standing__next"), ("who", "standing__who"),
        ("period_id", "period__pk"), ("invoice", "invoice__number"),
    )  # fmt: skip

    label = tables.Column(verbose_name="Period", attrs={"td": {"class": "nowrap"}})
    contract = tables.Column(accessor="version__contract_id", verbose_name="Contract")
    state = tables.Column(accessor="standing__state__value", verbose_name="State")
    why = tables.Column(accessor="standing__why", orderable=False)
    next = tables.Column(
        accessor="standing__next", verbose_name="Who acts, and how", orderable=False
    )

    def render_label(self, value: str, record: Any) -> str:
        """The label, leading to its page once it is opened, above its half-open range."""
        span = record.span
        last = span.end.astimezone(span.local_start.tzinfo).date()
        inside = period(span.local_start.date(), last, span.zone)
        if record.period is None:
            return format_html("{}<br>{}", value, inside)
        url = reverse("billing:period", args=[record.period.pk])
        return format_html('<a href="{}">{}</a><br>{}', url, value, inside)

    def render_next(self, value: str, record: Any) -> str:
        """Who must act, and what to do."""
        return format_html("<strong>{}</strong>: {}", record.standing.who, value)

    def render_state(self, value: str, record: Any) -> str:
        """The state above the moment it began."""
        return format_html("{}<br>{}", mark(value), instant(record.standing.since))


class TrialTable(ListTable):
    """Debits and credits per month and account."""

    caption = "Per month of booking, account and currency; each month's balances sum to zero"
    csv_columns = (
        ("month", "month"), ("account", "account"), ("currency", "currency"),
        ("postings", "entries"), ("debit", "debit"), ("credit", "credit"), ("balance", "balance"),
    )  # fmt: skip

    month = tables.Column(verbose_name="Booked in")
    account = tables.Column()
    entries = NumberColumn(verbose_name="Postings")
    debit = MoneyColumn(places=2)
    credit = MoneyColumn(places=2)
    balance = MoneyColumn(places=2)
