"""Savings lines: volume times measured cost difference, bounded, exact and explained."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.contract import LedgerState, fee
from metering.plan import Period, PriceBook
from metering.refusal import Refusal
from metering.savings import (
    SavingsLine,
    combine_standard_errors,
    lower_bound,
    measured_text,
    savings_line,
    t_95_one_sided,
    unit_cost_savings,
    verified_savings,
)
from tests.metering.money_cases import UNHURRIED, ZONE, contract

PERIOD = Period.month("2026-11", ZONE)
BOOK = PriceBook("EUR", Decimal("0.036"), datetime(2026, 1, 1, tzinfo=UTC), "list price")


def saved(**changes: Any) -> SavingsLine:
    """A hundred samples a second on two cores at 1e-5 EUR per core second, 25 % uplift."""
    values: dict[str, Any] = {
        "model": "m",
        "system": "s",
        "period": PERIOD,
        "volume": 100_000_000,
        "baseline_samples_per_second": "100",
        "cores": 2,
        "price_book": BOOK,
        "uplift_point": "0.25",
        "uplift_lower_95": "0.20",
        "baseline_id": "b-1",
        "uplift_id": "u-1",
        "evidence_digest": "e" * 64,
    }
    return savings_line(**(values | changes))


def test_a_line_by_hand() -> None:
    """c0 = 0.036 / 3600 x 2 / 100 = 2e-7; V c0 = 20; 20 x (1 - 1/1.25) = 4; at 1.2: 3.333..."""
    line = saved()
    assert line.counterfactual == 20
    assert line.point == 4
    assert line.bound == line.billable == Decimal("3.333333333333")
    assert line.standard_error == Decimal("0.405304462686")
    assert line.cost_per_million_before == Decimal("0.2")
    assert line.cost_per_million_after == Decimal("0.16")
    assert line.cost_per_million_after_bound == Decimal("0.166666666667")
    assert line.reason == ""


@pytest.mark.parametrize(
    ("change", "point", "reason"),
    [
        (
            {"kept": False, "not_kept_reason": "accuracy below floor"},
            "0",
            "kernel not kept: accuracy below floor",
        ),
        ({"volume": 0}, "0", "no accepted volume in the period"),
        ({"uplift_lower_95": "0"}, "4", "at or below zero"),
        ({"uplift_lower_95": "-0.05"}, "4", "at or below zero"),
    ],
)
def test_nothing_bills_without_a_reason(change: Any, point: str, reason: str) -> None:
    line = saved(**change)
    assert line.billable == 0
    assert line.point == Decimal(point)
    assert reason in line.reason
    savings = verified_savings([line], evidence_digest="e" * 64)
    result = fee(contract(), LedgerState(), savings)
    assert result.fee == 0
    assert result.reasons


def test_a_kernel_that_was_not_kept_costs_what_the_baseline_costs() -> None:
    line = saved(kept=False, not_kept_reason="slower")
    assert line.cost_per_million_after == line.cost_per_million_before


def test_a_regression_is_a_loss_at_its_point_estimate() -> None:
    line = saved(uplift_point="-0.20", uplift_lower_95="-0.30")
    assert line.point == -5
    savings = verified_savings([line], evidence_digest="e" * 64)
    assert fee(contract(), LedgerState(), savings).state.losses == 5


@UNHURRIED
@given(
    st.integers(0, 10**12),
    st.decimals(min_value="0.001", max_value=10**6, places=6),
    st.decimals(min_value="-0.9", max_value=20, places=6),
    st.decimals(min_value=0, max_value="0.05", places=6),
)
def test_savings_never_exceed_the_counterfactual(
    volume: int, rate: Decimal, lower: Decimal, width: Decimal
) -> None:
    """kubecost/kubecost#1738."""
    line = saved(
        volume=volume,
        baseline_samples_per_second=rate,
        uplift_lower_95=lower,
        uplift_point=lower + width,
    )
    assert 0 <= line.billable <= line.counterfactual
    assert line.bound <= line.point <= line.counterfactual
    assert line.billable == max(Decimal(0), line.bound)


