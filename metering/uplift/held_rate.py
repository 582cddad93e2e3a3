"""The rate of arrival that a system holds within its bound, and what two of them differ by.

In: a ladder of rates fixed beforehand, and for each arm of each pair whether a Server run at a rung
was VALID. Out: the rung that held and the next, that did not, and an interval for the ratio of two
systems. A held rate is known only to lie between two rungs; so bounds use the unfavourable ends of
both arms, and a difference smaller than a rung is never shown. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metering.loadgen.calibrate import six_digits
from metering.uplift.estimate import fraction_text, lower_bound, walsh_averages

STEP = 1.03
HEADROOM = 4
"""The top of the ladder over the faster arm's Offline rate. No Server run should hold that rate
itself, but the probe that found it may have met a slow moment of the machine."""
DEPTH = 4
"""The slower arm's Offline rate over the bottom of the ladder."""


@dataclass(frozen=True)
class Bracket:
    """``held``: the highest rate found to hold; ``failed``: the next rung, which did not."""

    held: float
    failed: float


@dataclass(frozen=True)
class HeldRate:
    """Held rate of the candidate over the baseline's, ratios minus one, from ``n`` pairs.

    ``lo``, ``hi``: exact 95 % signed-rank interval, ``lower_95``: one-sided, all from the
    unfavourable ends of the brackets. ``point``: Hodges-Lehmann of their middles.
    """

    n: int
    point: float
    lo: float
    hi: float
    lower_95: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "point": fraction_text(self.point),
            "lo": fraction_text(self.lo, down=True),
            "hi": fraction_text(self.hi),
            "lower_95": fraction_text(self.lower_95, down=True),
        }


def ladder(fastest: float, slowest: float) -> tuple[float, ...]:
    """Rates 3 % apart, from a quarter of the slower Offline rate to four times the faster one.

    Ascending, in six digits, which is what LoadGen's log repeats. Raises ValueError for rates that
    are none.
    """
    if not 0 < slowest <= fastest < math.inf:
        raise ValueError(f"rates: got {slowest} and {fastest}, wanted both above 0, in order")
    top, bottom = fastest * HEADROOM, slowest / DEPTH
    count = math.ceil(math.log(top / bottom) / math.log(STEP)) + 1
    return tuple(six_digits(top / STEP ** (count - 1 - rung)) for rung in range(count))


def climb(count: int, holds: Callable[[int], bool]) -> tuple[int, tuple[int, ...]]:
    """(highest rung that held, rungs asked in order); -1 when none did.

    Halves the rungs between one that held and one that did not, so both neighbours of the answer
    were asked, unless it is an end of the ladder.
    """
    low, high = -1, count
    asked = []
    while high - low > 1:
        middle = (low + high) // 2
        asked.append(middle)
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, tuple(asked)


def bracket(rates: Sequence[float], rung: int) -> Bracket:
    """The two rates around an answer of :func:`climb`. Raises ValueError at an end."""
    if rung < 0:
        raise ValueError(f"the bound does not hold even at {rates[0]:g} queries/s")
    if rung == len(rates) - 1:
        raise ValueError(f"the bound held at {rates[-1]:g} queries/s, the top of the ladder")
    return Bracket(rates[rung], rates[rung + 1])


def held_rate(pairs: Sequence[tuple[Bracket, Bracket]]) -> HeldRate:
    """(baseline, candidate) of each counted pair. Raises ValueError with too few pairs.

    The ratio of a pair lies between candidate held / baseline failed and the reverse; the exact
    lower bound grows with each of its values, so that of the lower ends is below that of any values
    in between, and the upper likewise.
    """
    lowest = [math.log(other.held / base.failed) for base, other in pairs]
    highest = [math.log(other.failed / base.held) for base, other in pairs]
    middle = (np.array(lowest) + np.array(highest)) / 2
    return HeldRate(
        n=len(pairs),
        point=math.expm1(float(np.median(walsh_averages(middle)))),
        lo=lower_bound(lowest, 0.025),
        hi=1 / (1 + lower_bound([-value for value in highest], 0.025)) - 1,
        lower_95=lower_bound(lowest, 0.05),
    )
