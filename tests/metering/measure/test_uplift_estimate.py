"""The statistics, against an independent inversion, a hand-computed case and a drifting machine."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metering.uplift import UpliftEstimate, estimate
from metering.uplift.estimate import signed_rank_cdf, walsh_averages

EDGE = 1e-9


def test_the_null_distribution_is_the_one_found_by_listing_every_sign() -> None:
    for n in range(1, 9):
        sums = [
            sum(rank for rank, on in enumerate(signs, 1) if on)
            for signs in product((0, 1), repeat=n)
        ]
        expected = [Fraction(sum(s <= k for s in sums), 2**n) for k in range(n * (n + 1) // 2 + 1)]
        assert [Fraction(float(p)) for p in signed_rank_cdf(n)] == expected


def test_a_case_worked_by_hand() -> None:
    """Six pairs: P(W=0) = 1/64 <= 0.025 < 2/64, so the 95 % interval is the whole range; and
    P(W<=2) = 3/64 <= 0.05 < 5/64, so the one-sided bound is the third smallest of 21 averages."""
    logs = [0.10, 0.12, 0.14, 0.18, 0.26, 0.42]
    found = estimate(logs)
    assert found.n == 6
    assert math.log1p(found.lo) == pytest.approx(0.10)
    assert math.log1p(found.hi) == pytest.approx(0.42)
    # Averages in order: 0.10, 0.11, 0.12 (twice), ...
    assert math.log1p(found.lower_95) == pytest.approx(0.12)
    averages = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    assert math.log1p(found.point) == pytest.approx(averages[10])
    half = stats.t.ppf(0.975, 5) * np.std(logs, ddof=1) / math.sqrt(6)
    assert math.log1p(found.t_lo) == pytest.approx(np.mean(logs) - half)
    assert found.flagged


@pytest.mark.parametrize("n", [6, 7, 9, 10, 12, 15, 20, 25])
@pytest.mark.parametrize("alpha", [0.05, 0.10])
def test_the_interval_is_the_inverted_exact_wilcoxon_test(n: int, alpha: float) -> None:
    values = np.random.default_rng(n).standard_t(3, size=n) * 0.03 + 0.05
    found = estimate(values.tolist(), alpha=alpha)

    def rejected(shift: float, alternative: str) -> float:
        return float(stats.wilcoxon(values - shift, alternative=alternative, method="exact").pvalue)

    lo, hi, lower = (math.log1p(x) for x in (found.lo, found.hi, found.lower_95))
    assert rejected(lo - EDGE, "two-sided") <= alpha < rejected(lo + EDGE, "two-sided")
    assert rejected(hi + EDGE, "two-sided") <= alpha < rejected(hi - EDGE, "two-sided")
    assert rejected(lower - EDGE, "greater") <= 0.05 < rejected(lower + EDGE, "greater")


def test_the_point_is_the_median_of_all_pairwise_averages() -> None:
    values = np.array([0.3, -0.1, 0.2, 0.25, 0.0, 0.9, 0.15])
    brute = np.median([(a + b) / 2 for i, a in enumerate(values) for b in values[i:]])
    assert math.log1p(estimate(values.tolist()).point) == pytest.approx(float(brute))
    assert len(walsh_averages(values)) == 28


@given(st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=16))
def test_swapping_the_arms_mirrors_the_interval(values: list[float]) -> None:
    ahead, behind = estimate(values), estimate([-value for value in values])
    assert math.log1p(ahead.lo) == pytest.approx(-math.log1p(behind.hi), abs=1e-12)
    assert math.log1p(ahead.point) == pytest.approx(-math.log1p(behind.point), abs=1e-12)
    assert ahead.lo <= ahead.lower_95 <= ahead.point <= ahead.hi


def test_the_methods_are_flagged_when_they_disagree_by_a_point() -> None:
    rng = random.Random(5)
    calm = [0.10 + rng.gauss(0, 0.002) for _ in range(12)]
    assert not estimate(calm).flagged
    assert estimate([*calm[:-1], 0.9]).flagged


@pytest.mark.parametrize(
    ("values", "alpha", "reason"),
    [
        ([0.1] * 5, 0.05, "at least 6"),
        ([0.1] * 5 + [math.nan], 0.05, "finite"),
        ([0.1] * 5 + [math.inf], 0.05, "finite"),
        ([0.1] * 6, 0.01, "measure more"),
        ([0.1] * 6, 1.5, "alpha"),
    ],
)
def test_what_cannot_be_estimated_is_refused(
    values: list[float], alpha: float, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        estimate(values, alpha=alpha)


def test_text_never_raises_a_lower_bound() -> None:
    found = estimate([0.11, 0.13, 0.10, 0.12, 0.14, 0.15, 0.16])
    data = json.loads(json.dumps(found.to_dict()))
    assert all(isinstance(data[name], str) for name in ("point", "lo", "lower_95"))
    for name in ("lo", "lower_95", "t_lo"):
        assert Fraction(data[name]) <= Fraction(getattr(found, name)) + Fraction(1, 10**15)
    assert UpliftEstimate.from_dict(data).to_dict() == data


# A machine that drifts: AR(1) drift shared by neighbours in time, run noise, and slow outliers.


def drifting_pairs(rng: np.random.Generator, n: int, uplift: float) -> np.ndarray:
    """Log-ratios of n interleaved pairs whose order is random inside each pair."""
    runs, rho, drift_sd = 2 * n, 0.95, 0.04
    steps = rng.standard_normal(runs) * drift_sd * math.sqrt(1 - rho**2)
    drift = np.empty(runs)
    drift[0] = rng.standard_normal() * drift_sd
    for i in range(1, runs):
        drift[i] = rho * drift[i - 1] + steps[i]
    noise = rng.standard_normal(runs) * 0.012
    noise -= (rng.random(runs) < 0.08) * rng.exponential(0.05, runs)
    y = drift + noise
    base_first = rng.random(n) < 0.5
    base = np.where(base_first, y[0::2], y[1::2])
    other = np.where(base_first, y[1::2], y[0::2])
    return other - base + uplift


def rates(repeats: int, n: int, seed: int) -> tuple[float, float, float]:
    """(false claims without an uplift, coverage of the interval, of the bound) at 5 % uplift."""
    rng = np.random.default_rng(seed)
    true = math.log(1.05)
    false_claims = covered = bounded = 0
    for _ in range(repeats):
        false_claims += estimate(drifting_pairs(rng, n, 0.0)).lower_95 > 0
        found = estimate(drifting_pairs(rng, n, true))
        covered += found.lo <= 0.05 <= found.hi
        bounded += found.lower_95 <= 0.05
    return false_claims / repeats, covered / repeats, bounded / repeats


def test_a_drifting_machine_brings_few_false_claims() -> None:
    false_claims, covered, bounded = rates(400, 10, seed=3)
    assert false_claims <= 0.06
    assert covered >= 0.93
    assert bounded >= 0.93


@pytest.mark.bench
@pytest.mark.parametrize("n", [6, 10, 20])
def test_a_drifting_machine_at_length(n: int) -> None:
    false_claims, covered, bounded = rates(4000, n, seed=11)
    print(f"n={n}: false claims {false_claims:.3f}, coverage {covered:.3f}, bound {bounded:.3f}")
    assert false_claims <= 0.06
    assert covered >= 0.94
    assert bounded >= 0.94
