"""Usage events, periods, savings, invoices, journal, exports. Issued rows never change."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from portal.accounts.models import Organisation
from portal.contracts.models import ContractVersion
from portal.documents.models import StoredFile
from portal.records import Issued, Record
from portal.runs.models import Measurement


class UsageBatch(Issued):
    """One delivery of usage lines and what became of them."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="usage_batches"
    )
    via = models.CharField(max_length=32, help_text="api, file, demo")
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    sha256 = models.CharField(max_length=64)
    lines = models.PositiveIntegerField()
    accepted = models.PositiveIntegerField()
    duplicates = models.PositiveIntegerField()
    conflicts = models.PositiveIntegerField()
    rejected = models.PositiveIntegerField()

    class Meta:
        ordering = ("-created_at",)
        verbose_name_plural = "usage batches"

    def __str__(self) -> str:
        return f"{self.lines} lines, {self.accepted} accepted"


class UsageEvent(models.Model):
    """One accepted event. (source, event id) is taken once per organisation, for ever."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="usage_events"
    )
    batch = models.ForeignKey(UsageBatch, on_delete=models.PROTECT, related_name="events")
    source = models.CharField(max_length=200)
    event_id = models.CharField(max_length=200)
    content_sha256 = models.CharField(max_length=64)
    time = models.DateTimeField()
    received_at = models.DateTimeField(null=True, blank=True)
    model = models.CharField(max_length=200)
    system = models.CharField(max_length=200)
    samples = models.BigIntegerField()
    line_number = models.PositiveIntegerField()
    line = models.TextField(help_text="the CloudEvent as received")

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=("organisation", "time"), name="usage_event_time"),)
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "source", "event_id"), name="one_usage_event_per_id"
            ),
            models.CheckConstraint(
                condition=models.Q(samples__gte=0), name="usage_samples_not_negative"
            ),
        )

    def __str__(self) -> str:
        return f"{self.source} {self.event_id}: {self.samples}"


class ParkedUsage(models.Model):
    """A line that was not counted, with the reason: nothing is dropped silently."""

    batch = models.ForeignKey(UsageBatch, on_delete=models.PROTECT, related_name="parked")
    line_number = models.PositiveIntegerField()
    fate = models.CharField(
        max_length=16, help_text="duplicate, conflict, unmatched, negative, malformed"
    )
    reason = models.CharField(max_length=300)
    source = models.CharField(max_length=200, blank=True)
    event_id = models.CharField(max_length=200, blank=True)
    time = models.DateTimeField(null=True, blank=True, help_text="of a readable event")
    line = models.TextField()

    class Meta:
        ordering = ("batch", "line_number")
        verbose_name_plural = "parked usage"

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.fate}"


class BillingPeriod(Record):
    """A half-open month in the contract's zone, for one contract."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="billing_periods"
    )
    contract_version = models.ForeignKey(
        ContractVersion, on_delete=models.PROTECT, related_name="billing_periods"
    )
    contract_id = models.CharField(max_length=64)
    label = models.CharField(max_length=7, help_text="2026-11")
    zone = models.CharField(max_length=64, help_text="IANA name")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(help_text="the first moment that is no longer inside")

    class Meta:
        ordering = ("-label",)
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "contract_id", "label"), name="one_period_per_contract"
            ),
            models.CheckConstraint(
                condition=models.Q(starts_at__lt=models.F("ends_at")), name="period_not_empty"
            ),
        )

    def __str__(self) -> str:
        return f"{self.contract_id} {self.label}"


class SavingsRecord(Issued):
    """What one measurement saved in one period: the engine's lines, totals and digests."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="savings_records"
    )
    period = models.OneToOneField(BillingPeriod, on_delete=models.PROTECT, related_name="savings")
    measurement = models.ForeignKey(
        Measurement, on_delete=models.PROTECT, related_name="savings_records"
    )
    currency = models.CharField(max_length=3)
    volume_samples = models.BigIntegerField()
    counterfactual = models.DecimalField(max_digits=24, decimal_places=9)
    point = models.DecimalField(max_digits=24, decimal_places=9)
    billable = models.DecimalField(max_digits=24, decimal_places=9)
    fee = models.DecimalField(max_digits=18, decimal_places=4)
    kept = models.BooleanField()
    reason = models.CharField(max_length=300, blank=True)
    usage = models.JSONField(help_text="metering.usage.UsageTotals as JSON")
    document = models.JSONField(help_text="savings lines and fee breakdown as JSON")
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.period}: {self.billable} {self.currency}"


class NumberSeries(models.Model):
    """The counter of one series of numbers; its row is locked while a number is taken."""

    series = models.CharField(max_length=32, primary_key=True)
    last = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "number series"

    def __str__(self) -> str:
        return f"{self.series} at {self.last}"


class Invoice(Issued):
    """An issued invoice: a frozen document with a number. A correction is a new document."""

    changeable: ClassVar[frozenset[str]] = frozenset({"live"})

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="invoices"
    )
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="invoices")
    savings = models.ForeignKey(SavingsRecord, on_delete=models.PROTECT, related_name="invoices")
    measurement = models.ForeignKey(Measurement, on_delete=models.PROTECT, related_name="invoices")
    series = models.CharField(max_length=32)
    sequence = models.PositiveIntegerField()
    number = models.CharField(max_length=64, unique=True)
    currency = models.CharField(max_length=3)
    net = models.DecimalField(max_digits=18, decimal_places=4)
    tax = models.DecimalField(max_digits=18, decimal_places=4)
    gross = models.DecimalField(max_digits=18, decimal_places=4)
    document = models.JSONField(help_text="metering.ledger.Invoice as JSON")
    sha256 = models.CharField(max_length=64)
    issued_at = models.DateTimeField()
    live = models.BooleanField(default=True, help_text="false once a correction replaces it")

    class Meta:
        ordering = ("-issued_at",)
        constraints = (
            models.UniqueConstraint(fields=("series", "sequence"), name="one_invoice_per_sequence"),
            models.UniqueConstraint(
                fields=("period",), condition=models.Q(live=True), name="one_live_invoice"
            ),
        )

    def __str__(self) -> str:
        return self.number


class JournalEntry(Issued):
    """One posting. The entries of an invoice sum to zero; debit is positive."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="journal_entries"
    )
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="journal_entries")
    line = models.PositiveIntegerField()
    booked_on = models.DateField()
    account = models.CharField(max_length=100)
    amount = models.DecimalField(max_digits=18, decimal_places=4)
    currency = models.CharField(max_length=3)
    memo = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ("booked_on", "invoice", "line")
        verbose_name_plural = "journal entries"
        constraints = (
            models.UniqueConstraint(fields=("invoice", "line"), name="one_journal_line"),
        )

    def __str__(self) -> str:
        return f"{self.account} {self.amount} {self.currency}"


class Export(Issued):
    """One file made from one invoice in one format."""

    class Format(models.TextChoices):
        FOCUS = "focus", "FOCUS 1.2 CSV"
        UBL = "ubl", "UBL 2.1 invoice"
        JOURNAL = "journal", "journal CSV"
        BEANCOUNT = "beancount", "Beancount"

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="exports")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="exports")
    file_format = models.CharField(max_length=16, choices=Format.choices)
    stored_file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="exports")

    class Meta:
        ordering = ("invoice", "file_format")
        constraints = (
            models.UniqueConstraint(
                fields=("invoice", "file_format"), name="one_export_per_format"
            ),
        )

    def __str__(self) -> str:
        return f"{self.invoice} as {self.file_format}"
