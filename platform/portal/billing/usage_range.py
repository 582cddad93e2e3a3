"""Ranges of usage: local days of a zone, their hours, and counted rows put into them.

In: a first day, the day after the last, an IANA zone; grouped rows of the database. Out: one row
per day (or hour, in short ranges), model and system, and the hours that ended without usage.
Nothing here reads the database or a clock. An hour without usage is missing, never zero: a host
that stops reporting has not saved anything.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from itertools import pairwise
from math import gcd
from zoneinfo import ZoneInfo

from metering.fields import check_zone

HOUR_S = 3600
# Ranges up to here are shown by hour.
HOURLY_DAYS = 3
MOST_DAYS = 92

Pair = tuple[str, str]


@dataclass(frozen=True)
class UsageRange:
    """[start, end) in aware UTC: the local days of `zone` from `first` up to, without, `after`."""

    first: date
    after: date
    zone: str

    @cached_property
    def days(self) -> tuple[datetime, ...]:
        """UTC instants of every local midnight, the end's included (as the engine cuts periods)."""
        zone = check_zone(self.zone)
        count = (self.after - self.first).days
        return tuple(
            datetime.combine(self.first + timedelta(days=n), time(), tzinfo=zone).astimezone(UTC)
            for n in range(count + 1)
        )

    @property
    def start(self) -> datetime:
        """The first instant inside."""
        return self.days[0]

    @property
    def end(self) -> datetime:
        """The first instant no longer inside."""
        return self.days[-1]

    @property
    def hourly(self) -> bool:
        """Whether rows are hours; days otherwise."""
        return len(self.days) - 1 <= HOURLY_DAYS

    @cached_property
    def slot_s(self) -> int:
        """Seconds of the widest slot, counted from `start`, of which every day holds whole ones.

        An hour, except where a day of the range begins off the hour of the first one (a zone that
        changed by half an hour): then the slots are as much narrower.
        """
        return gcd(HOUR_S, *(_seconds(day - self.start) for day in self.days))

    @cached_property
    def spans(self) -> tuple["Span", ...]:
        """The rows' spans in order: days, or the real hours of each day."""
        zone = ZoneInfo(self.zone)
        found = []
        for start, end in pairwise(self.days):
            if not self.hourly:
                found.append(Span(start, end, start.astimezone(zone).date().isoformat()))
                continue
            for hour in _hours(start, end):
                local = start + timedelta(hours=hour)
                label = local.astimezone(zone).strftime("%Y-%m-%d %H:%M%z")
                found.append(Span(local, min(local + timedelta(hours=1), end), label))
        return tuple(found)


@dataclass(frozen=True)
class Span:
    """One day or hour: [start, end) in UTC and its local name."""

    start: datetime
    end: datetime
    label: str

    def hours_ended(self, now: datetime) -> int:
        """Hours of the span that have ended by `now`; a last part of an hour counts as one."""
        return sum(
            min(self.start + timedelta(hours=hour + 1), self.end) <= now
            for hour in _hours(self.start, self.end)
        )


@dataclass(frozen=True)
class Counted:
    """One row of the database's GROUP BY: events of one slot, model, system and fate."""

    slot: int
    model: str
    system: str
    fate: str
    events: int
    samples: int


@dataclass(frozen=True)
class UsageRow:
    """Accepted work of one model on one system in one span; no model: nothing came in it.

    `hours_ended` of the span's hours are over; in `hours_missing` of them nothing was accepted.
    """

    span: Span
    model: str
    system: str
    samples: int | None
    events: int
    hours_ended: int
    hours_missing: int

    @property
    def missing(self) -> bool:
        """Whether the span is over without any usage."""
        return self.samples is None


@dataclass
class _Sum:
    samples: int = 0
    events: int = 0
    hours: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class UsageTable:
    """Rows of a range with their sums. `fates`: stored events by fate, zeros left out."""

    range: UsageRange
    rows: tuple[UsageRow, ...]
    samples: int
    events: int
    hours_ended: int
    hours_missing: int
    fates: Mapping[str, int]


def usage_table(
    asked: UsageRange, counted: Iterable[Counted], *, accepted: Sequence[str], now: datetime
) -> UsageTable:
    """Put counted rows into the spans of `asked`; `accepted` are the fates that add to volumes."""
    sums: dict[int, dict[Pair, _Sum]] = defaultdict(lambda: defaultdict(_Sum))
    fates: dict[str, int] = defaultdict(int)
    place = _places(asked)
    for row in counted:
        fates[row.fate] += row.events
        if row.fate in accepted:
            index, hour = place(row.slot)
            found = sums[index][(row.model, row.system)]
            found.samples += row.samples
            found.events += row.events
            found.hours.add(hour)
    rows: list[UsageRow] = []
    ended = missing = 0
    for index, span in enumerate(asked.spans):
        over, pairs = span.hours_ended(now), sums.get(index, {})
        ended += over
        missing += _missing(over, pairs.values())
        if not pairs and over:
            rows.append(UsageRow(span, "", "", None, 0, over, over))
        for (model, system), found in sorted(pairs.items()):
            rows.append(
                UsageRow(
                    span, model, system, found.samples, found.events, over, _missing(over, [found])
                )
            )
    return UsageTable(
        range=asked,
        rows=tuple(rows),
        samples=sum(row.samples or 0 for row in rows),
        events=sum(row.events for row in rows),
        hours_ended=ended,
        hours_missing=missing,
        fates=dict(fates),
    )


def _missing(ended: int, sums: Iterable[_Sum]) -> int:
    """Hours that are over and in none of the sums; hours of a span are over in their order."""
    seen = {hour for found in sums for hour in found.hours if hour < ended}
    return ended - len(seen)


def _places(asked: UsageRange) -> Callable[[int], tuple[int, int]]:
    """Slot number -> (index of its span, hour within the span)."""
    edges = [_seconds(span.start - asked.start) for span in asked.spans]

    def place(slot: int) -> tuple[int, int]:
        second = slot * asked.slot_s
        index = bisect_right(edges, second) - 1
        return index, (second - edges[index]) // HOUR_S

    return place


def _hours(start: datetime, end: datetime) -> range:
    """Numbers of the hours that [start, end) touches."""
    return range(-(-_seconds(end - start) // HOUR_S))


def _seconds(span: timedelta) -> int:
    return span // timedelta(seconds=1)
