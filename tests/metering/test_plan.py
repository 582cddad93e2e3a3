"""Plan, price book and periods."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.fields import check_zone, instant_text, parse_instant
from metering.plan import MeasurementPlan, Period, PriceBook, anchored_starts
from metering.refusal import Refusal
from tests.metering.money_cases import UNHURRIED, plan

ZONES = [
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Beirut",
    "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati", "UTC",
]  # fmt: skip


def test_a_plan_is_the_same_after_json_and_has_one_digest() -> None:
    text = canonical.dumps(plan().to_json())
    again = MeasurementPlan.from_json(canonical.loads(text))
    assert again == plan()
    assert again.digest == plan().digest == canonical.digest_bytes(text)


def test_any_change_changes_the_digest_and_only_some_the_comparability() -> None:
    later = replace(plan(), pairs=12)
    assert later.digest != plan().digest
    assert later.comparability_key == plan().comparability_key
    assert replace(plan(), precision="bfloat16").comparability_key != plan().comparability_key
    assert replace(plan(), cores=(0,)).comparability_key != plan().comparability_key


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("plan_id", "", "not empty"),
        ("option", "E", "one of A, B, C, D"),
        ("scenario", "Batch", "Offline"),
        ("cores", (), "at least one"),
        ("cores", (1, 1), "each once"),
        ("cores", (-1,), "from 0"),
        ("pairs", 5, "at least 6"),
        ("aa_pairs", 5, "at least 6"),
        ("run_seconds", 0, "at least 1"),
        ("run_seconds", True, "whole number"),
        ("minimum_effect", Decimal(1), "below 1"),
        ("minimum_effect", Decimal("-0.1"), "from 0"),
        ("minimum_effect", 0.02, "decimal text"),
        ("held_out_fraction", Decimal("1"), "below 1"),
        ("search_budget_s", -1, "at least 0"),
        ("zone", "+01:00", "IANA zone"),
        ("zone", "Europe/Atlantis", "IANA zone"),
        ("rounding", "ROUND_HALF_EVEN", "ROUND_HALF_UP"),
    ],
)
def test_a_bad_plan_names_field_value_and_wish(field: str, value: Any, wanted: str) -> None:
    with pytest.raises(Refusal, match=wanted) as refused:
        replace(plan(), **{field: value})
    assert refused.value.field == f"plan.{field}"
    assert str(refused.value).startswith(f"plan.{field}: got ")


def test_a_short_plan_must_say_so() -> None:
    with pytest.raises(Refusal, match="marked short_run"):
        replace(plan(), short_run=False)
    full = replace(plan(), short_run=False, run_seconds=60, pairs=10, aa_pairs=10)
    assert not full.short_run


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": {"order": "1", "qsl": "2", "sample_index": "3"}},
        {"seeds": {"order": "-1", "qsl": "2", "sample_index": "3", "schedule": "4"}},
        {"seeds": {"order": "1.5", "qsl": "2", "sample_index": "3", "schedule": "4"}},
        {"seeds": {"order": 1, "qsl": "2", "sample_index": "3", "schedule": "4"}},
        {"seeds": {"order": str(2**64), "qsl": "2", "sample_index": "3", "schedule": "4"}},
        {"pairs": "10"},
        {"zone": None},
        {"cap": "500"},
        {"schema": "ignition.plan.v2"},
        {"accuracy_floor_cosine": "1.1"},
        {"task": "text_recognition"},
    ],
)
def test_json_with_missing_foreign_or_mistyped_fields_is_refused(change: Any) -> None:
    with pytest.raises(Refusal):
        MeasurementPlan.from_json({**plan().to_json(), **change})


def test_seeds_of_64_bits_survive_json() -> None:
    seeds = MeasurementPlan.from_json(canonical.loads(canonical.dumps(plan().to_json()))).seeds
    assert seeds.schedule == 2**64 - 1


def test_sweep_lists_are_not_empty_and_known() -> None:
    for change in ({"stacks": ()}, {"threads": (0,)}, {"arrangements": ("magic",)}):
        with pytest.raises(Refusal, match=r"plan\.sweep"):
            replace(plan().sweep, **change)


# Price book


def book(price: Any = "0.048", **changes: Any) -> PriceBook:
    values = {"currency": "EUR", "price_per_core_hour": price, "source": "list price"}
    return PriceBook(**{"valid_from": datetime(2026, 1, 1, tzinfo=UTC), **values, **changes})


def test_a_price_book_survives_json() -> None:
    assert PriceBook.from_json(canonical.loads(canonical.dumps(book().to_json()))) == book()
    assert book("36").price_per_core_second == Decimal("0.01")


@pytest.mark.parametrize(
    "change",
    [
        {"price": 0.048}, {"price": "-1"}, {"currency": "eur"}, {"source": ""},
        {"valid_from": datetime(2026, 1, 1)},  # noqa: DTZ001 - a naive time is what is refused
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_price_book_is_refused(change: Any) -> None:
    with pytest.raises(Refusal):
        book(**change)


# Periods


@pytest.mark.parametrize(
    ("report", "zone", "event", "month"),
    [
        ("killbill/killbill#1934", "America/New_York", "2023-04-01T04:00:00Z", "2023-04"),
        ("killbill/killbill#1934 before", "America/New_York", "2023-04-01T03:59:59Z", "2023-03"),
        ("tuist/tuist#11903", "UTC", "2026-03-31T23:50:00Z", "2026-03"),
        ("getlago/lago-api#818 ahead of UTC", "Asia/Tokyo", "2026-03-31T15:00:00Z", "2026-04"),
        ("authgear/authgear-server#2168", "UTC", "2026-03-31T23:59:59.999999Z", "2026-03"),
    ],
)
def test_events_fall_into_the_month_of_the_contracts_zone(
    report: str, zone: str, event: str, month: str
) -> None:
    assert Period.month_of(parse_instant(event), zone).label == month, report
    assert Period.month(month, zone).contains(parse_instant(event))


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_is_twelve_periods_without_gap_or_overlap(zone: str) -> None:
    """home-assistant/core#114721: a month of one hour after the clocks changed."""
    months = [Period.month(f"2026-{number:02d}", zone) for number in range(1, 13)]
    for before, after in pairwise(months):
        assert before.end == after.start
        assert before.next_month() == after
    assert all(month.hours >= 28 * 24 - 1 for month in months)


