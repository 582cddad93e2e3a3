"""How much of a period was metered: the hours and days that have usage, and what is undecided.

In: the accepted events of one model on one system, as columns, and the period.
Out: `Coverage`: samples by hour of the period, days cut in its zone, conflicts without a decision.
Never here: an hour that nobody reported counted as one without work; a rule on how much is enough
(see `savings.sufficiency`).

Hours are counted from the period's start, so each is a real one, whatever a change of clocks did
to its name. An hour belongs to the local day in which it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property

import numpy as np
import numpy.typing as npt

from metering.fields import check_zone
from metering.plan import Period
from metering.usage.batch import Columns, microseconds
from metering.usage.shapes import Ints

__all__ = ["Coverage", "cover"]

_HOUR = timedelta(hours=1)
_HOUR_MICROSECONDS = _HOUR // timedelta(microseconds=1)
_HALF = np.int64(2**32)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Coverage:
    """What was metered of `model` on `system` in `period`.

    `by_hour`: accepted samples by number of the hour, from 0; an hour of a reported zero is in it,
    one without an event is not. `conflicts`: keys with several contents, one of them of this model.
    """

    model: str
    system: str
    period: Period
    by_hour: Mapping[int, int]
    conflicts: int = 0

    @property
    def hours(self) -> Decimal:
        """Hours with an accepted event, at most those of the period."""
        return min(Decimal(len(self.by_hour)), self.period.hours)

    @cached_property
    def by_day(self) -> Mapping[date, int]:
        """Accepted samples by local day, oldest first; a day without an event is not in it."""
        zone = check_zone(self.period.zone)
        found: dict[date, int] = {}
        for hour in sorted(self.by_hour):
            day = (self.period.start + hour * _HOUR).astimezone(zone).date()
            found[day] = found.get(day, 0) + self.by_hour[hour]
        return found


def cover(
    columns: Columns, pair: tuple[str, str], period: Period, accepted: Mask, torn: Mask
) -> Coverage:
    """Coverage of `pair` by the rows that are `accepted`; `torn` rows are in conflict,
    not decided by anybody."""
    if pair not in columns.names:
        return Coverage(*pair, period, {})
    own = columns.pairs == columns.names.index(pair)
    rows = np.flatnonzero(own & accepted)
    numbers = (columns.occurred[rows] - microseconds(period.start)) // _HOUR_MICROSECONDS
    hours, places = np.unique(numbers, return_inverse=True)
    return Coverage(
        *pair,
        period,
        dict(zip(hours.tolist(), _sums(columns.samples[rows], places, len(hours)), strict=True)),
        len(columns.keys.take(np.flatnonzero(own & torn)).unique()),
    )


def _sums(samples: Ints, places: npt.NDArray[np.intp], count: int) -> list[int]:
    """Exact sums by place: added in two halves, so that no sum leaves 64 bits."""
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, places, samples // _HALF)
    np.add.at(low, places, samples % _HALF)
    return [top * int(_HALF) + rest for top, rest in zip(high.tolist(), low.tolist(), strict=True)]