@UNHURRIED
@given(st.integers(1, 10**6), st.integers(2, 60))
def test_thirty_days_save_thirty_times_one_day(volume: int, days: int) -> None:
    """kubecost/kubectl-cost#96, kubecost/kubecost#1612: a monthly figure times days."""
    one, many = saved(volume=volume * 10**4), saved(volume=volume * 10**4 * days)
    assert many.counterfactual == one.counterfactual * days
    assert abs(many.bound - one.bound * days) <= Decimal("1e-12") * days


def test_the_cost_ratio_is_one_of_sums_not_a_mean_of_ratios() -> None:
    """Five runs of 1000, 1010, 990, 1005 and 995 per second at 0.001 a second."""
    rates = [Decimal(rate) for rate in (1000, 1010, 990, 1005, 995)]
    total = sum(rates) / len(rates)
    line = saved(baseline_samples_per_second=total, cores=1)
    assert line.cost_per_million_before == Decimal("0.01")
    mean = sum(Decimal(10) ** 6 * BOOK.price_per_core_second / rate for rate in rates) / 5
    assert mean > line.cost_per_million_before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1 / 3, "0.333333333333"),
        (123456789.123456789, "123456789.123"),
        (1.5e-9, "0.0000000015"),
        (-0.0, "0"),
        (2e15, "2000000000000000"),
    ],
)
def test_a_measured_float_becomes_text_once(value: float, text: str) -> None:
    assert measured_text(value) == text


def test_the_last_bit_of_a_float_never_reaches_a_cent() -> None:
    rate = 221.4837261
    nudged = rate * (1 + 2**-52)
    assert rate != nudged
    assert measured_text(rate) == measured_text(nudged)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1"])
def test_what_was_not_measured_has_no_text(value: Any) -> None:
    with pytest.raises(Refusal):
        measured_text(value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"baseline_samples_per_second": 100.0}, "baseline_samples_per_second"),
        ({"baseline_samples_per_second": "0"}, "baseline_samples_per_second"),
        ({"uplift_point": 0.25}, "uplift_point"),
        ({"uplift_lower_95": "0.30"}, "uplift_lower_95"),
        ({"uplift_lower_95": "-1"}, "uplift_lower_95"),
        ({"volume": -1}, "volume"),
        ({"volume": True}, "volume"),
        ({"volume": 1.0}, "volume"),
        ({"cores": 0}, "cores"),
        ({"kept": False}, "not_kept_reason"),
        ({"period": Period.month("2025-12", ZONE)}, "price_book.valid_from"),
    ],
)
def test_bad_inputs_are_refused_by_name(change: Any, field: str) -> None:
    with pytest.raises(Refusal) as refused:
        saved(**change)
    assert refused.value.field == field


def test_a_line_survives_json_with_the_same_fee() -> None:
    line = saved(uplift_point="0.2571", uplift_lower_95="0.2311")
    again = SavingsLine.from_json(canonical.loads(canonical.dumps(line.to_json())))
    assert again == line
    assert again.digest == line.digest
    fees = {
        fee(contract(), LedgerState(), verified_savings([one], evidence_digest="e" * 64)).digest
        for one in (line, again)
    }
    assert len(fees) == 1


def test_lines_of_two_periods_or_no_lines_are_no_month() -> None:
    december = saved(period=Period.month("2026-12", ZONE))
    for lines in ([], [saved(), december]):
        with pytest.raises(Refusal):
            verified_savings(lines, evidence_digest="e" * 64)


# Uncertainty and unit costs


@pytest.mark.parametrize(
    ("df", "quantile"), [(1, "6.313752"), (5, "2.015048"), (29, "1.699127"), (1000, "1.646379")]
)
def test_quantiles_of_students_t(df: int, quantile: str) -> None:
    assert t_95_one_sided(df) == Decimal(quantile)


def test_bounds_and_errors_are_refused_when_they_make_no_sense() -> None:
    with pytest.raises(Refusal, match="from 1"):
        t_95_one_sided(0)
    with pytest.raises(Refusal, match="zero or more"):
        lower_bound("1", "-1", 5)
    with pytest.raises(Refusal, match="zero or more"):
        combine_standard_errors(["1", "-1"], shared_baseline=True)
    assert lower_bound("10", "2", 5, t="2") == 6


def test_unit_costs_keep_their_sign_and_refuse_negative_volume() -> None:
    assert unit_cost_savings("5000", "0.80", "0.90") == -500
    with pytest.raises(Refusal, match="correction"):
        unit_cost_savings("-1", "0.80", "0.90")
