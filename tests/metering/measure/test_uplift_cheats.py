"""Cheats played on the whole path: real children, real logs, the product's own judgement of them.

Every test plays one and shows what refuses it. What edits or drops logs afterwards is played in
test_uplift_account, test_evidence and test_loadgen_verify; what stalls or caches, in
test_uplift_guards.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering.evidence import recompute
from metering.loadgen import EvidenceError, RunResult, RunSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verdict import ACCURACY, accuracy_outputs
from metering.plan import MeasurementPlan
from metering.uplift import PairedRuns, PairsRefused, conditions, load_paired, measure_pairs, pairs
from metering.uplift.accuracy import accuracy_guard
from metering.uplift.cache import cache_guard, load_cache
from metering.uplift.conditions import Conditions, conditions_guard
from metering.uplift.guards import held_back_guard
from metering.uplift.order import WARM_UP_PAIRS, draw_order
from metering.uplift.precision import FLOAT32_BOUND, precision_guard
from tests.metering.measure.test_uplift_guards import CHECK, FLOOR, PAIRS, measured, plan, played_by

__all__ = ["plan"]

# Draws an order in which each arm opens three of the six pairs that count.
SEED = next(
    seed
    for seed in range(100)
    if draw_order(seed, PAIRS + WARM_UP_PAIRS)[WARM_UP_PAIRS:].count("base") == PAIRS // 2
)


@pytest.fixture
def arms(make_spec: Callable[..., RunSpec]) -> tuple[RunSpec, RunSpec]:
    """Two arms of one little system, told apart by a setting that it does not read."""
    base = make_spec({"batch": 16}, min_query_count=16, sampled_outputs=8)
    sut = dataclasses.replace(base.sut, graph_optimization="basic")
    return base, dataclasses.replace(base, sut=sut)


def first_of_its_pair(run_id: str) -> bool:
    _, number, _, arm = run_id.rsplit("-", 3)
    return draw_order(SEED, PAIRS + WARM_UP_PAIRS)[int(number[1:])] == arm


def measure(
    arms: tuple[RunSpec, RunSpec], out: Path, monkeypatch: pytest.MonkeyPatch,
    case_of: Callable[[RunSpec], str],
) -> PairedRuns:  # fmt: skip
    monkeypatch.setattr(pairs, "run", played_by(case_of))
    found = measure_pairs(*arms, pairs=PAIRS, seed=SEED, out=out)
    assert found.complete, found.faults
    return load_paired(out)


def test_order_and_warm_up_favour_nobody(
    arms: tuple[RunSpec, RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever runs second is held back, and so is the baseline while the machine warms up."""

    def case(spec: RunSpec) -> str:
        cold = "-p00-" in spec.run_id and spec.run_id.endswith("-base")
        return "held back" if cold or not first_of_its_pair(spec.run_id) else "honest"

    found = measure(arms, tmp_path / "uplift", monkeypatch, case)
    # Enough of an effect to convince anyone who runs the arms in a fixed order.
    gain = [
        pair.log_ratio * (1 if pair.first == "other" else -1)
        for pair in found.pairs[WARM_UP_PAIRS:]
    ]
    assert min(gain) > math.log(1.3)
    estimate = found.estimate()
    assert estimate.lower_95 < 0
    assert estimate.lo < 0 < estimate.hi
    assert len(found.log_ratios()) == PAIRS
    # Only the record's own order is accepted, and its warm-up pair stays one.
    path = tmp_path / "uplift/pairs.json"
    text = path.read_text()
    for change in ({"order": ["other"] * (PAIRS + 1)}, {"seed": str(SEED + 1)}):
        path.write_text(json.dumps({**json.loads(text), **change}))
        with pytest.raises(EvidenceError, match="order"):
            load_paired(tmp_path / "uplift")
    document = json.loads(text)
    document["pairs"][0]["warm_up"] = False
    path.write_text(json.dumps(document))
    with pytest.raises(EvidenceError, match="out of place"):
        load_paired(tmp_path / "uplift")


