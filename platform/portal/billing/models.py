"""Periods, savings, invoices, journal, exports; usage rows stand in `usage_models`.

Issued rows never change.
"""

from typing import ClassVar

from django.db import models

from portal.accounts.models import Organisation
from portal.billing.period_models import PeriodClose as PeriodClose
from portal.billing.usage_models import ParkedUsage as ParkedUsage
from portal.billing.usage_models import UsageBatch as UsageBatch
from portal.billing.usage_models import UsageDecision as UsageDecision
from portal.billing.usage_models import UsageEvent as UsageEvent
from portal.contracts.models import ContractVersion
from portal.documents.models import StoredFile
from portal.records import Issued, Record
from portal.runs.models import Measurement, Tuning


class BillingPeriod(Record):
    """A half-open month in the contract's zone, for one contract."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="billing_periods"
    )
    contract_version = models.ForeignKey(
        ContractVersion, on_delete=models.PROTECT, related_name="billing_periods"
    )
    contract_id = models.CharField(max_length=64)
    label = models.CharField(max_length=10, help_text="2026-11, or the first day 2026-11-30")
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
    usage_until = models.DateTimeField(
        null=True, blank=True, help_text="deliveries stored later are late for this period"
    )
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

    def next_number(self) -> str:
        """Count up and name the number; it is taken when the row is saved."""
        self.last += 1
        return f"{self.series}-{self.last:06d}"


class Invoice(Issued):
    """An issued document with a number: an invoice, a release of its holdback, or a credit note.

    It is frozen. A correction is a new document that names the one it `corrects`.
    """

    class Kind(models.TextChoices):
        INVOICE = "invoice", "invoice"
        RELEASE = "release", "release of holdback"
        CREDIT_NOTE = "credit_note", "credit note"

    changeable: ClassVar[frozenset[str]] = frozenset({"live"})

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="invoices"
    )
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="invoices")
    savings = models.ForeignKey(SavingsRecord, on_delete=models.PROTECT, related_name="invoices")
    measurement = models.ForeignKey(Measurement, on_delete=models.PROTECT, related_name="invoices")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.INVOICE)
    posted_in = models.ForeignKey(
        BillingPeriod, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="whose books it is in, once its own period is closed",
    )  # fmt: skip
    corrects = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="corrections"
    )
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
                fields=("period",),
                condition=models.Q(live=True, kind="invoice"),
                name="one_live_invoice",
            ),
            models.CheckConstraint(
                condition=models.Q(kind="invoice", corrects__isnull=True)
                | models.Q(kind__in=("release", "credit_note"), corrects__isnull=False),
                name="correction_names_its_invoice",
            ),
        )

    def __str__(self) -> str:
        return self.number


class SearchCost(Issued):
    """What one search for kernels cost, summed from its ledger: what a contract may recoup."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="search_costs"
    )
    contract_id = models.CharField(max_length=64)
    tuning = models.OneToOneField(Tuning, on_delete=models.PROTECT, related_name="booked_cost")
    currency = models.CharField(max_length=3)
    cost = models.DecimalField(max_digits=30, decimal_places=12)
    document = models.JSONField(help_text="metering.ledger.SearchCost as JSON")
    ledger_sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ("created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "ledger_sha256"), name="one_booking_per_ledger"
            ),
            models.CheckConstraint(
                condition=models.Q(cost__gte=0), name="search_cost_not_negative"
            ),
        )

    def __str__(self) -> str:
        return f"{self.contract_id}: {self.cost} {self.currency}"


class Correction(Issued):
    """What a credit note or an audit changed in the state that an invoice's period left behind.

    `taken` is the state the period ended in before, `instead` the one it ends in now: the next
    period computed starts from the difference (`metering.contract.LedgerState.replaced`).
    """

    class Kind(models.TextChoices):
        CREDIT = "credit", "credit"
        AUDIT = "audit", "audit"

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="corrections"
    )
    kind = models.CharField(max_length=16, choices=Kind.choices)
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="corrected_by")
    document = models.OneToOneField(
        Invoice, null=True, blank=True, on_delete=models.PROTECT, related_name="correction"
    )
    taken = models.JSONField(help_text="metering.contract.LedgerState as JSON")
    instead = models.JSONField(help_text="metering.contract.LedgerState as JSON")
    details = models.JSONField(help_text="of an audit: verified savings, breakdown, outcome")
    reason = models.CharField(max_length=300)

    class Meta:
        ordering = ("created_at", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("invoice",), condition=models.Q(kind="audit"), name="one_audit_per_invoice"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} of {self.invoice}"


class Dispute(Issued):
    """Lines of an invoice the customer contests; it ends with a release or with a credit note."""

    changeable: ClassVar[frozenset[str]] = frozenset({"outcome", "resolved_at"})

    class Outcome(models.TextChoices):
        OPEN = "open", "open"
        RELEASED = "released", "released"
        CREDITED = "credited", "credited"

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="disputes"
    )
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="disputes")
    lines = models.JSONField(help_text="ids of the contested lines")
    reason = models.CharField(max_length=300)
    collectible = models.DecimalField(max_digits=18, decimal_places=4)
    disputed = models.DecimalField(max_digits=18, decimal_places=4)
    opened_on = models.DateField()
    outcome = models.CharField(max_length=16, choices=Outcome.choices, default=Outcome.OPEN)
    resolved_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("invoice",), condition=models.Q(outcome="open"), name="one_open_dispute"
            ),
            models.CheckConstraint(
                condition=models.Q(outcome="open", resolved_at__isnull=True)
                | models.Q(outcome__in=("released", "credited"), resolved_at__isnull=False),
                name="dispute_resolved_has_time",
            ),
        )

    def __str__(self) -> str:
        return f"{self.invoice}: {self.outcome} dispute"


class JournalEntry(Issued):
    """One posting. The entries of an invoice sum to zero; debit is positive."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="journal_entries"
    )
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="journal_entries")
    posted_in = models.ForeignKey(
        BillingPeriod, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="whose books it is in, once its document's period is closed",
    )  # fmt: skip
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
        FOCUS_1_4 = "focus-1.4", "FOCUS 1.4 CSV"
        PARQUET = "parquet", "FOCUS 1.4 parquet"
        UBL = "ubl", "UBL 2.1 invoice"
        FACTURX = "facturx", "Factur-X PDF"
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
