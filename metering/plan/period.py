"""Periods: half-open spans of time, cut in the contract's zone, kept in UTC.

In: a month label or a local date, and an IANA zone.
Out: aware UTC start and end; a month has the hours its zone really gave it (743, 744, 745).
Never here: a fixed offset, a period of thirty days called a month, the machine's own zone.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise

from metering.decimals import exact
from metering.fields import Fields, check_zone, instant_text
from metering.refusal import Refusal

__all__ = ["Period", "anchored_starts"]

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])", re.ASCII)


@dataclass(frozen=True)
class Period:
    """[start, end) in aware UTC, named by `label`, cut in `zone`."""

    label: str
    zone: str
    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        check_zone(self.zone, "period.zone")
        if not self.label:
            raise Refusal("period.label", "nothing", "a label such as 2026-11")
        for name, value in (("start", self.start), ("end", self.end)):
            if value.tzinfo is None or value.utcoffset() != timedelta(0):
                raise Refusal(f"period.{name}", value.isoformat(), "an aware UTC time")
        if self.end <= self.start:
            raise Refusal("period.end", instant_text(self.end), "a time after the start")

    @classmethod
    def month(cls, label: str, zone: str) -> Period:
        """The calendar month `label` ("2026-11"), from local midnight to local midnight."""
        match = _MONTH.fullmatch(label) if isinstance(label, str) else None
        if match is None or match.group(1) == "0000":
            raise Refusal("period", repr(label), "a month such as 2026-11", "write YYYY-MM")
        year, month = int(match.group(1)), int(match.group(2))
        after = (year + 1, 1) if month == 12 else (year, month + 1)
        return cls(label, zone, _midnight(date(year, month, 1), zone), _midnight_of(after, zone))

    @classmethod
    def month_of(cls, instant: datetime, zone: str) -> Period:
        """The calendar month of `zone` that holds `instant` (aware)."""
        if instant.tzinfo is None:
            raise Refusal("instant", instant.isoformat(), "an aware time", "add the offset")
        local = instant.astimezone(check_zone(zone))
        return cls.month(f"{local.year:04d}-{local.month:02d}", zone)

    @classmethod
    def anchored(cls, start: date, count: int, zone: str) -> list[Period]:
        """`count` monthly periods from local midnight of `start`, each labelled by its first day.

        They join without a gap, whatever the length of the months (see `anchored_starts`).
        """
        starts = anchored_starts(start, count + 1) if count else []
        return [
            cls(first.isoformat(), zone, _midnight(first, zone), _midnight(after, zone))
            for first, after in pairwise(starts)
        ]

    def next_month(self) -> Period:
        """The calendar month after this one; only for calendar months."""
        if not _MONTH.fullmatch(self.label) or self != Period.month(self.label, self.zone):
            raise Refusal("period", self.label, "a calendar month", "build the period yourself")
        return Period.month_of(self.end, self.zone)

    def contains(self, instant: datetime) -> bool:
        """Whether `instant` lies in [start, end)."""
        return self.start <= instant < self.end

    @property
    def hours(self) -> Decimal:
        """Real hours between start and end: daylight saving counted."""
        with exact():
            return Decimal((self.end - self.start) // timedelta(seconds=1)) / 3600

    @property
    def local_start(self) -> datetime:
        """Start in the period's own zone."""
        return self.start.astimezone(check_zone(self.zone))

    @property
    def local_last_day(self) -> date:
        """Last local day that the period touches; its end belongs to the next period."""
        return (self.end.astimezone(check_zone(self.zone)) - timedelta(microseconds=1)).date()

    def to_json(self) -> dict[str, object]:
        """JSON object: label, zone, start and end as RFC 3339 with Z."""
        return {
            "label": self.label,
            "zone": self.zone,
            "start": instant_text(self.start),
            "end": instant_text(self.end),
        }

    @classmethod
    def from_json(cls, value: object) -> Period:
        """Inverse of `to_json`."""
        fields = Fields(value, "period")
        period = cls(
            label=fields.text("label"),
            zone=fields.text("zone"),
            start=fields.instant("start"),
            end=fields.instant("end"),
        )
        fields.finish()
        return period


def anchored_starts(start: date, count: int) -> list[date]:
    """`count` monthly starts anchored at `start`: 31 March, 30 April, 31 May.

    Each one is counted from the first, never from the one before, so a short month does not
    move the later ones.
    """
    if count < 0:
        raise Refusal("count", count, "zero or more periods")
    starts = []
    for months in range(count):
        year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
        last_day = calendar.monthrange(year, month + 1)[1]
        starts.append(date(year, month + 1, min(start.day, last_day)))
    return starts


def _midnight_of(year_month: tuple[int, int], zone: str) -> datetime:
    return _midnight(date(year_month[0], year_month[1], 1), zone)


def _midnight(day: date, zone: str) -> datetime:
    """UTC instant of local midnight; where that midnight was skipped, the moment of the skip."""
    return datetime.combine(day, time(), tzinfo=check_zone(zone)).astimezone(UTC)
