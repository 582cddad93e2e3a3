"""What a faster system may not pay with: the tail of its latency, or a baseline held back.

In: paired runs, whose latencies and rates LoadGen wrote into its detail log. Out: a guard, passed
or not, with its figures. A guard never makes a claim larger; one that is not passed ends it.
Accuracy, precision, conditions and caching have their own modules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metering.uplift.estimate import fraction_text, lower_bound, walsh_averages
from metering.uplift.order import WARM_UP_PAIRS
from metering.uplift.pairs import PairedRuns

P99_BOUND = 0.10
# How much slower the baseline may be against our candidate than against itself. Wide, since whole
# minutes lie between the two and a shared host drifts; pairs see what is finer.
HELD_BACK_BOUND = 0.25
LEVEL = 0.05
# Below this the 99th percentile is the slowest query: sorted[int(0.99 n)] is the last one.
_LEAST_QUERIES = 101


@dataclass(frozen=True)
class TailGuard:
    """99th percentile of latency, candidate over baseline, as ratios minus one.

    ``upper_95``: one-sided exact 95 % upper bound. Passed when that is at most ``bound``: not worse
    must be shown, noise is no excuse. ``point`` and ``upper_95`` are None without figures.
    """

    point: float | None
    upper_95: float | None
    bound: float
    passed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "point": None if self.point is None else fraction_text(self.point),
            "upper_95": None if self.upper_95 is None else fraction_text(self.upper_95),
            "bound": fraction_text(self.bound),
            "passed": self.passed,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TailGuard:
        point, upper = data["point"], data["upper_95"]
        return cls(
            point=None if point is None else float(point),
            upper_95=None if upper is None else float(upper),
            bound=float(data["bound"]),
            passed=bool(data["passed"]),
            reason=str(data["reason"]),
        )


def tail_guard(paired: PairedRuns, bound: float = P99_BOUND) -> TailGuard:
    """Is the candidate's p99 shown to be no more than ``bound`` worse? Pairs as in the estimate.

    In Offline a sample's latency is its place in one long query, so there the guard follows the
    rate; where queries come one by one it sees stalls that a mean rate or a p90 hides.
    """
    if not paired.complete:
        return TailGuard(None, None, bound, False, "p99: " + "; ".join(paired.faults))
    values = []
    for pair in paired.pairs[WARM_UP_PAIRS:]:
        tails = []
        for result in (pair.base, pair.other):
            few = result.scenario != "Offline" and (result.sample_count or 0) < _LEAST_QUERIES
            if result.latency is None or few:
                return TailGuard(
                    None, None, bound, False,
                    f"p99: run {result.run_id} has {result.sample_count} queries, wanted at least "
                    f"{_LEAST_QUERIES}; measure longer runs",
                )  # fmt: skip
            tails.append(math.log(result.latency.p99_ns))
        values.append(tails[1] - tails[0])
    point = math.expm1(float(np.median(walsh_averages(np.array(values)))))
    # The upper bound of other/base is the inverse of the lower bound of base/other.
    upper = 1 / (1 + lower_bound([-value for value in values], LEVEL)) - 1
    reason = ""
    if not upper <= bound:
        reason = (
            f"p99: latency of the candidate {point:+.2%}, upper bound {upper:+.2%}, wanted at most "
            f"{bound:+.2%}: not shown to be as good in its slowest hundredth"
        )
    return TailGuard(point, upper, bound, not reason, reason)


@dataclass(frozen=True)
class HeldBackGuard:
    """Median of the baseline's figure in the uplift over that in the A/A test, minus one."""

    change: float | None
    bound: float
    passed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "change": None if self.change is None else fraction_text(self.change, down=True),
            "bound": fraction_text(self.bound),
            "passed": self.passed,
            "reason": self.reason,
        }


def held_back_guard(
    aa: PairedRuns, uplift: PairedRuns, bound: float = HELD_BACK_BOUND
) -> HeldBackGuard:
    """Was the baseline as fast against the candidate as it was against itself?

    A baseline that is throttled only where it is compared passes the A/A gate, and makes any
    candidate look fast.
    """
    if not (aa.complete and uplift.complete):
        return HeldBackGuard(None, bound, False, "baseline: the A/A test or the uplift broke off")
    alone = [
        result.log_metric()
        for pair in aa.pairs[WARM_UP_PAIRS:]
        for result in (pair.base, pair.other)
    ]
    compared = [pair.base.log_metric() for pair in uplift.pairs[WARM_UP_PAIRS:]]
    change = math.expm1(float(np.median(compared)) - float(np.median(alone)))
    reason = ""
    if change < -bound:
        reason = (
            f"baseline: {change:+.1%} against the candidate compared with its own A/A test, wanted "
            f"no less than {-bound:+.0%}: it was held back, or the machine changed"
        )
    return HeldBackGuard(change, bound, not reason, reason)
