"""Lists of deliveries, parked lines, savings, invoices and postings."""

from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import django_tables2 as tables

from portal.billing.models import BillingPeriod, Dispute, Invoice, SavingsRecord
from portal.web.columns import (
    NUMERIC,
    DigestColumn,
    InstantColumn,
    ListTable,
    MarkColumn,
    MoneyColumn,
    NumberColumn,
)
from portal.web.templatetags.portal_tags import mark, period


class BatchTable(ListTable):
    """Deliveries of usage lines."""

    caption = "Deliveries of usage, and what became of their lines"
    csv_columns = (
        ("id", "id"), ("received_at", "created_at"), ("via", "via"), ("lines", "lines"),
        ("accepted", "accepted"), ("duplicates", "duplicates"), ("conflicts", "conflicts"),
        ("rejected", "rejected"), ("sha256", "sha256"),
    )  # fmt: skip

    created_at = InstantColumn(
        verbose_name="Received", linkify=("billing:usage-batch", {"batch_id": tables.A("pk")})
    )
    via = tables.Column()
    lines = NumberColumn()
    accepted = NumberColumn()
    duplicates = NumberColumn()
    conflicts = NumberColumn()
    rejected = NumberColumn()
    sha256 = DigestColumn(verbose_name="SHA-256")


class ParkedTable(ListTable):
    """Lines that were not counted."""

    caption = "Lines that were not counted, each with its reason"
    csv_columns: ClassVar[tuple[tuple[str, str], ...]] = (
        ("line_number", "line_number"), ("fate", "fate"), ("reason", "reason"), ("line", "line"),
    )  # fmt: skip

    line_number = tables.Column(verbose_name="Line", attrs=NUMERIC)
    fate = MarkColumn()
    reason = tables.Column()
    line = tables.Column(verbose_name="As received", orderable=False)


class ParkedLineTable(ParkedTable):
    """Lines of many deliveries that were not counted."""

    csv_columns = (
        ("received_at", "batch__created_at"), ("batch", "batch_id"), *ParkedTable.csv_columns,
        ("source", "source"), ("id", "event_id"), ("time", "time"), ("standing", "standing"),
    )  # fmt: skip

    line_number = tables.Column(
        verbose_name="Line",
        attrs=NUMERIC,
        linkify=("billing:usage-line", {"line_id": tables.A("pk")}),
    )
    standing = MarkColumn()
    batch = InstantColumn(
        accessor="batch__created_at",
        verbose_name="Received",
        linkify=("billing:usage-batch", {"batch_id": tables.A("batch_id")}),
    )
    time = InstantColumn(verbose_name="Happened")

    class Meta:
        exclude = ("fate",)
        sequence = ("batch", "line_number", "standing", "time", "reason", "line")


class StoredTable(ListTable):
    """Stored events with their fate."""

    caption = "Stored events; accepted and pending ones count"
    csv_columns = (
        ("source", "source"), ("id", "event_id"), ("time", "time"), ("received_at", "received_at"),
        ("model", "model"), ("system", "system"), ("samples", "samples"), ("fate", "fate"),
        ("batch", "batch_id"), ("line_number", "line_number"), ("content_sha256", "content_sha256"),
    )  # fmt: skip

    time = InstantColumn(
        verbose_name="Happened", linkify=("billing:usage-event", {"event_id": tables.A("pk")})
    )
    fate = MarkColumn()
    samples = NumberColumn()
    model = tables.Column()
    system = tables.Column()
    source = tables.Column()
    event_id = tables.Column(verbose_name="Id")
    received_at = InstantColumn(verbose_name="Received")


def period_cell(value: BillingPeriod) -> str:
    """The half-open range of a period in its own zone."""
    zone = ZoneInfo(value.zone)
    start = value.starts_at.astimezone(zone).date()
    return period(start, value.ends_at.astimezone(zone).date(), value.zone)


class SavingsTable(ListTable):
    """Savings per period."""

    caption = "Savings per period; billed on the lower bound, never above the counterfactual"
    csv_columns = (
        ("id", "id"), ("period", "period__label"), ("zone", "period__zone"),
        ("period_start", "period__starts_at"), ("period_end", "period__ends_at"),
        ("volume_samples", "volume_samples"), ("counterfactual", "counterfactual"),
        ("point", "point"), ("billable", "billable"), ("fee", "fee"), ("currency", "currency"),
        ("kept", "kept"), ("reason", "reason"), ("sha256", "sha256"),
    )  # fmt: skip

    label = tables.Column(
        accessor="period__label",
        verbose_name="Period",
        linkify=("billing:savings", {"savings_id": tables.A("pk")}),
    )
    period = tables.Column(verbose_name="Range", orderable=False)
    volume_samples = NumberColumn(verbose_name="Samples")
    counterfactual = MoneyColumn(places=6)
    billable = MoneyColumn(verbose_name="Billable savings", places=6)
    fee = MoneyColumn(places=2)
    kept = tables.Column(verbose_name="Billed")

    def render_period(self, value: BillingPeriod) -> str:
        """The half-open range with its zone."""
        return period_cell(value)

    def render_kept(self, value: bool, record: SavingsRecord) -> str:
        """Billed, or why not."""
        return mark("kept", "billed") if value else mark("not kept", record.reason or "not billed")


