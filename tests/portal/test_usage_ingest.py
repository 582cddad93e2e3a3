"""Deliveries of usage: every line gets a fate, a key counts once per organisation for ever."""

import json
import threading
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.http import Http404

from portal.accounts.access import NotAllowed
from portal.billing.models import ParkedUsage, UsageBatch, UsageEvent
from portal.billing.services import period_open
from portal.billing.usage import period_lines, period_totals, usage_ingest


def event(number: int, samples: int = 10, **changes: object) -> str:
    value = {
        "specversion": "1.0",
        "type": "ignition.usage.v1",
        "source": "gateway-1",
        "id": f"e{number}",
        "time": "2026-10-03T08:00:00Z",
        "data": {"model": "text-encoder", "system": "search-1", "samples": samples},
        **changes,
    }
    return json.dumps(value)


@pytest.fixture
def ingest(cast, agreed):
    def act(lines: list[str], actor=None, **more):
        actor = actor or cast.owner
        batch, fates = usage_ingest(
            actor=actor, organisation=cast.organisation, lines=lines, via="test", **more
        )
        return batch, [fate.fate for fate in fates]

    return act


def test_each_line_has_a_fate(ingest):
    lines = [
        event(1),
        event(1),
        event(1, samples=11),
        "no json",
        event(2, samples=-1),
        event(3, data={"model": "other", "system": "search-1", "samples": 1}),
        event(4),
    ]
    batch, fates = ingest(lines)
    assert fates == [
        "stored", "duplicate", "conflict", "malformed", "negative", "unmatched", "stored",
    ]  # fmt: skip
    assert (batch.lines, batch.accepted, batch.duplicates, batch.conflicts, batch.rejected) == (
        (7, 2, 1, 1, 3)
    )
    assert batch.accepted + ParkedUsage.objects.filter(batch=batch).count() == batch.lines


def test_same_delivery_again_counts_nothing(ingest):
    ingest([event(1), event(2)])
    _, fates = ingest([event(1), event(2), event(3)])
    assert fates == ["duplicate", "duplicate", "stored"]
    assert UsageEvent.objects.count() == 3


def test_key_is_per_organisation(cast, ingest):
    """One customer's ids can never suppress another's."""
    ingest([event(1)])
    _, fates = usage_ingest(
        actor=cast.outsider,
        organisation=cast.outsider.organisation,
        lines=[event(1)],
        via="test",
    )
    # Not a duplicate of the other organisation's event: it is judged on its own registry.
    assert [fate.fate for fate in fates] == ["unmatched"]


def test_unmatched_can_be_sent_again_once_registered(cast, ingest, machine):
    from dataclasses import replace

    from portal.registry.services import system_register

    line = event(1, data={"model": "text-encoder", "system": "search-2", "samples": 5})
    assert ingest([line])[1] == ["unmatched"]
    system_register(
        actor=cast.owner,
        organisation=cast.organisation,
        name="search-2",
        machine=replace(machine, fingerprint="ef" * 32),
    )
    assert ingest([line])[1] == ["stored"]


def test_receiver_stamps_the_time(ingest):
    moment = datetime(2026, 10, 3, 9, 0, tzinfo=UTC)
    ingest([event(1, receivedtime="2020-01-01T00:00:00Z")], received_at=moment)
    assert UsageEvent.objects.get().received_at == moment


@pytest.mark.parametrize("who", ["auditor", "finance", "operator"])
def test_who_may_deliver(cast, ingest, who):
    with pytest.raises(NotAllowed):
        ingest([event(1)], actor=getattr(cast, who))


def test_outsider_cannot_deliver_for_another(cast, ingest):
    with pytest.raises(Http404):
        ingest([event(1)], actor=cast.outsider)


def test_period_totals_follow_the_engine(cast, agreed, ingest):
    ingest(
        [
            event(1, samples=100),
            event(2, samples=50, time="2026-09-30T21:59:59Z"),  # September in Berlin
            event(3, samples=7, time="2026-09-30T22:00:00Z"),  # October in Berlin
            event(1, samples=100),
        ]
    )
    ingest([event(4, samples=1), event(5, samples=2)])
    ingest([event(5, samples=3)])  # a conflict: nobody's volume until decided
    period = period_open(actor=cast.platform, contract_version=agreed, label="2026-10")
    lines = list(period_lines(period))
    totals = period_totals(period, lines)
    assert totals.samples == 100 + 7 + 1
    assert (totals.accepted, totals.duplicates, totals.conflicts) == (3, 1, 2)
    assert totals.rows == len(lines)


@pytest.mark.django_db(transaction=True)
def test_two_deliveries_at_once_count_once(threads_db, cast, agreed):
    lines = [event(number) for number in range(40)]
    errors: list[BaseException] = []

    def deliver() -> None:
        try:
            usage_ingest(actor=cast.owner, organisation=cast.organisation, lines=lines, via="test")
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert UsageEvent.objects.count() == 40
    assert sorted(UsageBatch.objects.values_list("accepted", flat=True)) == [0, 0, 0, 40]
