"""Writing and checking the audit trail.

In: what a service just did. Out: one chained row in the service's own transaction, so that a
change and its event live or die together. Data must be free of floats (amounts are text).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC

from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from metering.canonical import digest
from portal.accounts.access import Actor
from portal.accounts.models import Membership, Organisation
from portal.events.models import Event

GENESIS = "0" * 64
# One writer at a time, or two events would name the same parent.
LOCK_ID = 0x49474E49


@dataclass(frozen=True)
class ChainCheck:
    """Whether the trail is whole, and where it is not."""

    ok: bool
    events: int
    problem: str


def event_record(
    *,
    action: str,
    actor: Actor,
    subject: Model,
    organisation: Organisation | None,
    data: Mapping[str, object] | None = None,
) -> Event:
    """Append one event to the chain; must run inside the transaction of the change it tells.

    `action` is `thing.verb`. RuntimeError outside a transaction: an event that can outlive its
    change, or the other way round, is no evidence.
    """
    if not connection.in_atomic_block:
        raise RuntimeError(f"event {action}: must be recorded inside the service's transaction")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_ID])
    last = Event.objects.order_by("-seq").first()
    label = (
        f"{actor.user.get_username()} ({actor.role})"
        if isinstance(actor, Membership)
        else "platform" + (f" for {actor.user.get_username()}" if actor.user else "")
    )
    event = Event(
        seq=(last.seq if last else 0) + 1,
        at=timezone.now().astimezone(UTC),
        action=action,
        actor=actor.user,
        actor_label=label,
        organisation=organisation,
        subject_type=subject._meta.label_lower,
        subject_id=str(subject.pk),
        data=dict(data or {}),
        previous_sha256=last.sha256 if last else GENESIS,
        sha256="",
    )
    event.sha256 = event_digest(event)
    event.save(force_insert=True)
    return event


def event_digest(event: Event) -> str:
    """SHA-256 of the event's canonical JSON, its parent's digest included."""
    return digest(
        {
            "seq": event.seq,
            "at": event.at.astimezone(UTC).isoformat(timespec="microseconds"),
            "action": event.action,
            "actor": event.actor_id,
            "actor_label": event.actor_label,
            "organisation": str(event.organisation_id) if event.organisation_id else None,
            "subject_type": event.subject_type,
            "subject_id": event.subject_id,
            "data": event.data,
            "previous": event.previous_sha256,
        }
    )


@transaction.atomic
def chain_check() -> ChainCheck:
    """Read the whole trail in order and recompute every digest; the first fault is named.

    A cut tail is not visible here: the transparency log's checkpoints are what shows it.
    """
    previous, expected = GENESIS, 1
    for event in Event.objects.order_by("seq").iterator():
        if event.seq != expected:
            return ChainCheck(False, expected - 1, f"event {expected} is missing")
        if event.previous_sha256 != previous:
            return ChainCheck(False, expected, f"event {event.seq} names another parent")
        if event_digest(event) != event.sha256:
            return ChainCheck(False, expected, f"event {event.seq} was changed")
        previous, expected = event.sha256, expected + 1
    return ChainCheck(True, expected - 1, "")
