"""Uplift from paired log-ratios: the Hodges-Lehmann estimate with its exact signed-rank interval.

In: x_i = log(other / base) of each pair, fixed in number beforehand. Out: ratios minus one. Nothing
here reads a file or a clock, and nothing is simulated: the null distribution of the signed-rank
statistic is counted exactly by convolution (Hollander & Wolfe, Nonparametric Statistical Methods,
section 3.2 and 3.3). The paired t interval stands beside it as a check.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

MINIMUM_PAIRS = 6  # Below six no exact two-sided 95 % interval exists: 2 / 2**5 > 0.05.
DISAGREEMENT = 0.01  # One point between the two methods is worth a human's look.


_FRACTIONS = ("point", "lo", "hi", "lower_95", "t_point", "t_lo", "t_hi")
_PLACES = Decimal("0.000000001")


def fraction_text(value: float, *, down: bool = False) -> str:
    """A fraction as decimal text of nine places, to the nearest or, for a bound, downwards."""
    rounding = ROUND_FLOOR if down else ROUND_HALF_EVEN
    # From the shortest text that is this float, so that text read back gives the same text.
    return f"{Decimal(repr(value)).quantize(_PLACES, rounding=rounding):f}"


@dataclass(frozen=True)
class UpliftEstimate:
    """All figures but ``n`` are ratios minus one (0.25 = 25 % more samples per second).

    ``lower_95`` is the one-sided exact 95 % lower bound: what money uses. ``flagged`` is true when
    the paired t estimate or interval differs from the signed-rank one by more than a point.
    """

    n: int
    point: float
    lo: float
    hi: float
    lower_95: float
    t_point: float
    t_lo: float
    t_hi: float
    flagged: bool

    def to_dict(self) -> dict[str, Any]:
        """Fractions as decimal text of nine places; every lower bound is rounded down."""
        down = ("lo", "lower_95", "t_lo")
        values = {
            name: fraction_text(getattr(self, name), down=name in down) for name in _FRACTIONS
        }
        return {"n": self.n, **values, "flagged": self.flagged}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> UpliftEstimate:
        fractions = {name: float(data[name]) for name in _FRACTIONS}
        return cls(n=int(data["n"]), flagged=bool(data["flagged"]), **fractions)


@functools.cache
def signed_rank_cdf(n: int) -> npt.NDArray[np.float64]:
    """P(W+ <= k) for k = 0 .. n(n+1)/2 under symmetry, counted exactly in whole numbers."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for k in range(len(counts) - 1, rank - 1, -1):
            counts[k] += counts[k - rank]
    total, running, cdf = 2**n, 0, []
    for count in counts:
        running += count
        cdf.append(running / total)
    result = np.array(cdf)
    result.setflags(write=False)
    return result


def walsh_averages(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The n(n+1)/2 averages of all pairs (i <= j), sorted."""
    rows, columns = _pairs_of(len(values))
    return np.sort((values[rows] + values[columns]) / 2)


@functools.cache
def _pairs_of(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    rows, columns = np.triu_indices(n)
    return rows, columns


@functools.cache
def _t_quantile(n: int, alpha: float) -> float:
    return float(stats.t.ppf(1 - alpha / 2, n - 1))


def _tail_index(n: int, tail: float) -> int:
    """Largest k with P(W+ <= k - 1) <= tail; 0 when even the extreme has more probability."""
    return int(np.searchsorted(signed_rank_cdf(n), tail, side="right"))


def lower_bound(log_ratios: Sequence[float], tail: float) -> float:
    """The one-sided exact lower bound at level ``tail``, as a ratio minus one.

    Raises ValueError when so few pairs have no exact bound at that level.
    """
    walsh = walsh_averages(np.asarray(log_ratios, dtype=np.float64))
    k = _tail_index(len(log_ratios), tail)
    if k == 0:
        raise ValueError(
            f"pairs: {len(log_ratios)} cannot give an exact bound at level {tail:.4f}; measure more"
        )
    return math.expm1(float(walsh[k - 1]))


def estimate(log_ratios: Sequence[float], alpha: float = 0.05) -> UpliftEstimate:
    """Estimate with two-sided (1 - alpha) intervals and the one-sided 95 % lower bound.

    Raises ValueError for fewer than six pairs or a figure that is not finite.
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    n = len(values)
    if n < MINIMUM_PAIRS:
        raise ValueError(f"pairs: got {n}, wanted at least {MINIMUM_PAIRS}; measure more pairs")
    if not np.isfinite(values).all():
        raise ValueError("log_ratios: got a value that is not finite, wanted logs of two rates > 0")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: got {alpha}, wanted a number between 0 and 1")
    walsh = walsh_averages(values)
    k = _tail_index(n, alpha / 2)
    if k == 0:
        raise ValueError(f"pairs: {n} cannot give an exact interval at alpha {alpha}; measure more")
    lo, hi = float(walsh[k - 1]), float(walsh[len(walsh) - k])
    lower = float(walsh[_tail_index(n, 0.05) - 1])
    mean = float(values.mean())
    half = float(_t_quantile(n, alpha) * values.std(ddof=1) / math.sqrt(n))
    point, low, high, t_point, t_lo, t_hi = (
        math.expm1(value)
        for value in (float(np.median(walsh)), lo, hi, mean, mean - half, mean + half)
    )
    gaps = (abs(point - t_point), abs(low - t_lo), abs(high - t_hi))
    return UpliftEstimate(
        n=n,
        point=point,
        lo=low,
        hi=high,
        lower_95=math.expm1(lower),
        t_point=t_point,
        t_lo=t_lo,
        t_hi=t_hi,
        flagged=max(gaps) > DISAGREEMENT,
    )
