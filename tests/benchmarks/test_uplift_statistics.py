"""Does the method claim what is not there, and does its interval hold what is?

Simulated machines, the product's own estimate, A/A gate and keep rule. Beside them the design that
most reports use: all runs of the baseline, then all runs of the candidate, and a Welch test.
Printed by ``make bench-uplift``; CI runs the quick form.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from metering.uplift import Accuracy, aa_gate, decide
from metering.uplift.order import WARM_UP_PAIRS
from tests.benchmarks.simulated_machine import (
    BASE,
    MACHINES,
    OTHER,
    Machine,
    pair_up,
)

TRUE_UPLIFT, MINIMUM_EFFECT, LEVEL = 0.05, 0.02, 0.05
MOST_FALSE_CLAIMS, LEAST_COVERAGE = 0.06, 0.94
SAME_ANSWERS = Accuracy(1.0, 1.0, 0.0, 512, 0.9999, passed=True)


@dataclass(frozen=True)
class Row:
    """Shares of the experiments on one machine; ``naive`` is before/after with a Welch test."""

    machine: str
    pairs: int
    false_claims: float
    false_kept: float
    coverage: float
    kept: float
    width: float
    naive_false_claims: float
    naive_coverage: float
    fixed_order_false_claims: float


def experiments(machine: Machine, pairs: int, count: int, seed: int) -> Row:
    """``count`` whole measurements, A/A first; rows of a table take seeds of their own."""
    rng = np.random.default_rng(seed)
    runs = 2 * (pairs + WARM_UP_PAIRS)
    slots = machine.runs(count, 2 * runs, rng)
    aa_slots, uplift_slots = slots[:, :runs], slots[:, runs:]
    seeds = range(seed * 1_000_003, seed * 1_000_003 + count)
    counts = dict.fromkeys(("false", "false_kept", "covered", "kept", "fixed"), 0)
    widths = []
    for order_seed, aa_row, row in zip(seeds, aa_slots, uplift_slots, strict=True):
        aa = pair_up(aa_row, 0.0, order_seed, BASE)
        for uplift in (0.0, TRUE_UPLIFT):
            measured = pair_up(row, uplift, order_seed, OTHER)
            found = measured.estimate()
            gate = aa_gate(aa, found.lower_95, MINIMUM_EFFECT)
            kept = decide(gate, measured, SAME_ANSWERS, MINIMUM_EFFECT).kept
            if uplift:
                counts["covered"] += found.lo <= uplift <= found.hi
                counts["kept"] += kept
                widths.append(found.hi - found.lo)
            else:
                counts["false"] += found.lower_95 > 0
                counts["false_kept"] += kept
    false, covered = before_after(uplift_slots[:, 2 * WARM_UP_PAIRS :])
    return Row(
        machine=machine.name,
        pairs=pairs,
        false_claims=counts["false"] / count,
        false_kept=counts["false_kept"] / count,
        coverage=counts["covered"] / count,
        kept=counts["kept"] / count,
        width=float(np.median(widths)),
        naive_false_claims=false,
        naive_coverage=covered,
        fixed_order_false_claims=fixed_order(uplift_slots[:, 2 * WARM_UP_PAIRS :]),
    )


def before_after(slots: np.ndarray) -> tuple[float, float]:
    """False one-sided claims at 5 %, and how often the 95 % Welch interval holds a true 5 %."""
    half = slots.shape[1] // 2
    before, after = slots[:, :half], slots[:, half:]
    one_sided = stats.ttest_ind(after, before, axis=1, equal_var=False, alternative="greater")
    both = stats.ttest_ind(after, before, axis=1, equal_var=False).confidence_interval(0.95)
    # A true uplift moves the interval by its logarithm, so the same runs serve for both questions.
    covered = (both.low <= 0) & (both.high >= 0)
    return float((one_sided.pvalue < LEVEL).mean()), float(covered.mean())


def fixed_order(slots: np.ndarray) -> float:
    """False claims of pairs in which the candidate always goes first (paired t, one-sided)."""
    first, second = slots[:, ::2], slots[:, 1::2]
    return float(
        (stats.ttest_rel(first, second, axis=1, alternative="greater").pvalue < LEVEL).mean()
    )


def report(rows: list[Row], count: int, seconds: float) -> str:
    lines = [
        f"{count} experiments a row, {seconds:.0f} s of one core; level 5 %, true uplift 5 %",
        f"{'machine':<15}{'pairs':>6} | {'false':>6}{'kept':>7}{'covers':>8}{'width':>8}"
        f"{'power':>7}"
        f" | before/after: {'false':>6}{'covers':>8} | fixed order: {'false':>6}",
    ]
    lines += [
        f"{row.machine:<15}{row.pairs:>6} | {row.false_claims:>6.1%}{row.false_kept:>7.1%}"
        f"{row.coverage:>8.1%}{row.width:>8.1%}{row.kept:>7.1%}"
        f" |               {row.naive_false_claims:>6.1%}{row.naive_coverage:>8.1%}"
        f" |              {row.fixed_order_false_claims:>6.1%}"
        for row in rows
    ]
    return "\n".join(lines)


@pytest.mark.bench
def test_false_claims_and_coverage_over_three_thousand_experiments() -> None:
    count, started = 3000, time.process_time()
    kinds = [(machine, pairs) for pairs in (10, 20) for machine in MACHINES]
    rows = [experiments(*kind, count, seed) for seed, kind in enumerate(kinds, start=100)]
    print("\n" + report(rows, count, time.process_time() - started))
    for row in rows:
        assert row.false_claims <= MOST_FALSE_CLAIMS, row
        assert row.false_kept <= MOST_FALSE_CLAIMS, row
        assert row.coverage >= LEAST_COVERAGE, row
    # The figures must be able to fail: on the machines that move, the naive design does.
    assert min(row.naive_false_claims for row in rows if row.machine == "autocorrelated") > 0.2
    assert min(row.fixed_order_false_claims for row in rows if row.machine == "heating") > 0.5


def test_quick_form() -> None:
    """200 experiments on the worst machine; bounds three standard errors wider than the proof's."""
    count = 200
    row = experiments(MACHINES[-1], 10, count, 1)
    assert row.false_claims <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / count)
    assert row.coverage >= 1 - LEVEL - 3 * math.sqrt(LEVEL * (1 - LEVEL) / count)
    assert row.naive_false_claims > 2 * row.false_claims
    assert row.fixed_order_false_claims > 2 * row.false_claims


def test_a_quiet_machine_keeps_a_true_uplift_and_no_other() -> None:
    row = experiments(MACHINES[0], 20, 60, 2)
    assert row.kept > 0.9
    assert row.false_kept == 0.0
