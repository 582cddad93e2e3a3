"""Reads of usage, periods, savings, invoices, journal, exports; every one takes the actor."""

from datetime import datetime

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope, sees
from portal.accounts.models import Membership
from portal.billing.models import (
    BillingPeriod,
    Correction,
    Dispute,
    Export,
    Invoice,
    JournalEntry,
    ParkedUsage,
    PeriodClose,
    SavingsRecord,
    UsageBatch,
    UsageEvent,
)
from portal.runs.models import Job, Measurement
from portal.runs.requests import BILL, bill_key
from portal.runs.selectors import measurement_list


def usage_batch_list(*, actor: Membership) -> QuerySet[UsageBatch]:
    """Deliveries of usage, newest first."""
    return scope(actor, UsageBatch.objects.all(), "usage")


def usage_batch_get(*, actor: Membership, batch_id: object) -> UsageBatch:
    """One of `usage_batch_list`, or Http404."""
    return get_or_404(usage_batch_list(actor=actor), batch_id)


def usage_event_list(*, actor: Membership) -> QuerySet[UsageEvent]:
    """Accepted events in the order they arrived."""
    return scope(actor, UsageEvent.objects.all(), "usage")


def usage_newest(*, actor: Membership, now: datetime) -> datetime | None:
    """When the newest work happened that is not ahead of `now`; None without any."""
    rows = usage_event_list(actor=actor).filter(time__lte=now).order_by("-time")
    return rows.values_list("time", flat=True).first()


def usage_event_get(*, actor: Membership, event_id: object) -> UsageEvent:
    """One of `usage_event_list`, or Http404."""
    return get_or_404(usage_event_list(actor=actor).select_related("batch"), event_id)


def parked_usage_list(*, actor: Membership) -> QuerySet[ParkedUsage]:
    """Lines of every visible delivery that were not counted."""
    if not sees(actor, "usage"):
        return ParkedUsage.objects.none()
    return ParkedUsage.objects.filter(batch__organisation=actor.organisation)


def parked_usage_get(*, actor: Membership, line_id: object) -> ParkedUsage:
    """One of `parked_usage_list`, or Http404."""
    return get_or_404(parked_usage_list(actor=actor).select_related("batch"), line_id)


def parked_usage(*, actor: Membership, batch_id: object) -> QuerySet[ParkedUsage]:
    """Lines of one visible delivery that were not counted; Http404 when it is not visible."""
    return ParkedUsage.objects.filter(batch=usage_batch_get(actor=actor, batch_id=batch_id))


def period_list(*, actor: Membership) -> QuerySet[BillingPeriod]:
    """Billing periods, newest first."""
    return scope(actor, BillingPeriod.objects.select_related("contract_version"), "billing")


def period_get(*, actor: Membership, period_id: object) -> BillingPeriod:
    """One of `period_list`, or Http404."""
    return get_or_404(period_list(actor=actor), period_id)


def savings_list(*, actor: Membership) -> QuerySet[SavingsRecord]:
    """Savings per period with their measurement."""
    return scope(actor, SavingsRecord.objects.select_related("period", "measurement"), "billing")


def savings_get(*, actor: Membership, savings_id: object) -> SavingsRecord:
    """One of `savings_list`, or Http404."""
    return get_or_404(savings_list(actor=actor), savings_id)


def invoice_list(*, actor: Membership) -> QuerySet[Invoice]:
    """Issued invoices, newest first."""
    rows = Invoice.objects.select_related(
        "period__contract_version", "savings__period", "measurement__contract_version", "corrects"
    )
    return scope(actor, rows, "billing")


def invoice_get(*, actor: Membership, invoice_id: object) -> Invoice:
    """One of `invoice_list`, or Http404."""
    return get_or_404(invoice_list(actor=actor), invoice_id)


def correction_list(*, actor: Membership) -> QuerySet[Correction]:
    """What credit notes and audits changed, oldest first."""
    return scope(actor, Correction.objects.select_related("invoice", "document"), "billing")


def dispute_list(*, actor: Membership) -> QuerySet[Dispute]:
    """Disputes with their invoice, newest first."""
    return scope(actor, Dispute.objects.select_related("invoice__period"), "billing")


def dispute_get(*, actor: Membership, dispute_id: object) -> Dispute:
    """One of `dispute_list`, or Http404."""
    return get_or_404(dispute_list(actor=actor), dispute_id)


def journal_list(*, actor: Membership) -> QuerySet[JournalEntry]:
    """Postings in booking order."""
    return scope(actor, JournalEntry.objects.select_related("invoice"), "billing")


def export_list(*, actor: Membership) -> QuerySet[Export]:
    """Exports with their invoice and stored file."""
    return scope(actor, Export.objects.select_related("invoice", "stored_file"), "billing")


def export_get(*, actor: Membership, export_id: object) -> Export:
    """One of `export_list`, or Http404."""
    return get_or_404(export_list(actor=actor), export_id)


def close_list(*, actor: Membership) -> QuerySet[PeriodClose]:
    """Closes of periods, newest first."""
    return scope(actor, PeriodClose.objects.select_related("period", "closed_by"), "billing")


def close_get(*, actor: Membership, close_id: object) -> PeriodClose:
    """One of `close_list`, or Http404."""
    return get_or_404(close_list(actor=actor), close_id)


def period_job_of(*, actor: Membership, period: BillingPeriod) -> Job | None:
    """The job that bills a period, if one was ever asked for: for those who see its money.

    Jobs of other kinds, which speak of kernels, are not among them.
    """
    rows = Job.objects.select_related("organisation", "requested_by").prefetch_related("steps")
    return scope(actor, rows, "billing").filter(kind=BILL, key=bill_key(period)).first()


def approved_measurements(*, actor: Membership, period: BillingPeriod) -> QuerySet[Measurement]:
    """Approved measurements of a period's contract, newest first: what it may be billed on."""
    return measurement_list(actor=actor).filter(
        state=Measurement.State.APPROVED, contract_version__contract_id=period.contract_id
    )
