"""Usage rows: deliveries, events, parked lines, and what people decided between contents.

Nothing here changes once it is written; the database refuses it too (`portal.triggers`).
"""

from django.conf import settings
from django.db import models

from metering.usage import Decision
from portal.accounts.models import Organisation
from portal.records import Issued


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
        max_length=16, help_text="duplicate, conflict, overruled, unmatched, negative, malformed"
    )
    reason = models.CharField(max_length=300)
    source = models.CharField(max_length=200, blank=True)
    event_id = models.CharField(max_length=200, blank=True)
    time = models.DateTimeField(null=True, blank=True, help_text="of a readable event")
    line = models.TextField()

    class Meta:
        ordering = ("batch", "line_number")
        verbose_name_plural = "parked usage"
        indexes = (
            models.Index(fields=("source", "event_id"), name="parked_usage_key"),
            models.Index(fields=("time", "fate"), name="parked_usage_time"),
        )

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.fate}"


class UsageDecision(Issued):
    """Which of several contents counts under one key, and why: decided by a person.

    Without a `line` the stored event counts; with one, what that parked line says counts instead,
    and its figures stand here. A change of mind is a new row that `replaces` the old one.
    """

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="usage_decisions"
    )
    source = models.CharField(max_length=200)
    event_id = models.CharField(max_length=200)
    stored = models.ForeignKey(UsageEvent, on_delete=models.PROTECT, related_name="decisions")
    line = models.ForeignKey(
        ParkedUsage, null=True, blank=True, on_delete=models.PROTECT, related_name="decisions"
    )
    replaces = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by"
    )
    contents = models.JSONField(help_text="digests of all contents that it was made between")
    content_sha256 = models.CharField(max_length=64)
    time = models.DateTimeField()
    received_at = models.DateTimeField(null=True, blank=True)
    model = models.CharField(max_length=200)
    system = models.CharField(max_length=200)
    samples = models.BigIntegerField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_as = models.CharField(max_length=200, help_text="the person and their role")
    reason = models.CharField(max_length=300)

    class Meta:
        ordering = ("-created_at",)
        indexes = (
            models.Index(fields=("organisation", "source", "event_id"), name="usage_decision_key"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("stored",),
                condition=models.Q(replaces=None),
                name="one_first_decision_per_key",
            ),
        )

    def __str__(self) -> str:
        return f"{self.source} {self.event_id}: {self.samples}"

    def as_decision(self) -> Decision:
        """The decision as the engine and the evidence have it."""
        return Decision(
            source=self.source,
            id=self.event_id,
            content=self.content_sha256,
            contents=tuple(self.contents),
            decided_by=self.decided_as,
            decided_at=self.created_at,
            reason=self.reason,
        )
