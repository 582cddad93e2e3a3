"""Candidate and incumbent against each other at every timed size, and what follows from the times.

In: two ready sessions, weighted sizes, a secret seed. Out: one ratio of weighted times with its
interval, the time per call, the fraction of the roofline, and the oracle's word on a sample of the
timed outputs.
Never here: rounds with guard pages; the whole verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelgen.judge import roofline, rounds
from kernelgen.judge.build import matrix_unit_gflops
from kernelgen.judge.clock import Effort, Match, Snapshot, Timing, ratio_interval
from kernelgen.judge.compare import compare
from kernelgen.judge.session import Refusal, Session
from kernelgen.machine import Machine, describe
from kernelgen.ops.operator import Operator

RECHECK_S = 1.5
"""Seconds the oracle may take per size for timed outputs, once three of them are checked."""

SIGN_TEST_LEVEL = 0.01

HANDSHAKE_NS = 60_000
"""More than an order and its answer ever cost; only used in the candidate's favour."""


@dataclass(frozen=True)
class Point:
    """One size to time, and how many calls at it the traffic makes."""

    dims: Mapping[str, int]
    weight: float = 1.0


@dataclass(frozen=True)
class Race:
    """Interleaved times without a verdict: where a search looks first, never a reason to accept.

    `time_ns` has one entry per point. The ratio compares weighted times; None without an incumbent.
    """

    time_ns: tuple[float, ...]
    ratio: float | None
    ratio_lo: float | None
    ratio_hi: float | None


