"""The usage explorer: figures of the engine, added up by the database, each open to its lines."""

import csv
import io
import json
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from metering.plan import Period
from metering.usage import aggregate, read_events
from portal.accounts.services import token_create
from portal.billing.models import UsageEvent
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.usage import usage_ingest
from portal.billing.usage_range import UsageRange
from portal.billing.usage_reads import UsageQuery, counted_events, parked_counts, table_of
from portal.registry.services import system_register

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MONTH = UsageRange(date(2026, 10, 1), date(2026, 11, 1), "Europe/Berlin")
OCTOBER = {"start": "2026-10-01", "end": "2026-11-01", "zone": "Europe/Berlin"}


def event(name: object, when: str, samples: int = 10, **changes: object) -> str:
    data = {"model": "text-encoder", "system": "search-1", "samples": samples}
    value = {
        "specversion": "1.0", "type": "ignition.usage.v1", "source": "gateway-1",
        "id": str(name), "time": when, "data": data, **changes,
    }  # fmt: skip
    return json.dumps(value)


@pytest.fixture
def ingest(cast, agreed):
    def act(*lines: str, who=None, **more) -> None:
        who = who or cast.owner
        usage_ingest(
            actor=who, organisation=who.organisation, lines=list(lines), via="test", **more
        )

    return act


@pytest.fixture
def table(cast):
    def act(asked: UsageRange = MONTH, who=None, **chosen):
        return table_of(who or cast.owner, UsageQuery(asked, **chosen), NOW)

    return act


@pytest.fixture
def page(cast, client):
    def act(route: str = "billing:usage", who=None, args=(), **query):
        client.force_login((who or cast.owner).user)
        return client.get(reverse(route, args=args), query)

    return act


def test_every_day_comes_to_the_engines_figures(cast, ingest, table, machine):
    """Three hundred lines over two months with every fate, cut by day across a change of clocks."""
    system_register(
        actor=cast.owner, organisation=cast.organisation, name="search-2",
        machine=replace(machine, fingerprint="ef" * 32),
    )  # fmt: skip
    chance = random.Random(5)
    lines = []
    for number in range(300):
        moment = datetime(2026, 9, 28, tzinfo=UTC) + timedelta(minutes=chance.randrange(60_000))
        ahead = number % 17 == 0
        received = moment + timedelta(seconds=-301 if ahead else chance.choice((-300, 0, 60)))
        system = chance.choice(("search-1", "search-2"))
        lines.append(
            event(
                number, moment.isoformat(), receivedtime=received.isoformat(),
                data={"model": "text-encoder", "system": system, "samples": number % 7},
            )
        )  # fmt: skip
    lines += lines[10:20]
    for line in lines[30:40]:
        changed = json.loads(line)
        changed["data"]["samples"] += 1
        lines.append(json.dumps(changed))
    chance.shuffle(lines)
    ingest(*lines)
    batch = read_events(lines)
    wanted = {}
    for start, end in zip(MONTH.days, MONTH.days[1:], strict=False):
        day = Period("day", MONTH.zone, start, end)
        for volume in aggregate(batch, day, MONTH.zone).volumes:
            wanted[(start, volume.system)] = (volume.samples, volume.events)
    found = table()
    assert wanted
    assert {
        (row.span.start, row.system): (row.samples, row.events)
        for row in found.rows
        if not row.missing
    } == wanted
    whole = aggregate(batch, Period.month("2026-10", MONTH.zone), MONTH.zone)
    assert (found.samples, found.events) == (whole.samples, whole.accepted)
    # The engine looks at clocks before it looks at the period.
    names = {item.id for item in whole.incidents if item.fate == "future"}
    inside = UsageEvent.objects.filter(time__gte=MONTH.start, time__lt=MONTH.end)
    assert found.fates["future"] == inside.filter(event_id__in=names).count() > 0
    only = table(system="search-2")
    assert only.samples == sum(v.samples for v in whole.volumes if v.system == "search-2")


