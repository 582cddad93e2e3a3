"""Usage events: every line has a fate, and neither order nor repetition moves a volume."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import (
    EVENT_TYPE,
    TrafficShare,
    UsageTotals,
    aggregate,
    generate_month,
    read_events,
)
from tests.metering.money_cases import UNHURRIED, ZONE

PERIOD = Period.month("2026-11", ZONE)
INSIDE = "2026-11-03T08:00:00Z"


def event(identifier: str = "e1", **changes: Any) -> dict[str, Any]:
    """One event inside November 2026."""
    base = {
        "specversion": "1.0",
        "type": EVENT_TYPE,
        "source": "gateway",
        "id": identifier,
        "time": INSIDE,
        "data": {"model": "m", "system": "s", "samples": 10},
    }
    return {**base, **changes}


def samples(count: Any, model: str = "m") -> dict[str, Any]:
    return {"model": model, "system": "s", "samples": count}


def total(*events: dict[str, Any], **options: Any) -> UsageTotals:
    batch = read_events(json.dumps(one) for one in events)
    totals = aggregate(batch, PERIOD, ZONE, **options)
    assert totals.rows == sum(totals.counts.values()) == len(events)
    assert totals.samples == sum(volume.samples for volume in totals.volumes)
    return totals


# Public reports


@pytest.mark.parametrize(
    ("report", "events", "volume", "duplicates"),
    [
        ("openmeterio/openmeter#5118 retry after failure", [event()] * 2, 10, 1),
        ("langfuse/langfuse#16292 replay", [event("a"), event("b"), event("a"), event("b")], 20, 2),
        ("PostHog/posthog#17168", [event()] * 3, 10, 2),
        ("getlago/lago-api#5416", [event()] * 3, 10, 2),
        ("cloudfoundry-attic/cf-abacus#434", [event("u2"), event("u1"), event("u2")], 20, 1),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_repetition_counts_once(
    report: str, events: list[dict[str, Any]], volume: int, duplicates: int
) -> None:
    totals = total(*events)
    assert (totals.samples, totals.duplicates) == (volume, duplicates), report


def test_order_does_not_change_the_content_digest() -> None:
    """cloudfoundry-attic/cf-abacus#434: u2, u1, u2 has the ledger hash of u1, u2."""
    one = total(event("u2"), event("u1"), event("u2"))
    two = total(event("u1"), event("u2"))
    assert one.content_sha256 == two.content_sha256
    assert one.input_sha256 != two.input_sha256


def test_the_time_of_the_event_decides_not_the_time_it_was_sent() -> None:
    """tuist/tuist#11903: occurred 30 November 23:50, sent on 1 December."""
    late = event(time="2026-11-30T22:50:00Z", receivedtime="2026-12-01T06:00:00Z")
    totals = total(late)
    assert (totals.samples, totals.arrived_after_end) == (10, 1)


def test_a_time_is_never_guessed() -> None:
    """tuist/tuist#11903: an event without a time has no period."""
    without = event()
    del without["time"]
    assert total(without).count("malformed") == 1


def test_the_cutoff_looks_at_the_time_of_receipt() -> None:
    """openmeterio/openmeter#4179: happened in the month, stored before or after the cutoff."""
    cutoff = datetime(2026, 12, 3, tzinfo=UTC)
    before = event("a", receivedtime="2026-12-02T23:59:59Z")
    after = event("b", receivedtime="2026-12-03T00:00:01Z")
    totals = total(before, after, cutoff=cutoff)
    assert (totals.accepted, totals.late, totals.samples) == (1, 1, 10)
    assert "next invoice" in totals.incidents[0].reason


def test_three_periods_late_is_a_proposed_correction_not_silence() -> None:
    """killbill/killbill#876."""
    totals = total(event(time="2026-08-10T00:00:00Z"))
    assert (totals.samples, totals.late) == (0, 1)
    assert "correction" in totals.incidents[0].reason
    assert "2026-08" in totals.incidents[0].reason


def test_usage_from_before_the_contract_is_not_billed() -> None:
    """polarsource/polar#5345."""
    start = datetime(2026, 11, 4, tzinfo=UTC)
    totals = total(event("a"), event("b", time="2026-11-04T00:00:00Z"), not_before=start)
    assert (totals.early, totals.samples) == (1, 10)


