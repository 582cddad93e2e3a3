"""When a search stops paying: the expected further gain against the price of the next minute.

In: what the operator's time costs its owner, the price of a minute of searching, the trials so far.
Out: yes or no.
Formula: a minute is expected to take the part 1 - exp(-g) off the operator's time, where g is the
expected log gain per trial times trials per minute. The expected gain per trial is the chance of a
win by the rule of succession (Laplace, 1774), (wins + 1) / (trials + 2) over the last `WINDOW`
trials, times the mean log gain of those wins and of one assumed small win. No minute can take off
more than lies above the roofline. That part times the operator's share of the whole time times the
money the whole time costs is what the minute is worth. A minute's price is the stated one, or what
the last trials cost per minute (tokens too) where that is more.
Never here: a clock, a price that was not handed in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from kernelgen.agent.records import Trial

WINDOW = 20
ASSUMED_WIN = 0.05
"""Log gain of the win that the rule of succession adds; too small to keep a hopeless search alive.
"""


@dataclass(frozen=True)
class Worth:
    """`value`: what the whole run time costs its owner while the result is in use. `share`: the
    operator's part of that time, 0 to 1. `price_per_minute`: of searching, tokens included. Money
    in one currency.
    """

    value: Decimal
    price_per_minute: Decimal
    share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("value", "price_per_minute"):
            money: Decimal = getattr(self, name)
            if not money.is_finite() or money < 0:
                raise ValueError(f"{name}: got {money}, wanted 0 or more")
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share: got {self.share}, wanted 0 to 1")

    def used_up(self, trials: Sequence[Trial]) -> bool:
        """Whether the next minute costs more than it is expected to bring."""
        price = max(self.price_per_minute, _minute_price(trials[-WINDOW:]))
        return self.next_minute(trials) < price

    def next_minute(self, trials: Sequence[Trial]) -> Decimal:
        """Money that another minute of searching is expected to be worth."""
        part = min(_minute_gain(trials[-WINDOW:]), achievable(trials))
        return self.value * Decimal(self.share) * Decimal(part)


def achievable(trials: Sequence[Trial]) -> float:
    """Part of the best kernel's time that lies above the roofline; 1 while it is not known."""
    known = [t.roofline_fraction for t in trials if t.accepted and t.roofline_fraction is not None]
    return 1.0 - min(1.0, known[-1]) if known else 1.0


def _minute_gain(recent: Sequence[Trial]) -> float:
    seconds = _seconds(recent)
    if seconds <= 0.0:
        return 1.0  # nothing is known yet
    wins = [math.log(t.ratio) for t in recent if t.accepted and t.ratio is not None and t.ratio > 1]
    chance = (len(wins) + 1) / (len(recent) + 2)
    mean = (sum(wins) + ASSUMED_WIN) / (len(wins) + 1)
    return 1.0 - math.exp(-chance * mean * len(recent) * 60.0 / seconds)


def _minute_price(recent: Sequence[Trial]) -> Decimal:
    seconds = _seconds(recent)
    if seconds <= 0.0:
        return Decimal(0)
    return sum((Decimal(t.cost) for t in recent), Decimal(0)) * 60 / Decimal(seconds)


def _seconds(recent: Sequence[Trial]) -> float:
    return sum(trial.seconds + trial.proposing_s for trial in recent)