def test_sums_leave_64_bits_whole(ingest, table):
    most = 2**53 - 1
    ingest(*(event(n, "2026-10-03T08:00:00Z", most) for n in range(1_100)))
    assert table().samples == 1_100 * most > 2**63


def test_an_hour_without_usage_is_missing_and_an_hour_of_zero_is_not(ingest, table):
    # The day on which Berlin's clocks go back has 25 hours; 00:30Z and 01:30Z are its second 02:30.
    day = UsageRange(date(2026, 10, 25), date(2026, 10, 26), "Europe/Berlin")
    ingest(
        event(1, "2026-10-24T22:30:00Z", 5),
        event(2, "2026-10-25T00:30:00Z", 0),
        event(3, "2026-10-25T01:30:00Z", 7),
        event(4, "2026-10-25T23:00:00Z", 9),
    )
    found = table(day)
    assert (len(found.rows), found.hours_ended, found.hours_missing) == (25, 25, 22)
    assert [row.samples for row in found.rows[:5]] == [5, None, 0, 7, None]
    assert [row.span.label for row in found.rows[2:4]] == [
        "2026-10-25 02:00+0200", "2026-10-25 02:00+0100",
    ]  # fmt: skip
    assert (found.samples, found.events) == (12, 3)


def test_hours_that_are_not_over_are_not_missing(ingest, cast):
    ingest(event(1, "2026-11-20T09:10:00Z"))
    day = UsageQuery(UsageRange(date(2026, 11, 20), date(2026, 11, 21), "UTC"))
    found = table_of(cast.owner, day, NOW)
    assert (found.hours_ended, found.hours_missing, len(found.rows)) == (12, 11, 12)


@pytest.mark.parametrize(
    ("zone", "first", "width"),
    [
        ("Europe/Berlin", date(2026, 10, 24), 3600),
        ("Australia/Lord_Howe", date(2026, 10, 3), 1800),  # half an hour forward on the 4th
        ("Asia/Kathmandu", date(2026, 10, 3), 3600),
        ("Asia/Kathmandu", date(1985, 12, 31), 900),  # a quarter of an hour forward
    ],
)
def test_slots_fit_every_day_of_a_zone(zone, first, width):
    asked = UsageRange(first, first + timedelta(days=5), zone)
    assert asked.slot_s == width
    for day in asked.days:
        assert (day - asked.start) % timedelta(seconds=width) == timedelta(0)


def test_half_an_hour_of_clock_change_moves_no_work_to_another_day(ingest, table):
    asked = UsageRange(date(2026, 10, 3), date(2026, 10, 9), "Australia/Lord_Howe")
    edge = asked.days[3]
    ingest(
        event(1, (edge - timedelta(minutes=10)).isoformat(), 3),
        event(2, (edge + timedelta(minutes=10)).isoformat(), 4),
    )
    days = {row.span.label: row.samples for row in table(asked).rows if not row.missing}
    assert days == {"2026-10-05": 3, "2026-10-06": 4}


def test_what_counts_follows_contract_and_computed_period(cast, approved, ingest, table):
    ingest(event(1, "2026-10-05T08:00:00Z", 100), event(2, "2025-12-31T22:00:00Z", 9))
    assert table().fates == {"pending": 1}
    early = UsageRange(date(2025, 12, 30), date(2026, 1, 2), "UTC")
    assert table(early).fates == {"early": 1}
    period = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-10"
    )
    record = savings_compute(actor=cast.finance, period=period, measurement=approved)
    ingest(event(3, "2026-10-06T08:00:00Z", 50), event(4, "2026-11-01T08:00:00Z", 1))
    found = table()
    assert found.fates == {"accepted": 1, "late": 1}
    assert found.samples == record.volume_samples == 100


def test_what_is_contested_counts_for_nobody(cast, ingest, table):
    ingest(event(1, "2026-10-05T08:00:00Z", 100), event(2, "2026-10-05T09:00:00Z", 1))
    ingest(event(1, "2026-10-05T08:00:00Z", 101))
    assert (table().samples, table().fates) == (1, {"pending": 1, "conflict": 1})