def test_the_sum_over_periods_is_the_sum_of_the_events() -> None:
    """authgear/authgear-server#2168: the last hours of a cycle were never billed."""
    start = datetime(2026, 9, 1, tzinfo=UTC)
    events = [
        event(f"e{hour}", time=(start + timedelta(hours=hour)).isoformat(), data=samples(hour))
        for hour in range(24 * 100)
    ]
    batch = read_events(json.dumps(one) for one in events)
    months = [Period.month(f"2026-{month:02d}", ZONE) for month in (9, 10, 11, 12)]
    assert sum(aggregate(batch, month, ZONE).samples for month in months) == sum(range(24 * 100))


def test_a_negative_volume_is_an_incident_not_a_clamp() -> None:
    """opencost/opencost#3387, #3574."""
    totals = total(event("a", data=samples(-10)), event("b"))
    assert (totals.count("negative"), totals.samples) == (1, 10)
    assert totals.incidents[0].reason.startswith("data.samples: got -10")


# Fates


def test_one_key_with_two_contents_counts_for_nobody_in_any_order() -> None:
    one, two = event("k"), event("k", data=samples(99))
    for events in ([one, two, event("z")], [two, event("z"), one]):
        totals = total(*events)
        assert (totals.conflicts, totals.samples) == (2, 10)
    assert [incident.fate for incident in totals.incidents] == ["conflict", "conflict"]


def test_what_was_stored_before_is_a_duplicate_or_a_conflict() -> None:
    content = read_events([json.dumps(event("k"))]).events[0].content
    stored = {("gateway", "k"): content}
    again, other = event("k"), event("k", data=samples(99))
    totals = total(again, other, event("z"), stored=stored)
    assert (totals.duplicates, totals.conflicts, totals.samples) == (1, 1, 10)


def test_the_same_id_from_another_source_is_another_event() -> None:
    assert total(event("k"), event("k", source="other")).samples == 20


def test_receipt_is_not_content() -> None:
    one = event("k", receivedtime="2026-11-03T08:00:01Z")
    two = event("k", receivedtime="2026-11-09T08:00:01Z")
    assert total(two, one).duplicates == 1
    cutoff = datetime(2026, 11, 5, tzinfo=UTC)
    assert total(two, one, cutoff=cutoff).accepted == total(one, two, cutoff=cutoff).accepted == 1


def test_the_same_instant_in_another_offset_is_the_same_content() -> None:
    assert total(event("k"), event("k", time="2026-11-03T09:00:00+01:00")).duplicates == 1


def test_later_future_and_unmatched_events_are_named() -> None:
    totals = total(
        event("a", time="2026-12-01T08:00:00Z"),
        event("b", time="2026-11-20T08:00:00Z", receivedtime="2026-11-03T08:00:00Z"),
        event("c", data=samples(5, model="unknown")),
        event("d", receivedtime="2026-11-03T07:56:00Z"),
        known={("m", "s")},
    )
    assert [totals.count(fate) for fate in ("later", "future", "unmatched")] == [1, 1, 1]
    assert (totals.accepted, totals.rejected) == (1, 2)
    assert [incident.line for incident in totals.incidents] == [1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        "null",
        '{"specversion": "1.0"}',
        json.dumps(event(specversion="0.3")),
        json.dumps(event(type="other.v1")),
        json.dumps(event(source="")),
        json.dumps(event(id=5)),
        json.dumps(event(time="2026-11-03 08:00")),
        json.dumps(event(time="2026-11-03T08:00:00")),
        json.dumps(event(datacontenttype="text/plain")),
        json.dumps(event(data=None)),
        json.dumps(event(data={"model": "m", "system": "s"})),
        json.dumps(event(data=samples("10"))),
        json.dumps(event(data=samples(1.5))),
        json.dumps(event(data=samples(True))),
        json.dumps(event(data=samples(2**53))),
        json.dumps(event(data={**samples(1), "price": "1"})),
        json.dumps(event())[:-1] + ', "id": "twice"}',
        json.dumps(event(note="x" * 70_000)),
        json.dumps(event(id="\ud800")),
        json.dumps(event(source="nul\0")),
        json.dumps(event(id="x" * 201)),
        b"\xff\xfe{}",
        "[" * 50_000,
        '{"data": ' + "9" * 5000 + "}",
    ],
    ids=range(26),
)
def test_a_line_that_is_no_event_is_refused_with_its_number(line: str | bytes) -> None:
    batch = read_events([json.dumps(event("good")), line])
    totals = aggregate(batch, PERIOD, ZONE)
    assert (totals.accepted, totals.count("malformed"), totals.rows) == (1, 1, 2)
    assert totals.incidents[0].line == 2
    assert len(totals.incidents[0].reason) < 400