class InvoiceTable(ListTable):
    """Issued invoices."""

    caption = "Issued invoices; a correction is a new document that names the old one"
    csv_columns = (
        ("id", "id"), ("number", "number"), ("kind", "kind"), ("corrects", "corrects__number"),
        ("period", "period__label"), ("zone", "period__zone"),
        ("period_start", "period__starts_at"), ("period_end", "period__ends_at"), ("net", "net"),
        ("tax", "tax"), ("gross", "gross"), ("currency", "currency"), ("live", "live"),
        ("issued_at", "issued_at"), ("sha256", "sha256"),
    )  # fmt: skip

    number = tables.Column(linkify=("billing:invoice", {"invoice_id": tables.A("pk")}))
    kind = tables.Column()
    label = tables.Column(accessor="period__label", verbose_name="Period")
    period = tables.Column(verbose_name="Range", orderable=False)
    net = MoneyColumn(places=2)
    tax = MoneyColumn(places=2)
    gross = MoneyColumn(places=2)
    live = tables.Column(verbose_name="State")
    issued_at = InstantColumn(verbose_name="Issued")

    def render_period(self, value: BillingPeriod) -> str:
        """The half-open range with its zone."""
        return period_cell(value)

    def render_live(self, value: bool, record: Invoice) -> str:
        """Issued, or replaced by a correction."""
        return mark("issued") if value else mark("superseded")


class DisputeTable(ListTable):
    """Disputes of invoices."""

    caption = "Disputes; amounts are payable, after holdback and with tax"
    csv_columns = (
        ("id", "id"), ("invoice", "invoice__number"), ("period", "invoice__period__label"),
        ("lines", "lines"), ("reason", "reason"), ("collectible", "collectible"),
        ("disputed", "disputed"), ("currency", "invoice__currency"), ("opened_on", "opened_on"),
        ("outcome", "outcome"), ("resolved_at", "resolved_at"),
    )  # fmt: skip

    opened_on = tables.Column(
        verbose_name="Opened", linkify=("billing:dispute", {"dispute_id": tables.A("pk")})
    )
    invoice = tables.Column(
        accessor="invoice__number",
        verbose_name="Invoice",
        linkify=("billing:invoice", {"invoice_id": tables.A("invoice_id")}),
    )
    lines = tables.Column(orderable=False)
    reason = tables.Column(orderable=False)
    collectible = tables.Column(attrs=NUMERIC)
    disputed = tables.Column(verbose_name="Set aside", attrs=NUMERIC)
    outcome = MarkColumn(verbose_name="State")
    resolved_at = InstantColumn(verbose_name="Ended")

    def render_opened_on(self, value: Any) -> str:
        """The day, as every other date is written."""
        return str(value.isoformat())

    def render_lines(self, value: list[str]) -> str:
        """The ids of the contested lines."""
        return ", ".join(value)

    def render_collectible(self, value: Any, record: Dispute) -> str:
        """What stays collectible, in the invoice's currency."""
        return f"{value:,.2f} {record.invoice.currency}"

    def render_disputed(self, value: Any, record: Dispute) -> str:
        """What is set aside, in the invoice's currency."""
        return f"{value:,.2f} {record.invoice.currency}"


class JournalTable(ListTable):
    """Postings."""

    caption = "Postings in booking order; debit is positive, each invoice sums to zero"
    csv_columns = (
        ("booked_on", "booked_on"), ("invoice", "invoice__number"), ("line", "line"),
        ("account", "account"), ("amount", "amount"), ("currency", "currency"), ("memo", "memo"),
    )  # fmt: skip

    booked_on = tables.Column(verbose_name="Booked on")
    invoice = tables.Column(
        accessor="invoice__number",
        verbose_name="Invoice",
        linkify=("billing:invoice", {"invoice_id": tables.A("invoice_id")}),
    )
    account = tables.Column()
    debit = MoneyColumn(accessor="amount", verbose_name="Debit", places=2)
    credit = MoneyColumn(accessor="amount", verbose_name="Credit", places=2)
    memo = tables.Column(orderable=False)

    def render_debit(self, value: Any, record: Any) -> str:
        """A positive amount."""
        return f"{value:,.2f} {record.currency}" if value > 0 else ""

    def render_credit(self, value: Any, record: Any) -> str:
        """A negative amount, without its sign."""
        return f"{-value:,.2f} {record.currency}" if value < 0 else ""