def test_page_file_and_api_say_the_same(cast, ingest, page, client):
    ingest(
        event(1, "2026-10-05T08:00:00Z", 1_234),
        event(1, "2026-10-05T08:00:00Z", 1_234),
        event(2, "2026-10-07T08:00:00Z", 6, source="gateway-2"),
        event(3, "2026-10-07T08:00:00Z", data={"model": "m", "system": "s", "samples": 1}),
    )
    text = page(**OCTOBER).content.decode()
    for words in ("1,240", "[2026-10-01, 2026-11-01)", "Europe/Berlin", "no usage came",
                  "/api/v1/usage/volumes?start=2026-10-01", "unmatched"):  # fmt: skip
        assert words in text, words
    rows = list(csv.DictReader(io.StringIO(page(format="csv", **OCTOBER).content.decode())))
    _, token = token_create(actor=cast.auditor, name="t", scopes=["read"])
    head = {"Authorization": f"Bearer {token}"}
    answer = client.get("/api/v1/usage/volumes", OCTOBER, headers=head).json()
    assert (answer["samples"], answer["events"], answer["step"]) == (1_240, 2, "day")
    assert [row["samples"] for row in rows] == [
        "" if row["samples"] is None else str(row["samples"]) for row in answer["rows"]
    ]
    assert len(rows) == 31
    # Every fate is named, also those of no line.
    assert answer["fates"] == {
        "accepted": 0, "pending": 2, "late": 0, "early": 0, "future": 0, "duplicate": 1,
        "conflict": 0, "overruled": 0, "decided": 0, "negative": 0, "unmatched": 1, "malformed": 0,
    }  # fmt: skip
    chosen = client.get("/api/v1/usage/volumes", OCTOBER | {"source": "gateway-2"}, headers=head)
    assert chosen.json()["samples"] == 6


def test_a_count_leads_to_exactly_its_lines(cast, ingest, page, client):
    ingest(
        event(1, "2026-10-05T08:00:00Z"), event(1, "2026-10-05T08:00:00Z"),
        event(2, "2026-10-05T08:00:00Z", -4), "no json",
        event(3, "2026-10-05T09:00:00Z", receivedtime="2026-10-05T08:00:00Z"),
    )  # fmt: skip
    today = timezone.now().date()
    query = UsageQuery(UsageRange(today, today + timedelta(days=1), "UTC"))
    # What has no readable time stands where it arrived.
    counts = parked_counts(actor=cast.owner, query=query)
    assert (counts["negative"], counts["malformed"], counts["duplicate"]) == (1, 1, 0)
    text = page(**OCTOBER).content.decode()
    for fate, wanted in (("duplicate", 1), ("future", 1), ("pending", 1)):
        link = next(part for part in text.split('href="') if f"fate={fate}" in part)
        listed = client.get(link.split('"')[0].replace("&amp;", "&"))
        assert f"{wanted} in all" in listed.content.decode(), fate
    day = next(part for part in text.split('href="') if "start=2026-10-05" in part)
    # A day's figure leads to the stored events of that day, ahead of their time or not.
    assert "2 in all" in client.get(day.split('"')[0].replace("&amp;", "&")).content.decode()


