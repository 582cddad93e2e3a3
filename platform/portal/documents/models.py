"""Stored files by digest, issued reports, and the log of downloads."""

from django.conf import settings
from django.db import models

from portal.accounts.models import Organisation
from portal.records import Issued


class StoredFile(Issued):
    """A file under IGNITION_HOME; its digest is checked before it is handed out."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="stored_files"
    )
    kind = models.CharField(max_length=32, help_text="report, bundle, statement, export, ...")
    name = models.CharField(max_length=200, help_text="the name a download gets")
    path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    media_type = models.CharField(max_length=100)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(fields=("organisation", "path"), name="one_file_per_path"),
        )

    def __str__(self) -> str:
        return self.name


class Report(Issued):
    """A signed report on one invoice with its evidence bundle and log position."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="reports")
    measurement = models.ForeignKey(
        "runs.Measurement", on_delete=models.PROTECT, related_name="reports"
    )
    invoice = models.OneToOneField(
        "billing.Invoice", on_delete=models.PROTECT, related_name="report"
    )
    facts = models.JSONField(help_text="reports.facts.ReportFacts as JSON")
    facts_sha256 = models.CharField(max_length=64)
    pdf = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    bundle = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    statement_sha256 = models.CharField(max_length=64)
    log_index = models.PositiveIntegerField(null=True, blank=True)
    checkpoint = models.TextField(blank=True)
    verified = models.BooleanField()
    verification = models.JSONField(help_text="reports.verify.Verification as JSON")
    issued_at = models.DateTimeField()

    class Meta:
        ordering = ("-issued_at",)

    def __str__(self) -> str:
        return f"report on {self.invoice_id}"


class Download(Issued):
    """Who took which file, and when."""

    stored_file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="downloads")
    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="downloads"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="downloads"
    )
    role = models.CharField(max_length=16)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.user} took {self.stored_file}"
