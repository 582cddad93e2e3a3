"""Reads of the audit trail; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import scope
from portal.accounts.models import Membership
from portal.events.models import Event


def event_list(*, actor: Membership) -> QuerySet[Event]:
    """Events of the actor's organisation, in order."""
    return scope(actor, Event.objects.select_related("actor"), "events")


def subject_history(*, actor: Membership, subject_id: object) -> QuerySet[Event]:
    """What happened to one object, as far as the actor may see it."""
    return event_list(actor=actor).filter(subject_id=str(subject_id))
