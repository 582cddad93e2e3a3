"""The audit trail: one event per change, chained, append-only, checkable."""

import pytest
from django.db import DatabaseError, connection, transaction

from portal import triggers
from portal.accounts.services import member_add
from portal.events.models import Event
from portal.events.services import chain_check, event_record
from portal.records import IssuedError


def test_whole_story_is_one_chain(approved):
    actions = list(Event.objects.values_list("action", flat=True))
    for action in (
        "system.register",
        "contract.draft",
        "plan.sign",
        "baseline.freeze",
        "tuning.record",
        "package.store",
        "measurement.record",
        "review.open",
        "review.approve",
    ):
        assert action in actions
    check = chain_check()
    assert check.ok, check.problem
    assert check.events == len(actions)


def test_event_and_change_live_or_die_together(cast):
    before = Event.objects.count()

    class Undo(Exception):
        pass

    @transaction.atomic
    def add_then_fail() -> None:
        member_add(actor=cast.owner, organisation=cast.organisation, username="new", role="finance")
        raise Undo

    with pytest.raises(Undo):
        add_then_fail()
    assert Event.objects.count() == before


@pytest.mark.django_db(transaction=True)
def test_no_event_outside_a_transaction(threads_db, cast):
    with pytest.raises(RuntimeError, match="inside the service's transaction"):
        event_record(action="x.y", actor=cast.owner, subject=cast.organisation, organisation=None)


def test_model_refuses_change(cast):
    event = Event.objects.first()
    assert event is not None
    with pytest.raises(IssuedError):
        event.save()
    with pytest.raises(IssuedError):
        event.delete()
    with pytest.raises(IssuedError):
        Event.objects.update(action="nothing.happened")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events_event SET action = 'nothing.happened' WHERE seq = 2",
        "DELETE FROM events_event WHERE seq = 2",
    ],
)
def test_database_refuses_change(cast, statement):
    with (
        pytest.raises(DatabaseError, match="never change"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE events_event SET action = 'a.b' WHERE seq = 2", "event 2 was changed"),
        ("UPDATE events_event SET actor_label = 'x' WHERE seq = 3", "event 3 was changed"),
        ("UPDATE events_event SET data = '{}' WHERE seq = 2", "event 2 was changed"),
        ("DELETE FROM events_event WHERE seq = 2", "event 2 is missing"),
    ],
)
def test_whoever_gets_past_the_triggers_is_seen(cast, statement, problem):
    triggers.remove()
    with connection.cursor() as cursor:
        cursor.execute(statement)
    triggers.install()
    check = chain_check()
    assert not check.ok
    assert check.problem == problem