def test_blank_lines_are_no_rows_and_line_endings_do_not_matter() -> None:
    text = json.dumps(event())
    unix, windows = read_events([text + "\n", "\n"]), read_events([text + "\r\n", "\r\n"])
    assert (unix.events, unix.sha256) == (windows.events, windows.sha256)
    assert unix.rows == windows.rows == 1


def test_the_zone_must_be_the_one_the_period_was_cut_in() -> None:
    with pytest.raises(Refusal, match="cut the period"):
        aggregate(read_events([]), PERIOD, "UTC")


def test_totals_survive_json_and_refuse_contradictions() -> None:
    totals = total(event("a"), event("a"), event("b", data=samples(-1)), event("c"))
    value = canonical.loads(canonical.dumps(totals.to_json()))
    assert UsageTotals.from_json(value) == totals
    for change in ({"rows": 9}, {"samples": 9}, {"extra": 1}):
        with pytest.raises(Refusal):
            UsageTotals.from_json({**totals.to_json(), **change})
    with pytest.raises(Refusal, match="one of accepted"):
        totals.count("lost")


EVENTS = st.lists(
    st.builds(
        lambda number, count, day, received: event(
            f"e{number}",
            data=samples(count),
            time=f"2026-11-{day:02d}T08:00:00Z",
            **({"receivedtime": f"2026-12-{received:02d}T08:00:00Z"} if received else {}),
        ),
        st.integers(0, 6),
        st.integers(0, 3),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    max_size=12,
)


@UNHURRIED
@given(EVENTS, st.randoms(use_true_random=False))
def test_order_and_repetition_never_change_a_volume(
    events: list[dict[str, Any]], rng: random.Random
) -> None:
    cutoff = datetime(2026, 12, 2, tzinfo=UTC)
    first = total(*events, cutoff=cutoff)
    again = [*events, *events]
    rng.shuffle(again)
    second = total(*again, cutoff=cutoff)
    assert (first.volumes, first.content_sha256) == (second.volumes, second.content_sha256)


@UNHURRIED
@given(st.lists(st.binary(max_size=60) | st.text(max_size=60), max_size=6))
def test_no_line_whatever_stops_the_reading(lines: list[bytes | str]) -> None:
    batch = read_events(lines)
    assert batch.rows == len(batch.events) + len(batch.refused)


@UNHURRIED
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*event(), "data"]), inner, max_size=6)
        ),
        max_leaves=12,
    )
)
def test_no_json_whatever_stops_the_reading(value: Any) -> None:
    mixed = {**event(), **value} if isinstance(value, dict) else value
    batch = read_events([json.dumps(value), json.dumps(mixed), json.dumps(event("last"))])
    totals = aggregate(batch, PERIOD, ZONE)
    assert totals.rows == sum(totals.counts.values()) == 3


# Generated traffic


def test_a_generated_month_adds_up_and_says_that_it_is_generated() -> None:
    shares = [TrafficShare("m", "s", 3), TrafficShare("n", "s")]
    lines = generate_month(shares, PERIOD, samples=10**9, seed=1, late_rate=0.05)
    assert lines == generate_month(shares, PERIOD, samples=10**9, seed=1, late_rate=0.05)
    assert lines != generate_month(shares, PERIOD, samples=10**9, seed=2, late_rate=0.05)
    totals = aggregate(read_events(lines), PERIOD, ZONE, known={("m", "s"), ("n", "s")})
    assert totals.samples == 10**9
    assert totals.duplicates > 0
    assert totals.arrived_after_end > 0
    assert totals.counts["accepted"] + totals.duplicates == totals.rows
    assert all(json.loads(line)["source"].startswith("generated/") for line in lines)
    assert 0.7 < totals.volume("m", "s") / 10**9 < 0.8


@pytest.mark.parametrize("bad", [{"shares": []}, {"samples": -1}, {"events_per_hour": 0}])
def test_traffic_that_cannot_be_generated_is_refused(bad: Any) -> None:
    arguments = {"shares": [TrafficShare("m", "s")], "samples": 1, "events_per_hour": 1, **bad}
    with pytest.raises(Refusal):
        generate_month(arguments.pop("shares"), PERIOD, seed=1, **arguments)
