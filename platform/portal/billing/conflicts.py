"""Conflicts of usage decided by a person, and parked lines sent again. One transaction, one event.

In: a stored event under whose key other content came, what somebody decided and why; a line whose
model or system was not registered. Out: a decision that never changes, the delivery of the line
sent again. Whose volume it becomes is the engine's matter; a period that is computed never changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q

from metering.usage import UsageEvent as ReadEvent
from metering.usage.events import read_event
from portal.accounts.access import Actor, require
from portal.accounts.models import Membership, Organisation
from portal.billing.models import (
    BillingPeriod,
    Invoice,
    ParkedUsage,
    SavingsRecord,
    UsageBatch,
    UsageDecision,
    UsageEvent,
)
from portal.billing.savings import BillingError
from portal.billing.usage import LineFate, usage_ingest
from portal.billing.usage_keys import CONTESTING, decisions_holding, decisions_in_force
from portal.events.services import event_record


@dataclass(frozen=True)
class Content:
    """One content under a key; `line` is None for the stored one. Repetitions are not listed."""

    event: ReadEvent
    line: ParkedUsage | None

    @property
    def choice(self) -> str:
        """How a form names it."""
        return "stored" if self.line is None else str(self.line.pk)


def contents_of(stored: UsageEvent) -> list[Content]:
    """The contents that came under a stored event's key: the stored one, then as they came."""
    found = [Content(read_event(stored.line.encode()), None)]
    lines = ParkedUsage.objects.filter(
        batch__organisation=stored.organisation_id, fate__in=CONTESTING,
        source=stored.source, event_id=stored.event_id,
    )  # fmt: skip
    seen = {stored.content_sha256}
    for line in lines.select_related("batch").order_by("batch__created_at", "pk"):
        event = read_event(line.line.encode())
        if event.content not in seen:
            seen.add(event.content)
            found.append(Content(event, line))
    return found


def decision_of(stored: UsageEvent) -> UsageDecision | None:
    """The decision that holds for a stored event's key, if there is one."""
    return decisions_holding(stored.organisation).filter(stored=stored).first()


def computed_periods(organisation: Organisation, contents: Sequence[Content]) -> list[str]:
    """Why a decision is too late: each computed period that one of the contents lies in."""
    told = []
    savings = SavingsRecord.objects.filter(
        _holding_any(contents, "period__"), organisation=organisation
    )
    for record in savings.select_related("period").order_by("period__label"):
        # Savings that the auditor stated rest on no metered usage.
        if not record.usage:
            continue
        invoice = Invoice.objects.filter(savings=record, live=True, kind="invoice").first()
        way = f"credit {invoice.number}" if invoice else "credit its invoice"
        told.append(
            f"{record.period.label} was computed on {record.created_at:%Y-%m-%d} and does not"
            f" change: finance may {way} by a credit note, or the auditor settles the period on"
            " audited savings"
        )
    return told


@transaction.atomic
def usage_decide(
    *, actor: Actor, stored: UsageEvent, choice: str, reason: str, seen: Sequence[str]
) -> UsageDecision:
    """Decide which content counts under a stored event's key: "stored", or a parked line's id.

    `seen`: the digests of all contents the person looked at; BillingError when another came since,
    when there is nothing to decide, and when a content lies in a computed period.
    """
    organisation = stored.organisation
    require(actor, "usage.decide", organisation)
    # Whoever computes a period holds its row first, and then waits for deliveries, as here.
    periods = BillingPeriod.objects.filter(
        _holding_any(contents_of(stored)), organisation=organisation
    )
    list(periods.select_for_update(no_key=True).order_by("pk"))
    Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
    contents = contents_of(stored)
    digests = sorted(content.event.content for content in contents)
    if digests != sorted(seen):
        raise BillingError(
            f"contents: got {len(seen)} looked at; wanted all {len(digests)}: another one came"
            " since, look again"
        )
    if len(contents) < 2:
        raise BillingError(f"{stored}: one content came under this key; nothing is to be decided")
    late = computed_periods(organisation, contents)
    if late:
        raise BillingError("; ".join(late))
    chosen = next((content for content in contents if content.choice == choice), None)
    if chosen is None:
        raise BillingError(
            f"choice: got {choice!r}; wanted one of {', '.join(c.choice for c in contents)}"
        )
    before = decisions_in_force(organisation).filter(stored=stored).first()
    if (
        before is not None
        and before.content_sha256 == chosen.event.content
        and sorted(before.contents) == digests
    ):
        return before
    row = UsageDecision(
        organisation=organisation,
        source=stored.source,
        event_id=stored.event_id,
        stored=stored,
        line=chosen.line,
        replaces=before,
        contents=digests,
        content_sha256=chosen.event.content,
        time=chosen.event.occurred_at,
        received_at=chosen.event.received_at,
        model=chosen.event.model,
        system=chosen.event.system,
        samples=chosen.event.samples,
        decided_by=actor.user,
        decided_as=_named(actor),
        reason=reason[:300],
    )
    row.save(force_insert=True)
    event_record(
        action="usage.decide",
        actor=actor,
        subject=row,
        organisation=organisation,
        data={
            "source": row.source, "id": row.event_id, "content": row.content_sha256,
            "contents": digests, "samples": row.samples, "reason": row.reason,
            "replaces": str(before.pk) if before else None,
        },
    )  # fmt: skip
    return row


def usage_send_again(*, actor: Actor, line: ParkedUsage) -> tuple[UsageBatch, LineFate]:
    """Send the stored text of an unmatched line again, once its model and system are registered.

    It keeps the time at which it was first received, and gets a fate like any other line.
    """
    organisation = line.batch.organisation
    require(actor, "usage.ingest", organisation)
    if line.fate != "unmatched":
        raise BillingError(f"{line}: got {line.fate}; only an unmatched line is sent again")
    batch, fates = usage_ingest(
        actor=actor, organisation=organisation, lines=[line.line], via="sent again"
    )
    return batch, fates[0]


def _named(actor: Actor) -> str:
    """The person and their role, as the audit trail names them."""
    if isinstance(actor, Membership):
        return f"{actor.user.get_username()} ({actor.role})"
    return "platform" + (f" for {actor.user.get_username()}" if actor.user else "")


def _holding_any(contents: Sequence[Content], prefix: str = "") -> Q:
    """Periods that hold the time of one of the contents."""
    found = Q()
    for content in contents:
        at = content.event.occurred_at
        found |= Q(**{f"{prefix}starts_at__lte": at, f"{prefix}ends_at__gt": at})
    return found
