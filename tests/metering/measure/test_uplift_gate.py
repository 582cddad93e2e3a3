"""The accuracy guard, the A/A gate and the keep rule."""

from __future__ import annotations

import dataclasses
import json
import math
from decimal import Decimal

import numpy as np
import pytest

from metering.loadgen import RunResult, RunSpec, SutSpec
from metering.uplift import (
    AaGate,
    Accuracy,
    Pair,
    PairedRuns,
    aa_gate,
    accuracy_guard,
    decide,
    draw_order,
)

STOCK = SutSpec("onnxruntime", batch=16)
OURS = SutSpec("kernelgen", arrangement="ragged", batch=16, package="package")
GOOD = Accuracy(1.0, 1.0, 0.0, 100, 0.999, passed=True)


def run_result(run_id: str, rate: float, state: str = "VALID") -> RunResult:
    return RunResult(
        run_id=run_id,
        scenario="Offline",
        mode="performance",
        state=state,  # type: ignore[arg-type]
        reasons=() if state == "VALID" else ("it broke",),
        samples_per_second=Decimal(f"{rate:.6f}") if state == "VALID" else None,
        latency=None,
        sample_count=None,
        effective={},
        files={},
        spec_sha256="",
        started_at="2026-11-30T00:00:00.000Z",
        wall_s=1.0,
        cpu_s=1.0,
        load_average=(0.0, 0.0),
    )


def paired(logs: list[float], other: SutSpec = STOCK, planned: int | None = None) -> PairedRuns:
    """A measurement whose counted pairs have these log-ratios; its warm-up pair is far off."""
    spec = RunSpec("x", "Offline", "performance", STOCK, "m", "s", 1, 1.0)
    order = draw_order(1, len(logs) + 1)
    pairs = [
        Pair(
            i, i == 0, order[i], run_result(f"b{i}", 1000), run_result(f"o{i}", 1000 * math.exp(x))
        )
        for i, x in enumerate([3.0, *logs])
    ]
    return PairedRuns(
        seed=1,
        planned=len(logs) if planned is None else planned,
        base=STOCK,
        other=other,
        base_spec=spec,
        other_spec=dataclasses.replace(spec, sut=other),
        order=order,
        pairs=tuple(pairs),
        abandoned=(),
    )


def spread(center: float, width: float, n: int = 8) -> list[float]:
    return [center + width * (i / (n - 1) - 0.5) for i in range(n)]


def test_the_warm_up_pair_is_left_out() -> None:
    assert paired(spread(0.0, 0.02)).estimate().hi < 0.02


def test_a_quiet_host_passes() -> None:
    gate = aa_gate(paired(spread(0.0, 0.02)), 0.10, 0.02)
    assert gate.passed
    assert gate.reason == ""
    assert gate.lo <= 0 <= gate.hi


@pytest.mark.parametrize(
    ("logs", "claim", "reason"),
    [
        (spread(0.05, 0.02), 0.30, "does not hold 0"),
        (spread(-0.05, 0.02), 0.30, "does not hold 0"),
        (spread(0.0, 0.20), 0.10, "wide, wanted less than half the claim of 10.00%"),
        # Without a claim, or with one too small to be made, the minimum effect is what counts.
        (spread(0.0, 0.02), None, "half the claim of 2.00%"),
        (spread(0.0, 0.02), 0.001, "half the claim of 2.00%"),
        (spread(0.0, 0.02), -0.3, "half the claim of 2.00%"),
    ],
)
def test_a_host_that_cannot_resolve_the_claim_is_not_measurable(
    logs: list[float], claim: float | None, reason: str
) -> None:
    gate = aa_gate(paired(logs), claim, 0.02)
    assert not gate.passed
    assert reason in gate.reason
    assert "host not measurable" in gate.reason


def test_different_systems_are_no_aa_test() -> None:
    assert not aa_gate(paired(spread(0.0, 0.001), OURS), 0.5, 0.02).passed


def test_an_aa_test_cut_short_does_not_pass() -> None:
    gate = aa_gate(paired(spread(0.0, 0.001), planned=10), 0.5, 0.02)
    assert not gate.passed
    assert "only 9 of 11 pairs" in gate.reason


def gate_for(passed: bool) -> AaGate:
    return AaGate(-0.01, 0.01, 0.2, passed, "" if passed else "host not measurable: noisy")


def test_an_uplift_is_kept_only_when_everything_holds() -> None:
    uplift = paired(spread(0.3, 0.02), OURS)
    assert decide(gate_for(True), uplift, GOOD, 0.02).kept
    bad = dataclasses.replace(GOOD, min_cosine=0.5, passed=False)
    broken = dataclasses.replace(
        uplift,
        pairs=(
            *uplift.pairs[:-1],
            dataclasses.replace(uplift.pairs[-1], other=run_result("o8", 1, "HUNG")),
        ),
    )
    for gate, runs, accuracy, reason in (
        (gate_for(False), uplift, GOOD, "host not measurable"),
        (gate_for(True), uplift, bad, "accuracy"),
        (gate_for(True), broken, GOOD, "run o8: HUNG"),
        (gate_for(True), paired(spread(0.3, 0.02), OURS, planned=9), GOOD, "only 9 of 10"),
        (gate_for(True), paired(spread(0.015, 0.001), OURS), GOOD, "no claim"),
        (gate_for(True), paired(spread(-0.3, 0.02), OURS), GOOD, "no claim"),
    ):
        decision = decide(gate, runs, accuracy, 0.02)
        assert not decision.kept
        assert reason in "; ".join(decision.reasons)


def test_outputs_of_timed_runs_count() -> None:
    bad = dataclasses.replace(GOOD, min_cosine=0.2, passed=False)
    decision = decide(gate_for(True), paired(spread(0.3, 0.02), OURS), GOOD, 0.02, bad)
    assert not decision.kept
    assert "timed runs" in decision.reasons[0]


def test_the_guard_looks_at_every_row() -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((200, 32)).astype(np.float32)
    same = accuracy_guard(reference, reference.copy(), 0.9999)
    assert same.passed
    assert same.min_cosine == pytest.approx(1.0)
    assert same.samples == 200
    one_bad = reference.copy()
    one_bad[17] = -one_bad[17]
    found = accuracy_guard(reference, one_bad, 0.9999)
    assert not found.passed
    assert found.mean_cosine > 0.98
    assert found.min_cosine == pytest.approx(-1.0)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_rows_that_cannot_be_compared_fail(value: float) -> None:
    reference = np.ones((4, 8), dtype=np.float32)
    candidate = reference.copy()
    candidate[2] = value
    assert not accuracy_guard(reference, candidate, 0.5).passed


def test_the_guard_refuses_outputs_of_other_shapes() -> None:
    with pytest.raises(ValueError, match="outputs"):
        accuracy_guard(np.ones((2, 3), np.float32), np.ones((1, 3), np.float32), 0.9)
    with pytest.raises(ValueError, match="floor"):
        accuracy_guard(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), 0.0)


def test_documents_round_trip() -> None:
    for value in (GOOD, gate_for(True)):
        data = json.loads(json.dumps(value.to_dict()))
        assert type(value).from_dict(data) == value


def test_the_order_is_drawn_from_the_seed_alone() -> None:
    assert draw_order(42, 12) == draw_order(42, 20)[:12]
    assert draw_order(42, 64) != draw_order(43, 64)
    first = sum(arm == "base" for arm in draw_order(7, 2000))
    assert 900 < first < 1100
