"""In which period an event counts: public reports of calendars gone wrong, through the engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from metering.plan import Period, anchored_starts
from metering.usage import EVENT_TYPE, aggregate, read_events


def lines(times: Sequence[str]) -> list[str]:
    """One event of one sample at each time."""
    return [
        json.dumps(
            {
                "specversion": "1.0", "type": EVENT_TYPE, "source": "g", "id": f"e{number}",
                "time": text, "data": {"model": "m", "system": "s", "samples": 1},
            }
        )
        for number, text in enumerate(times)
    ]  # fmt: skip


def every_hour(start: str, hours: int) -> list[str]:
    moment = datetime.fromisoformat(start)
    return [(moment + timedelta(hours=number)).isoformat() for number in range(hours)]


@pytest.mark.parametrize(
    ("report", "zone", "times", "month", "counted"),
    [
        ("killbill/killbill#1934 April in New York", "America/New_York",
         ["2023-04-01T04:00:00Z", "2023-04-01T03:59:59Z"], "2023-04", 1),
        ("killbill/killbill#1934 March in New York", "America/New_York",
         ["2023-04-01T04:00:00Z", "2023-04-01T03:59:59Z"], "2023-03", 1),
        ("killbill/killbill#743 day 31, not day 1", "America/Los_Angeles",
         ["2017-03-01T23:30:00-08:00", "2017-03-31T23:30:00-07:00", "2017-04-01T00:00:00-07:00"],
         "2017-03", 2),
        ("getlago/lago-api#818 first day ahead of UTC", "Asia/Tokyo",
         ["2022-01-31T15:00:00Z", "2022-01-31T14:59:59Z"], "2022-02", 1),
        ("getlago/lago-api#1438 March 2026 has 743 hours", "Europe/Berlin",
         every_hour("2026-02-28T23:00:00+00:00", 800), "2026-03", 743),
        ("getlago/lago-api#1442 October 2026 has 745 hours", "Europe/Berlin",
         every_hour("2026-09-30T22:00:00+00:00", 800), "2026-10", 745),
        ("tuist/tuist#11903 occurred before midnight", "UTC",
         ["2026-03-31T23:50:00Z", "2026-04-01T00:10:00Z"], "2026-03", 1),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value and "#" in value else "",
)  # fmt: skip
def test_an_event_counts_in_the_month_of_the_contracts_zone(
    report: str, zone: str, times: list[str], month: str, counted: int
) -> None:
    totals = aggregate(read_events(lines(times)), Period.month(month, zone), zone)
    assert totals.samples == totals.accepted == counted, report
    assert totals.late + totals.count("later") == len(times) - counted


def test_home_assistant_114721_a_year_has_twelve_months_and_none_is_an_hour_long() -> None:
    zone = "Europe/Berlin"
    batch = read_events(lines(every_hour("2026-01-01T00:00:00+01:00", 365 * 24)))
    counted = [
        aggregate(batch, Period.month(f"2026-{month:02d}", zone), zone).samples
        for month in range(1, 13)
    ]
    assert sum(counted) == 365 * 24
    assert min(counted) == 28 * 24


def test_killbill_2133_periods_anchored_at_the_31st_take_every_event_once() -> None:
    zone = ZoneInfo("Europe/Berlin")
    starts = [
        datetime.combine(day, time(), zone).astimezone(UTC)
        for day in anchored_starts(date(2026, 3, 31), 4)
    ]
    periods = [
        Period(f"period {number}", zone.key, start, end)
        for number, (start, end) in enumerate(pairwise(starts))
    ]
    hours = (starts[-1] - starts[0]) // timedelta(hours=1)
    batch = read_events(lines(every_hour(starts[0].isoformat(), hours)))
    counted = [aggregate(batch, period, zone.key).samples for period in periods]
    assert counted == [30 * 24, 31 * 24, 30 * 24]
    assert sum(counted) == hours


def test_authgear_2168_the_last_hours_of_every_cycle_are_billed() -> None:
    zone = "America/New_York"
    batch = read_events(lines(every_hour("2026-01-01T05:00:00+00:00", 24 * 120)))
    months = [Period.month(f"2026-{month:02d}", zone) for month in range(1, 6)]
    assert sum(aggregate(batch, month, zone).samples for month in months) == 24 * 120