@UNHURRIED
@given(st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1)), st.sampled_from(ZONES))  # noqa: DTZ001
def test_every_instant_belongs_to_exactly_one_month(moment: datetime, zone: str) -> None:
    instant = moment.replace(tzinfo=UTC)
    home = Period.month_of(instant, zone)
    assert home.contains(instant)
    assert not home.next_month().contains(instant)
    assert not Period.month_of(home.start - timedelta(seconds=1), zone).contains(instant)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (date(2026, 3, 31), ["2026-03-31", "2026-04-30", "2026-05-31", "2026-06-30"]),
        (date(2024, 1, 30), ["2024-01-30", "2024-02-29", "2024-03-30", "2024-04-30"]),
        (date(2026, 11, 15), ["2026-11-15", "2026-12-15", "2027-01-15", "2027-02-15"]),
    ],
    ids=["killbill/killbill#2133", "leap year", "over the year's end"],
)
def test_month_ends_stay_anchored(start: date, wanted: list[str]) -> None:
    assert [day.isoformat() for day in anchored_starts(start, 4)] == wanted


def test_thirty_days_after_a_local_evening() -> None:
    """killbill/killbill#743: 2017-03-01T23:30-08:00 plus 30 days is the 31st, not the 1st."""
    start = parse_instant("2017-03-01T23:30:00-08:00")
    local = start.astimezone(check_zone("America/Los_Angeles")) + timedelta(days=30)
    assert local.day == 31


def test_last_local_day_belongs_to_the_period() -> None:
    period = Period.month("2026-11", "Europe/Berlin")
    assert period.local_start.date() == date(2026, 11, 1)
    assert period.local_last_day == date(2026, 11, 30)


@pytest.mark.parametrize(
    "label", ["2026-13", "2026-1", "26-01", "2026-00", "", "2026-01-01", "0000-01"]
)
def test_labels_that_are_no_month_are_refused(label: str) -> None:
    with pytest.raises(Refusal, match="YYYY-MM"):
        Period.month(label, "UTC")


def test_a_period_survives_json_and_refuses_nonsense() -> None:
    period = Period.month("2026-10", "Europe/Berlin")
    assert Period.from_json(canonical.loads(canonical.dumps(period.to_json()))) == period
    with pytest.raises(Refusal, match="after the start"):
        replace(period, end=period.start)
    with pytest.raises(Refusal, match="aware UTC"):
        replace(period, start=period.start.replace(tzinfo=None))
    with pytest.raises(Refusal, match="calendar month"):
        replace(period, label="Q4").next_month()


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30", "2026-11-30T10:00:00", "2026-11-30 10:00:00Z", "2026-02-30T10:00:00Z",
        "2026-11-30T25:00:00Z", "0001-01-01T00:00:00+14:00", "20261130T100000Z", "", 5, None,
    ],
    ids=str,
)  # fmt: skip
def test_times_without_offset_or_sense_are_refused(text: Any) -> None:
    with pytest.raises(Refusal):
        parse_instant(text)


def test_instants_round_trip_in_utc() -> None:
    assert instant_text(parse_instant("2026-11-30T23:50:00+01:00")) == "2026-11-30T22:50:00Z"
    assert instant_text(parse_instant("2026-11-30t23:50:00.25z")) == "2026-11-30T23:50:00.250000Z"
