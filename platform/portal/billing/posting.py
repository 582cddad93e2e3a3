"""Whose books a posting is in: its own period's, or once that is closed, the next open one's.

In: the period a document is about. Out: the period it is posted in. A closed period takes no
posting any more, and the database refuses one too (`portal.triggers`). Periods are never reopened.
"""

from collections.abc import Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet

from metering.plan import Period
from portal.accounts.access import Platform
from portal.billing.models import BillingPeriod, Invoice, JournalEntry, PeriodClose
from portal.contracts.models import ContractVersion
from portal.events.services import event_record

DAY_LABEL = len("2026-11-30")
# Periods looked ahead from an anchor: a hundred years of months.
MOST_PERIODS = 1200


def closed(period: BillingPeriod) -> bool:
    """Whether a period is closed."""
    return PeriodClose.objects.filter(period=period).exists()


def posted_in(period: BillingPeriod) -> BillingPeriod | None:
    """None while `period` is open; else the contract's next open period, opened when needed.

    To be asked under the contract's lock: nobody closes a period meanwhile.
    """
    if not closed(period):
        return None
    later = BillingPeriod.objects.filter(
        organisation=period.organisation,
        contract_id=period.contract_id,
        starts_at__gt=period.starts_at,
    ).order_by("starts_at")
    found: BillingPeriod | None = later.filter(close__isnull=True).first()
    return found or _open_next(later.last() or period)


def invoices_of(period: BillingPeriod) -> QuerySet[Invoice]:
    """Documents in the books of a period, by number."""
    own = Q(period=period, posted_in__isnull=True) | Q(posted_in=period)
    return Invoice.objects.filter(own).order_by("series", "sequence")


def entries_of(period: BillingPeriod) -> QuerySet[JournalEntry]:
    """Postings in the books of a period, by document and line."""
    own = (
        Q(posted_in=period)
        | Q(posted_in__isnull=True, invoice__posted_in=period)
        | Q(posted_in__isnull=True, invoice__posted_in__isnull=True, invoice__period=period)
    )
    rows = JournalEntry.objects.filter(own).select_related("invoice__period")
    return rows.order_by("invoice__series", "invoice__sequence", "line")


def _open_next(last: BillingPeriod) -> BillingPeriod:
    """The period after the contract's last one, opened by the platform for what is posted in it."""
    found = following(last)
    row = BillingPeriod(
        organisation=last.organisation,
        contract_version=_in_force(last, found),
        contract_id=last.contract_id,
        label=found.label,
        zone=found.zone,
        starts_at=found.start,
        ends_at=found.end,
    )
    row.save(force_insert=True)
    event_record(
        action="period.open",
        actor=Platform(row.organisation),
        subject=row,
        organisation=row.organisation,
        data={"label": row.label, "zone": row.zone, "contract_id": row.contract_id,
              "reason": f"{last.label} is closed and something was posted"},
    )  # fmt: skip
    return row


def _in_force(last: BillingPeriod, period: Period) -> ContractVersion:
    """The signed version in force when a period begins; the last period's where none is newer."""
    signed = ContractVersion.objects.filter(
        organisation=last.organisation,
        contract_id=last.contract_id,
        status=ContractVersion.Status.SIGNED,
    )
    return version_in_force(list(signed), period.start) or last.contract_version


def version_in_force(
    versions: Sequence[ContractVersion], moment: datetime
) -> ContractVersion | None:
    """Of one contract's versions, the highest that is valid at `moment`; None when none is."""
    valid = [
        version
        for version in versions
        if datetime.fromisoformat(version.contract["valid_from"]) <= moment
    ]
    return max(valid, key=lambda version: version.version, default=None)


def following(last: BillingPeriod) -> Period:
    """The period that begins where `last` ends: a month, or one from the contract's anchor day."""
    if len(last.label) != DAY_LABEL:
        return Period.month(last.label, last.zone).next_month()
    first = (
        BillingPeriod.objects.filter(organisation=last.organisation, contract_id=last.contract_id)
        .order_by("starts_at")
        .values_list("label", flat=True)[0]
    )
    begins = last.ends_at.astimezone(ZoneInfo(last.zone)).date().isoformat()
    for period in Period.anchored(date.fromisoformat(first), MOST_PERIODS, last.zone):
        if period.label == begins:
            return period
    raise ValueError(f"{last}: no period of the anchor {first} begins on {begins}")