def test_an_event_opens_to_the_line_and_its_four_times(cast, approved, ingest, page):
    line = event(1, "2026-10-05T08:00:00Z", subject="a < b", receivedtime="2026-10-05T08:00:09Z")
    ingest(line)
    period = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-10"
    )
    record = savings_compute(actor=cast.finance, period=period, measurement=approved)
    invoice = invoice_issue(actor=cast.finance, savings=record)
    stored = UsageEvent.objects.get()
    text = page("billing:usage-event", args=[stored.pk]).content.decode()
    for words in (
        "2026-10-05 08:00:00Z", "2026-10-05 08:00:09Z", "[2026-10-01, 2026-11-01)", invoice.number,
        "a &lt; b", stored.content_sha256, "this source and id came once",
    ):  # fmt: skip
        assert words in text, words
    assert page("billing:usage-event", who=cast.outsider, args=[stored.pk]).status_code == 404


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("end", "2026-10-01", "wanted a day after 2026-10-01"),
        ("end", "2027-10-01", "wanted at most 92"),
        ("start", "0001-01-01", "wanted a day from 1971-01-01"),
        ("start", "yesterday", "Enter a valid date"),
        ("zone", "+01:00", "an IANA zone"),
        ("zone", "../etc/passwd", "an IANA zone"),
        ("model", "of-somebody-else", "Select a valid choice"),
    ],
)
def test_a_wrong_field_is_named_and_what_was_typed_stays(cast, page, client, field, value, words):
    answer = page(**{**OCTOBER, field: value})
    text = answer.content.decode()
    assert answer.status_code == 400
    assert words in text
    assert f'id="id_{field}_error"' in text
    for name, typed in {**OCTOBER, field: value}.items():
        assert name == "model" or f'value="{typed}"' in text, name
    _, token = token_create(actor=cast.owner, name="t", scopes=["read"])
    refused = client.get(
        "/api/v1/usage/volumes",
        {**OCTOBER, field: value},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert refused.status_code == 422
    assert refused.json()["error"].startswith(f"{field}: ")
    for route in ("billing:usage-events", "billing:usage-parked"):
        if field != "model" or route == "billing:usage-events":
            assert page(route, format="csv", **{**OCTOBER, field: value}).status_code == 400


def test_without_a_choice_the_newest_usage_is_shown(cast, agreed, ingest, page):
    assert "Nothing here yet" in page().content.decode()
    ingest(event(1, "2026-08-05T08:00:00Z"), event(2, "2026-08-31T22:30:00Z"))
    assert "[2026-09-01, 2026-10-01)" in page().content.decode()
    assert "No usage in this range" in page(**OCTOBER).content.decode()
    assert "Nothing here yet" in page(who=cast.outsider, **OCTOBER).content.decode()


def test_another_organisation_adds_nothing(cast, ingest, table):
    ingest(event(1, "2026-10-05T08:00:00Z", 8))
    ingest(event(1, "2026-10-05T08:00:00Z", 9), who=cast.outsider)
    assert table().samples == 8
    assert table(who=cast.outsider).events == 0
    assert table(who=cast.operator).events == 0


def test_a_file_of_too_many_lines_is_refused_with_a_way_out(cast, ingest, page, monkeypatch):
    from portal.billing import views_explorer

    ingest(*(event(n, "2026-10-05T08:00:00Z") for n in range(3)))
    monkeypatch.setattr(views_explorer, "MOST_CSV_LINES", 2)
    answer = page("billing:usage-events", format="csv", **OCTOBER)
    assert answer.status_code == 400
    assert b"Choose a shorter range" in answer.content
    monkeypatch.setattr(views_explorer, "MOST_CSV_LINES", 3)
    assert page("billing:usage-events", format="csv", **OCTOBER).content.count(b"\n") == 4


def test_one_grouped_query_reads_the_range_by_its_index(cast, ingest, django_assert_num_queries):
    ingest(*(event(n, f"2026-10-{n % 28 + 1:02d}T08:00:00Z") for n in range(60)))
    query = UsageQuery(MONTH)
    # Keys in conflict, decisions, computed periods, contracts, the sum itself, decided lines.
    with django_assert_num_queries(6) as asked:
        assert sum(row.events for row in counted_events(actor=cast.owner, query=query)) == 60
    grouped = [item["sql"] for item in asked.captured_queries if "GROUP BY" in item["sql"]]
    assert len(grouped) == 1
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + grouped[0].replace("%", "%%"))
            plan = " ".join(str(row[-1]) for row in cursor.fetchall())
        assert "usage_event_time" in plan
