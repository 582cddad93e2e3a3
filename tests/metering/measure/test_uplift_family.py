"""Several claims: Holm against published numbers, bounds that hold together, and the mix."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from metering.uplift import estimate
from metering.uplift.family import Traffic, family, holm, mix_uplift, signed_rank_p


def draws(center: float, count: int, rng: np.random.Generator) -> list[float]:
    return [float(value) for value in rng.normal(center, 0.03, count)]


def test_holm_gives_the_numbers_of_a_worked_example() -> None:
    """Worked by hand: 4 x 0.005, 3 x 0.01, 2 x 0.03, then never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.04, 0.04]) == pytest.approx((0.08, 0.08))
    assert holm([0.7, 0.9]) == (1.0, 1.0)
    assert holm([0.03]) == (0.03,)


def test_a_family_of_one_is_the_plain_estimate() -> None:
    values = draws(0.1, 10, np.random.default_rng(1))
    (claim,) = family({"only": values}, 0.02)
    assert claim.estimate == estimate(values)
    assert claim.bound == claim.estimate.lower_95
    assert claim.adjusted_p == claim.p_value
    assert claim.shown == claim.billable == (claim.bound > 0.02)


@pytest.mark.parametrize("n", [6, 9, 13])
def test_the_p_value_is_the_textbook_one(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        values = draws(0.02, n, rng)
        shifted = np.array(values) - math.log1p(0.01)
        known = stats.wilcoxon(shifted, alternative="greater", method="exact").pvalue
        assert signed_rank_p(values, 0.01) == pytest.approx(known, abs=1e-12)


def test_test_and_bound_agree_at_every_level() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        values = draws(float(rng.uniform(0, 0.08)), 9, rng)
        for size in (1, 2, 4):
            claims = family({str(number): values for number in range(size)}, 0.02)
            p_value = signed_rank_p(values, 0.02)
            assert (claims[0].bound > 0.02) == (p_value <= 0.05 / size)


def test_many_claims_that_are_nothing_are_rarely_shown() -> None:
    """Eight models, none faster: without correction a third of the mixes would hold a claim."""
    rng = np.random.default_rng(4)
    experiments, size = 300, 8
    corrected = plain = 0
    for _ in range(experiments):
        claims = family({str(k): draws(0.0, 12, rng) for k in range(size)}, 0.0)
        corrected += any(claim.shown for claim in claims)
        plain += any(claim.estimate.lower_95 > 0 for claim in claims)
    assert corrected / experiments <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / experiments)
    assert plain / experiments > 0.2


def test_the_bounds_of_a_family_hold_together() -> None:
    rng = np.random.default_rng(5)
    truths = {"a": 0.0, "b": 0.05, "c": 0.3}
    wrong = 0
    for _ in range(300):
        logs = {name: draws(math.log1p(value), 12, rng) for name, value in truths.items()}
        wrong += any(claim.bound > truths[claim.name] for claim in family(logs, 0.02))
    assert wrong / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_holm_shows_no_less_than_bonferroni_and_bills_no_more() -> None:
    rng = np.random.default_rng(6)
    more = 0
    for _ in range(200):
        logs = {str(k): draws(0.045, 9, rng) for k in range(3)}
        for claim in family(logs, 0.02):
            assert claim.shown or claim.bound <= 0.02
            assert not claim.billable or claim.bound > 0.02
            more += claim.shown and not claim.billable
    assert more > 0


def test_too_few_pairs_for_the_family_are_refused() -> None:
    values = draws(0.1, 6, np.random.default_rng(7))
    assert len(family(dict.fromkeys("abc", values), 0.02)) == 3
    with pytest.raises(ValueError, match="cannot give an exact bound"):
        family(dict.fromkeys("abcd", values), 0.02)
    with pytest.raises(ValueError, match="at least one"):
        family({}, 0.02)


def test_the_order_of_the_claims_changes_nothing() -> None:
    rng = np.random.default_rng(8)
    logs = {name: draws(0.04, 8, rng) for name in "abc"}
    first = {claim.name: claim for claim in family(logs, 0.02)}
    for names in itertools.permutations("abc"):
        again = {claim.name: claim for claim in family({n: logs[n] for n in names}, 0.02)}
        assert again == first


def test_the_mix_is_a_sum_of_time_and_never_a_mean_of_ratios() -> None:
    """Encoder twice as fast, recogniser at 1.0: 3,600 s + 1,200 s become 1,800 s + 1,200 s."""
    traffic = {
        "encoder": Traffic(3_600_000, Decimal("1000")),
        "recogniser": Traffic(12_000, Decimal("10")),
    }
    assert mix_uplift({"encoder": 1.0, "recogniser": 0.0}, traffic) == pytest.approx(
        4800 / 3000 - 1
    )
    # The mean of the ratios would be 0.5 whatever the traffic.
    none = {**traffic, "encoder": Traffic(0, Decimal("1000"))}
    assert mix_uplift({"encoder": 1.0, "recogniser": 0.0}, none) == pytest.approx(0.0)
    alone = {"encoder": traffic["encoder"]}
    assert mix_uplift({"encoder": 0.37}, alone) == pytest.approx(0.37)
    with pytest.raises(ValueError, match="wanted \\['encoder'\\]"):
        mix_uplift({"encoder": 0.1}, traffic)
    with pytest.raises(ValueError, match="no samples"):
        mix_uplift({"encoder": 0.1}, {"encoder": Traffic(0, Decimal(1))})
    with pytest.raises(ValueError, match="rate above 0"):
        mix_uplift({"encoder": 0.1}, {"encoder": Traffic(1, Decimal(0))})
