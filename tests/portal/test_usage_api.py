"""CloudEvents 1.0 over HTTP: three content modes, one id for ever, what conflicts is seen."""

import json
from urllib.parse import quote

import pytest
from django.test import Client

from portal.accounts.services import token_create
from portal.billing.models import ParkedUsage, UsageEvent
from portal.events.models import Event
from tests.portal.test_usage_ingest import event

BATCH = "application/cloudevents-batch+json"
STRUCTURED = "application/cloudevents+json"


@pytest.fixture
def send(client: Client, cast, agreed):
    """Deliver a body with the owner's token; the answer's status and fates."""
    _, token = token_create(actor=cast.owner, name="test", scopes=["usage:write"])

    def act(body: str | bytes, content_type: str, **headers: str) -> tuple[int, list[str]]:
        answer = client.post(
            "/api/v1/usage/events",
            data=body,
            content_type=content_type,
            headers={"Authorization": f"Bearer {token}", **headers},
        )
        return answer.status_code, [fate["fate"] for fate in answer.json().get("fates", ())]

    return act


def binary_headers(line: str) -> dict[str, str]:
    """The attributes of an event as headers of the binary content mode."""
    attributes = json.loads(line)
    del attributes["data"]
    return {f"ce-{name}": quote(value, safe=" ") for name, value in attributes.items()}


def test_the_same_event_in_each_content_mode_is_the_same_event(send):
    line = event(1, source="gäteway 1", datacontenttype="application/json")
    headers = binary_headers(line)
    del headers["ce-datacontenttype"]
    body = json.dumps(json.loads(line)["data"])
    assert send(body, "application/json", **headers) == (200, ["stored"])
    assert send(line, STRUCTURED) == (200, ["duplicate"])
    assert send(f"[{line}]", BATCH) == (200, ["duplicate"])
    assert send(line, "application/x-ndjson") == (200, ["duplicate"])
    stored = UsageEvent.objects.get()
    assert (stored.source, stored.samples) == ("gäteway 1", 10)
    assert stored.received_at is not None


def test_one_event_with_other_content_is_a_conflict_and_an_incident(send):
    """Same key, same hash: 200 duplicate; other hash: 409, parked, in the audit trail."""
    assert send(event(1), STRUCTURED) == (200, ["stored"])
    assert send(event(1, samples=11), STRUCTURED) == (409, ["conflict"])
    headers = binary_headers(event(1))
    body = json.dumps(json.loads(event(1, samples=12))["data"])
    assert send(body, "application/json", **headers) == (409, ["conflict"])
    assert ParkedUsage.objects.filter(fate="conflict").count() == 2
    told = Event.objects.filter(action="usage.conflict")
    assert told.count() == 2
    assert told.first().data == {"events": 1, "first": [["gateway-1", "e1"]]}
    assert UsageEvent.objects.get().samples == 10


def test_a_conflict_in_a_batch_does_not_keep_the_others_out(send):
    assert send(event(1), STRUCTURED) == (200, ["stored"])
    body = f"[{event(1, samples=11)},\n {event(2)}]"
    assert send(body, BATCH) == (200, ["conflict", "stored"])


def test_an_indented_batch_reads_as_a_plain_one(send):
    plain = [json.loads(event(number)) for number in (1, 2, 3)]
    assert send(json.dumps(plain, indent=2), BATCH) == (200, ["stored"] * 3)
    assert send(json.dumps(plain), BATCH) == (200, ["duplicate"] * 3)
    assert send("[ ]", BATCH) == (200, [])


@pytest.mark.parametrize(
    ("line", "fate"),
    [
        (event(1, source="nul\0"), "malformed"),
        (event(1, id="x" * 201), "malformed"),
        (event(1, id="\ud800"), "malformed"),
        (event(1, id="x" * 200), "stored"),
        (event(1, source="東" * 200), "stored"),
        ("raw nul \0", "malformed"),
        ("{}", "malformed"),
        ("[" * 3_000, "malformed"),
        (event(1, note='quo"te'), "stored"),
        (event(1, receivedtime="2020-01-01T00:00:00Z"), "stored"),
        (event(1, note="receivedtime"), "stored"),
        (event(1) + "}", "malformed"),
        (event(1)[:-1], "malformed"),
    ],
    ids=range(13),
)
def test_what_no_column_can_hold_is_parked_not_an_error(send, line, fate):
    assert send(line, "application/x-ndjson") == (200, [fate])
    if fate != "stored":
        assert ParkedUsage.objects.get().fate == fate
    else:
        assert UsageEvent.objects.get().received_at.year > 2020


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("not json", {"ce-specversion": "1.0"}),
        ("{}", {"ce-specversion": "1.0", "ce-source": "%FF"}),
        ('{"samples": 1.5}', {"ce-specversion": "1.0"}),
    ],
)
def test_a_binary_event_that_cannot_be_read_is_refused_whole(send, body, headers):
    assert send(body, "text/plain", **headers) == (422, [])
    assert UsageEvent.objects.count() == ParkedUsage.objects.count() == 0


def test_openmeter_5118_a_delivery_that_failed_has_taken_no_key(send, monkeypatch):
    """openmeterio/openmeter#5118: fail after the keys were settled, send again: one event."""
    from portal.billing import usage

    def fail(**_):
        raise ConnectionError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(usage, "event_record", fail)
        with pytest.raises(ConnectionError):
            send(event(1), STRUCTURED)
    assert UsageEvent.objects.count() == 0
    assert send(event(1), STRUCTURED) == (200, ["stored"])
    assert UsageEvent.objects.count() == 1


def test_a_delivery_costs_the_same_queries_however_long_it_is(send, django_assert_max_num_queries):
    def body(first: int, count: int) -> str:
        return "[" + ",".join(event(number) for number in range(first, first + count)) + "]"

    send(body(0, 1), BATCH)
    with django_assert_max_num_queries(16):
        assert send(body(1, 400), BATCH)[0] == 200
    assert UsageEvent.objects.count() == 401