class Contest:
    """Collects the timings of one trial. `points` are heaviest first."""

    def __init__(
        self,
        operator: Operator,
        points: Sequence[Point],
        effort: Effort,
        seed: bytes,
        machine: Machine,
    ) -> None:
        self._operator = operator
        self._points = points
        self._effort = effort
        self._seed = seed
        self._machine = machine
        self._prepare_ns: list[int] = []
        self.timings: list[Timing] = []
        self.log_ratios: list[float] = []
        self._confirmed_calls = 0

    def run(self, mine: Session, other: Session | None) -> None:
        """Time every point, or only the first when that one already says all."""
        rng = rounds.generator(self._seed, "clock")
        for point in self._points:
            match = Match(self._operator, point.dims, mine, other, rng)
            timing = match.run(self._effort, prepare=self._prepare_ns.append, go_on=self._goes_on)
            self.timings.append(timing)
            self._check_roofline(point, timing)
            if other is not None and self._lost(timing):
                break
        if other is not None:
            self._compare_times()
        # Answers that are not the incumbent's meet the oracle before anything else is spent.
        for point, timing in zip(self._points, self.timings, strict=False):
            for snap in timing.suspects[:1]:
                self._recheck_one(point, timing, snap)

    def extend(self, other: Contest) -> None:
        """Add the passes of a second contest between the same two."""
        self.log_ratios = [*self.log_ratios, *other.log_ratios]
        self._confirmed_calls += other.calls

    def require_win(self) -> None:
        """Refuse a candidate that is not faster beyond doubt.

        The interval must lie above 1, and so many passes must have been won that an equal kernel
        would do it once in a hundred (sign test): a bootstrap over a dozen passes alone is too
        easily content.
        """
        ratio, low, high = self.ratio()
        passes = len(self.log_ratios)
        won = sum(log > 0 for log in self.log_ratios)
        chance = sum(math.comb(passes, k) for k in range(won, passes + 1)) / 2**passes
        if low is None or not (
            low > 1.0 and chance <= SIGN_TEST_LEVEL and passes >= self._effort.fewest
        ):
            raise Refusal(
                "slower",
                f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}], {won} of {passes} passes won",
            )

    def ratio(self) -> tuple[float | None, float | None, float | None]:
        """Incumbent over candidate time with its interval; Nones without an incumbent."""
        if not self.log_ratios:
            return None, None, None
        return ratio_interval(self.log_ratios, rounds.generator(self._seed, "interval"))

    def race(self, points: Sequence[Point]) -> Race:
        times = {id(p): t.time_ns for p, t in zip(self._points, self.timings, strict=False)}
        return Race(tuple(times.get(id(point), math.nan) for point in points), *self.ratio())

    @property
    def calls(self) -> int:
        return sum(timing.calls for timing in self.timings) + self._confirmed_calls

    @property
    def time_ns(self) -> float | None:
        """Per call at the heaviest size."""
        return self.timings[0].time_ns if self.timings else None

    @property
    def prepare_ns(self) -> float | None:
        return float(np.median(self._prepare_ns)) if self._prepare_ns else None

    @property
    def roofline_fraction(self) -> float | None:
        if self.time_ns is None:
            return None
        return roofline.fraction(self._operator, self._points[0].dims, self._machine, self.time_ns)

    def recheck(self) -> float:
        """The oracle's word on copies taken while the clock ran, after the candidate is gone."""
        worst = 0.0
        rng = rounds.generator(self._seed, "recheck")
        for point, timing in zip(self._points, self.timings, strict=False):
            wanted = max(3, timing.calls // 10)
            chosen = [int(at) for at in rng.permutation(len(timing.snapshots))[:wanted]]
            snaps = [*timing.suspects, *(timing.snapshots[at] for at in chosen)]
            deadline = time.monotonic() + RECHECK_S
            for number, snap in enumerate(snaps):
                sure = number >= len(timing.suspects) + 3
                if sure and time.monotonic() > deadline:
                    break
                worst = max(worst, self._recheck_one(point, timing, snap))
        return worst

    def _recheck_one(self, point: Point, timing: Timing, snap: Snapshot) -> float:
        sample = {**timing.weights, **snap.inputs}
        want = self._operator.oracle(sample, point.dims)
        bound = self._operator.error_bound(sample, point.dims)
        result = compare(snap.outputs, want, bound, poison=snap.poison)
        if result.reason is not None:
            raise Refusal(result.reason, f"a timed call: {result.detail}")
        return result.error_ratio

    def _goes_on(self, timing: Timing) -> bool:
        """Stop early on a lost cause; never stop early on a win, which needs the fewest passes in
        full.
        """
        passes = len(timing.mine_ns)
        if not timing.other_ns:
            return passes < self._effort.fewest
        if passes < self._effort.look:
            return True
        if self._hopeless(timing):
            return False
        logs = np.log(np.divide(timing.other_total_ns, timing.mine_total_ns))
        if passes < self._effort.fewest:
            return True
        spread = 1.5 * float(logs.std()) / np.sqrt(passes)
        return bool(abs(float(np.median(logs))) < 2 * spread)

    def _lost(self, timing: Timing) -> bool:
        return len(timing.mine_ns) >= self._effort.look and self._hopeless(timing)

    def _hopeless(self, timing: Timing) -> bool:
        """Clearly slower at the size that costs most: more passes or other sizes cannot save it."""
        if self.timings and self.timings[0] is not timing:
            return False
        logs = np.log(np.divide(timing.other_total_ns, timing.mine_total_ns))
        error = float(logs.std(ddof=1)) / np.sqrt(len(logs)) if len(logs) > 1 else np.inf
        return bool(float(logs.mean()) + 3.0 * error < np.log(self._effort.hopeless))

    def _compare_times(self) -> None:
        passes = min(len(timing.mine_ns) for timing in self.timings)
        weights = [point.weight for point in self._points][: len(self.timings)]
        mine, other = (
            sum(
                weight * np.asarray(getattr(timing, side)[:passes])
                for weight, timing in zip(weights, self.timings, strict=True)
            )
            for side in ("mine_total_ns", "other_total_ns")
        )
        self.log_ratios = list(np.log(other / mine))

    def _check_roofline(self, point: Point, timing: Timing) -> None:
        for again in range(3):
            floor = roofline.floor_ns(self._operator, point.dims, self._machine)
            if max(timing.most_ns, timing.total_ns - HANDSHAKE_NS / timing.batch) >= floor:
                return
            if again < 2:
                # The peaks may have been measured beside a noisy neighbour: the better of two
                # measurements counts.
                self._machine = _better_peaks(self._machine)
        raise Refusal(
            "above_roofline", f"{timing.time_ns:.0f} ns a call, this machine needs {floor:.0f} ns"
        )


def _better_peaks(machine: Machine) -> Machine:
    again = describe(measure=True)
    matrix_unit_gflops(again=True)
    return replace(
        machine,
        peak_gflops_per_core=max(
            machine.peak_gflops_per_core or 0, again.peak_gflops_per_core or 0
        ),
        peak_gbps_per_core=max(machine.peak_gbps_per_core or 0, again.peak_gbps_per_core or 0),
    )
