"""Auditors' public keys, reviews, findings, overrides of sufficiency. No private key, ever."""

from django.conf import settings
from django.db import models

from portal.accounts.models import Organisation
from portal.records import Issued, Record
from portal.runs.models import Measurement


class AuditorKey(Record):
    """The public halves of an auditor's keys; the private halves never come here."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="auditor_keys"
    )
    auditor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="auditor_keys"
    )
    key_id = models.CharField(max_length=64, help_text="SHA-256 of the SubjectPublicKeyInfo")
    public_key_pem = models.TextField(help_text="Ed25519, signs statements and plans")
    public_files = models.JSONField(
        default=dict, help_text="the other public halves (manifest, root, witness) by file name"
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "key_id"), name="one_auditor_key_per_id"
            ),
        )

    def __str__(self) -> str:
        return f"{self.auditor} {self.key_id[:12]}"


class Review(Record):
    """One review of one measurement: the statement, what was found, the decision, both names."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="reviews")
    measurement = models.OneToOneField(Measurement, on_delete=models.PROTECT, related_name="review")
    state = models.CharField(max_length=16, choices=State.choices, default=State.OPEN)
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    statement = models.TextField(help_text="canonical statement, the exact bytes that are signed")
    statement_sha256 = models.CharField(max_length=64)
    envelope = models.TextField(help_text="DSSE envelope, exact; two signatures once approved")
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    auditor_key = models.ForeignKey(
        AuditorKey, null=True, blank=True, on_delete=models.PROTECT, related_name="reviews"
    )
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(decided_by__isnull=True)
                | models.Q(creator__isnull=True)
                | ~models.Q(creator=models.F("decided_by")),
                name="creator_is_never_approver",
            ),
            models.CheckConstraint(
                condition=~models.Q(state="approved")
                | (models.Q(decided_by__isnull=False) & models.Q(auditor_key__isnull=False)),
                name="approved_names_auditor_and_key",
            ),
        )

    def __str__(self) -> str:
        return f"review of {self.measurement_id} ({self.state})"


class Finding(Record):
    """Something the auditor noticed; an open blocking one stops the approval."""

    class Severity(models.TextChoices):
        NOTE = "note", "note"
        BLOCKING = "blocking", "blocking"

    review = models.ForeignKey(Review, on_delete=models.PROTECT, related_name="findings")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    severity = models.CharField(max_length=16, choices=Severity.choices)
    text = models.TextField()
    resolved_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("created_at",)

    def __str__(self) -> str:
        return f"{self.severity}: {self.text[:60]}"


class SufficiencyOverride(Issued):
    """An auditor's decision to bill a period in spite of one rule of sufficiency, once stated.

    It is stated after the period has ended and before its savings are computed. `found` is what
    was found then; the savings are examined anew, and take an override only where the rule still
    does not hold.
    """

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="sufficiency_overrides"
    )
    period = models.ForeignKey(
        "billing.BillingPeriod", on_delete=models.PROTECT, related_name="sufficiency_overrides"
    )
    measurement = models.ForeignKey(
        Measurement, on_delete=models.PROTECT, related_name="sufficiency_overrides"
    )
    rule = models.CharField(max_length=64, help_text="metering.savings.Disqualification's name")
    found = models.CharField(max_length=300, help_text="what was found, with figures")
    auditor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    stated_by = models.CharField(max_length=300, help_text="the name that is printed")
    reason = models.CharField(max_length=500)

    class Meta:
        ordering = ("created_at", "rule")
        constraints = (
            models.UniqueConstraint(
                fields=("period", "measurement", "rule"), name="one_override_per_rule"
            ),
            models.CheckConstraint(condition=~models.Q(reason=""), name="override_has_reason"),
        )

    def __str__(self) -> str:
        return f"{self.rule} in {self.period_id}: {self.reason[:60]}"