def test_an_arm_may_not_warm_up_longer(arms: tuple[RunSpec, RunSpec], tmp_path: Path) -> None:
    base, other = arms
    longer = dataclasses.replace(other, warmup_ms=5000)
    with pytest.raises(PairsRefused, match="the arms differ in warmup_ms"):
        measure_pairs(base, longer, pairs=PAIRS, seed=SEED, out=tmp_path / "uplift")
    assert not (tmp_path / "uplift").exists()


@pytest.mark.slow
def test_a_baseline_held_back_where_it_is_compared(
    arms: tuple[RunSpec, RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, other = arms
    other = dataclasses.replace(other, sut=base.sut)
    aa = measure((base, other), tmp_path / "aa", monkeypatch, lambda _: "honest")
    uplift = measure(
        arms, tmp_path / "uplift", monkeypatch,
        lambda spec: "held back" if spec.run_id.endswith("-base") else "honest",
    )  # fmt: skip
    assert uplift.estimate().lower_95 > 0.02  # the claim it was done for
    guard = held_back_guard(aa, uplift)
    assert not guard.passed
    assert "it was held back, or the machine changed" in guard.reason
    assert guard.change is not None
    assert guard.change < -0.25
    # The same runs, with what the machine was like beside each.
    seen = [pair.conditions for pair in uplift.pairs]
    assert all(one is not None and min(one[0].pace_ns, one[1].pace_ns) > 0 for one in seen)


def test_a_clock_lowered_or_work_started_for_the_baseline() -> None:
    """Six pairs of a machine as it was read here, and the same with one arm's machine worse."""
    core = min(os.sched_getaffinity(0))
    here = [Conditions(round(conditions._pace_ns((core,))), 0.01 * n) for n in range(PAIRS)]
    assert conditions_guard(here, here).passed
    slow = [Conditions(one.pace_ns * 3 // 2, one.foreign) for one in here]
    found = conditions_guard(slow, here)
    assert not found.passed
    assert "its clock or its load changed between the arms" in found.reason
    assert conditions_guard(here, slow).passed  # against us, so no claim is too large
    busy = [Conditions(one.pace_ns, (one.foreign or 0) + 0.3) for one in here]
    found = conditions_guard(busy, here)
    assert not found.passed
    assert "other work took at least 30.0% more" in found.reason
    # One that is not on record is no proof; one that the system does not tell is not measured.
    assert "none on record" in conditions_guard([None, *here[1:]], here).reason
    silent = [Conditions(one.pace_ns, None) for one in here]
    assert conditions_guard(silent, here).passed
    assert conditions_guard(silent, here).busier is None


def test_other_work_is_seen_on_the_cores_of_a_run(recorded: Path) -> None:
    """A real process works beside a run that needs no time itself."""
    core = min(os.sched_getaffinity(0))
    result = dataclasses.replace(load_paired(recorded / "uplift").pairs[0].base, cpu_s=0.0)
    burn = (
        f"import os, time; os.sched_setaffinity(0, {{{core}}})\n"
        "while time.process_time() < 0.5: pass"
    )

    def beside() -> RunResult:
        subprocess.run([sys.executable, "-c", burn], check=True)
        return result

    _, seen = conditions.watched((core,), beside)
    assert seen.foreign is not None
    assert seen.foreign > 0.2
    # The same time is the run's own when the run says so.
    _, seen = conditions.watched((core,), lambda: dataclasses.replace(beside(), cpu_s=1e6))
    assert seen.foreign == 0.0
    assert Conditions.from_dict(seen.to_dict()) == seen
    with pytest.raises(ValueError, match="pace_ns"):
        Conditions.from_dict({"pace_ns": 0, "foreign": None})
    with pytest.raises(ValueError, match="foreign"):
        Conditions.from_dict({"pace_ns": 1, "foreign": "1.5"})


@pytest.mark.slow
def test_answers_learned_for_the_set_that_is_measured(
    plan: MeasurementPlan,
    inputs: dict[str, Any],
    evidence: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows the held-out sentences by heart and computes all others: right, fast, no use."""
    case = f"tuned:{inputs['samples']}"
    measured(plan, inputs, evidence, monkeypatch, case)
    out = evidence / "cache"
    guard = cache_guard(load_cache(out), out, 0.3, CHECK)
    assert guard.answers is not None
    assert guard.answers.passed
    assert not guard.passed
    assert "outputs are cached" in guard.reason


def test_what_the_search_saw_is_not_what_is_measured(evidence: Path) -> None:
    digest = json.loads((evidence / "baseline/baseline.json").read_bytes())["samples_sha256"]
    mix = {"samples_sha256": digest, "held_out_sha256": digest}
    (evidence / "mix.json").write_text(json.dumps(mix))
    honest = recompute(evidence)
    assert honest.decision.kept
    (evidence / "mix.json").write_text(json.dumps({**mix, "held_out_sha256": "0" * 64}))
    with pytest.raises(EvidenceError, match=r"aa: measured on samples .*mix\.json holds out, 0000"):
        recompute(evidence)


def test_bits_dropped_without_saying_so(make_spec: Callable[..., RunSpec], tmp_path: Path) -> None:
    """bfloat16 results pass the customer's floor, and do not pass for float32."""
    outputs = {}
    for case in ("honest", "rounded"):
        spec = make_spec(mode="accuracy", run_id=case)
        result = played_by(lambda _, name=case: name)(spec, tmp_path / case)  # type: ignore[misc]
        assert result.valid, result.reasons
        outputs[case] = accuracy_outputs((tmp_path / case / ACCURACY).read_bytes())
    assert accuracy_guard(outputs["honest"], outputs["rounded"], FLOOR).passed
    found = precision_guard([("the accuracy run", outputs["honest"], outputs["rounded"])])
    assert not found.passed
    assert "fewer bits than the plan says" in found.reason
    same = precision_guard([("the accuracy run", outputs["honest"], outputs["honest"])])
    assert (same.passed, same.worst) == (True, 0.0)
    assert not precision_guard([]).passed
    broken = outputs["honest"].copy()
    broken[3, 0] = float("nan")
    assert "not finite" in precision_guard([("x", outputs["honest"], broken)]).reason


def test_stock_stacks_differ_less_than_the_float32_bound(
    make_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    """The bound is far from what another order of additions does, in two real stacks."""
    outputs = []
    for number, sut in enumerate(
        (
            {"stack": "onnxruntime", "graph_optimization": "none"},
            {"stack": "openvino", "graph_optimization": "default"},
        )
    ):
        out = tmp_path / str(number)
        result = run(make_spec(sut, mode="accuracy", run_id=f"stock-{number}"), out)
        assert result.valid, result.reasons
        outputs.append(accuracy_outputs((out / ACCURACY).read_bytes()))
    found = precision_guard([("openvino", outputs[0], outputs[1])])
    assert found.passed
    assert found.worst is not None
    assert 0 < found.worst < FLOAT32_BOUND / 10


def test_an_accuracy_run_of_another_build(evidence: Path) -> None:
    run = evidence / "accuracy/runs/candidate/result.json"
    result = json.loads(run.read_bytes())
    run.write_text(json.dumps({**result, "stack_digest": "0" * 64}))
    with pytest.raises(EvidenceError, match="accuracy: candidate is another build"):
        recompute(evidence)


def test_a_baseline_at_odd_settings_is_not_the_frozen_one(evidence: Path) -> None:
    """The frozen configuration is what runs against the candidate; a slower one is refused."""
    path = evidence / "uplift/pairs.json"
    document = json.loads(path.read_bytes())
    odd = {**document["base_spec"]["sut"], "graph_optimization": "none", "batch": 1}
    document["base_spec"]["sut"] = {**odd, "arrangement": "single"}
    path.write_text(json.dumps(document))
    with pytest.raises(EvidenceError, match="its spec is not that of its arm"):
        recompute(evidence)
