"""The close of a billing period: what its books came to, frozen.

In: what `portal.billing.closing` found. Out: one row per period that never changes. There is no
reopening: what comes after a close is posted in the contract's next open period.
"""

from django.conf import settings
from django.db import models

from portal.accounts.models import Organisation
from portal.records import Issued


class PeriodClose(Issued):
    """Rows, sums and digests of a closed period, and the checks it was closed on."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="period_closes"
    )
    period = models.OneToOneField(
        "billing.BillingPeriod", on_delete=models.PROTECT, related_name="close"
    )
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    note = models.CharField(max_length=300, blank=True, help_text="what was left open, and why")
    document = models.JSONField(help_text="totals, documents, exports and checks as JSON")
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"close of {self.period}"
