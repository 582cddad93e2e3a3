"""Guards: each cheat is played, with a real LoadGen child or on really recorded logs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metering import evidence as whole
from metering.__main__ import main
from metering.evidence import recompute
from metering.loadgen import EvidenceError, RunResult, RunSpec, SutSpec
from metering.loadgen.calibrate import probe_spec
from metering.loadgen.library import LibraryError, load_library
from metering.loadgen.settings import samples_per_query
from metering.loadgen.supervisor import supervise
from metering.plan import MeasurementPlan
from metering.uplift import PairedRuns, cache, decide, load_paired, measure_pairs, pairs
from metering.uplift.accuracy import Accuracy
from metering.uplift.answers import CosineCheck
from metering.uplift.cache import (
    CACHE_BOUND,
    CacheGuard,
    cache_guard,
    cache_limit,
    load_cache,
)
from metering.uplift.fresh_inputs import DISTINCT, FRESH, REPEATED, make_libraries
from metering.uplift.gate import AaGate
from metering.uplift.guards import P99_BOUND, TailGuard, tail_guard
from tests.quick import some

CHILD = Path(__file__).with_name("cheating_child.py")
PAIRS, FLOOR = 6, 0.9999
CHECK = CosineCheck(FLOOR)
OPEN_GATE = AaGate(0.0, 0.0, 0.02, True, "")
SAME = Accuracy(1.0, 1.0, 0.0, 96, FLOOR, passed=True)


def child(case: str) -> tuple[str, ...]:
    return (sys.executable, "-P", str(CHILD), case)


def played_by(case_of: Callable[[RunSpec], str]) -> Callable[[RunSpec, Path], RunResult]:
    """The product's own ``run``, with the system of the child exchanged."""
    return lambda spec, out: supervise(spec, out, child=child(case_of(spec)))


@pytest.fixture
def plan(recorded: Path) -> MeasurementPlan:
    return MeasurementPlan.from_json(json.loads((recorded / "plan.json").read_text()))


def with_tails(paired: PairedRuns, factor: Callable[[int], float]) -> PairedRuns:
    """The measurement with the p99 of every candidate run multiplied."""
    changed = []
    for pair in paired.pairs:
        assert pair.other.latency is not None
        p99 = round(pair.other.latency.p99_ns * factor(pair.pair))
        latency = dataclasses.replace(pair.other.latency, p99_ns=p99)
        other = dataclasses.replace(pair.other, latency=latency)
        changed.append(dataclasses.replace(pair, other=other))
    return dataclasses.replace(paired, pairs=tuple(changed))


def test_the_recorded_measurement_has_no_worse_tail(recorded: Path) -> None:
    found = recompute(recorded)
    assert found.tail.passed
    assert found.tail.upper_95 is not None
    assert found.tail.upper_95 < P99_BOUND
    assert found.decision.kept
    data = json.loads(json.dumps(found.tail.to_dict()))
    assert TailGuard.from_dict(data).to_dict() == data


def test_a_tail_worse_than_the_bound_is_not_kept(recorded: Path) -> None:
    paired = load_paired(recorded / "uplift")
    honest = tail_guard(paired)
    assert honest.point is not None
    back = 1 / (1 + honest.point)
    for factor, passed in ((0.5, True), (1.5, False)):
        guard = tail_guard(with_tails(paired, lambda _, f=factor: back * f))  # type: ignore[misc]
        assert guard.passed is passed
        decision = decide(OPEN_GATE, paired, SAME, 0.02, guards=(guard,))
        assert decision.kept is passed
        assert decision.reasons == (() if passed else (guard.reason,))
    # Noise is no excuse: as good in the middle, but nobody can tell.
    wild = tail_guard(with_tails(paired, lambda number: back * (3.0 if number % 2 else 1 / 3)))
    assert not wild.passed
    assert "not shown" in wild.reason


def test_a_stall_that_the_primary_metric_cannot_see(
    make_spec: Callable[..., RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SingleStream counts the 90th percentile; one query in forty takes a hundred times as long."""
    monkeypatch.setattr(
        pairs,
        "run",
        played_by(lambda s: "honest" if s.sut.graph_optimization == "all" else "stalling"),
    )
    base = make_spec(
        {"arrangement": "single", "batch": 1},
        scenario="SingleStream", target_qps=100.0, min_query_count=200, warmup_ms=0,
    )  # fmt: skip
    other = dataclasses.replace(base, sut=dataclasses.replace(base.sut, graph_optimization="basic"))
    found = measure_pairs(base, other, pairs=PAIRS, seed=20, out=tmp_path / "uplift")
    assert found.complete, found.faults
    guard = tail_guard(found)
    assert guard.point is not None
    assert guard.point > 1.0
    assert found.estimate().point > 0.0  # faster, as far as the primary metric goes
    decision = decide(OPEN_GATE, found, SAME, 0.02, guards=(guard,))
    assert not decision.kept
    assert any(reason.startswith("p99: ") for reason in decision.reasons)
    # The figures are LoadGen's own.
    result = found.pairs[1].other
    log = (tmp_path / "uplift/runs" / result.run_id / "mlperf_log_detail.txt").read_text()
    told = log.split('"result_99.00_percentile_latency_ns", "value": ')[1].split(",")[0]
    assert result.latency is not None
    assert int(told) == result.latency.p99_ns


def test_too_few_queries_for_a_percentile_are_no_proof(recorded: Path) -> None:
    paired = load_paired(recorded / "uplift")
    few = [
        dataclasses.replace(
            pair, other=dataclasses.replace(pair.other, scenario="SingleStream", sample_count=100)
        )
        for pair in paired.pairs
    ]
    guard = tail_guard(dataclasses.replace(paired, pairs=tuple(few)))
    assert not guard.passed
    assert "has 100 queries, wanted at least 101" in guard.reason


def test_the_two_libraries_differ_in_novelty_alone(inputs: dict[str, Any]) -> None:
    held_out = load_library(inputs["samples"])
    fresh, repeated = make_libraries(held_out, 600)
    assert [len(ids) for ids in fresh] == [len(ids) for ids in repeated]
    assert len({ids.tobytes() for ids in fresh}) == 600
    assert len({ids.tobytes() for ids in repeated}) == DISTINCT
    known = {ids.tobytes() for ids in held_out}
    assert not known & {ids.tobytes() for ids in fresh}
    assert {ids.tobytes() for ids in repeated} <= known
    for new, old in zip(fresh, repeated, strict=True):
        assert (new[0], new[-1]) == (old[0], old[-1])
    again = make_libraries(held_out, 600)[0]
    assert all(np.array_equal(one, two) for one, two in zip(fresh, again, strict=True))
    with pytest.raises(LibraryError, match="wanted 8"):
        make_libraries([np.arange(5)] * 20, 10)
    with pytest.raises(LibraryError, match="do not make"):
        make_libraries([np.ones(6, dtype=np.int64)] * 20, 10)


def measured(
    plan: MeasurementPlan, inputs: dict[str, Any], evidence: Path, monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> PairedRuns:  # fmt: skip
    """The product's cache test; the baseline's answers come from the honest system."""
    # Enough that answering all from memory takes longer than the millisecond a run must last.
    monkeypatch.setitem(cache._SAMPLES, "embedding", (2048, 2048))
    found = played(plan, inputs, evidence, monkeypatch, case)
    assert found.complete, found.faults
    return found


def played(
    plan: MeasurementPlan, inputs: dict[str, Any], evidence: Path, monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> PairedRuns:  # fmt: skip
    monkeypatch.setattr(cache, "run", played_by(lambda _: "honest"))
    monkeypatch.setattr(pairs, "run", played_by(lambda _: case))
    return cache.measure_cache(
        plan,
        SutSpec("onnxruntime", arrangement="single"),
        load_paired(evidence / "uplift").other,
        model=inputs["model"],
        samples=inputs["samples"],
        evidence=evidence,
    )


def test_a_system_that_caches_its_outputs_is_caught(
    plan: MeasurementPlan, inputs: dict[str, Any], evidence: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(plan, inputs, evidence, monkeypatch, "caching")
    out = evidence / "cache"
    paired = load_cache(out)
    guard = cache_guard(paired, out, 0.3, CHECK)
    assert not guard.passed
    assert "outputs are cached" in guard.reason
    assert guard.lower_95 is not None
    assert guard.lower_95 > 0.5
    # Its answers are right, on what it never saw too: nothing but the clock gives it away.
    assert guard.answers is not None
    assert guard.answers.passed
    assert guard.answers.samples > 50
    data = json.loads(json.dumps(guard.to_dict()))
    assert CacheGuard.from_dict(data).to_dict() == data
    uplift = load_paired(evidence / "uplift")
    assert decide(OPEN_GATE, uplift, SAME, 0.02, guards=(guard,)).reasons == (guard.reason,)
    from_logs_alone(evidence, monkeypatch)
    refusals_of_edited_evidence(out)


@pytest.mark.parametrize(
    ("case", "finding"),
    [
        ("laborious", "256 repeated inputs answered in less than 40 ms"),
        ("guessing", "256 fresh inputs answered in less than 40 ms"),
    ],
)
def test_answers_too_quick_for_the_clock_are_a_finding(
    plan: MeasurementPlan, inputs: dict[str, Any], evidence: Path, monkeypatch: pytest.MonkeyPatch,
    case: str, finding: str,
) -> None:  # fmt: skip
    """The one millisecond a run must last, stretched far beyond what remembering takes.

    Computing takes twenty times as long again, so a machine of another speed finds the same.
    """
    monkeypatch.setattr(
        cache,
        "probe_spec",
        lambda spec, samples: dataclasses.replace(probe_spec(spec, samples), min_duration_ms=40),
    )
    monkeypatch.setitem(cache._SAMPLES, "embedding", (256, 256))
    paired = played(plan, inputs, evidence, monkeypatch, case)
    assert not paired.complete
    assert "INVALID" in paired.faults[0]
    guard = cache_guard(load_cache(evidence / "cache"), evidence / "cache", 0.3, CHECK)
    assert not guard.passed
    assert finding in guard.reason
    assert ("outputs are cached" in guard.reason) == (case == "laborious")
    assert guard.to_dict()["point"] is None


def test_no_claim_can_be_a_cache_alone() -> None:
    """What a memory of the answers gives with the hits of a timed run, and with those of the test.

    A run of the demonstration draws 1,100 times from 512 sentences; the test draws 512 times from
    1,024 fresh ones and from 8 repeated ones.
    """

    def hits(draws: int, library: int) -> float:
        return 1 - library * (1 - math.exp(-draws / library)) / draws

    timed, fresh, repeated = hits(1100, 512), hits(512, 1024), hits(512, DISTINCT)
    for claim in (0.02, 0.05, 0.1, 0.2, 0.3, 0.6):
        share = (1 - 1 / (1 + claim)) / timed
        shown = (1 - fresh * share) / (1 - repeated * share) - 1
        assert shown > claim * 1.3
        assert cache_limit(claim) <= claim
        assert shown > cache_limit(claim)
    assert cache_limit(None) == cache_limit(-0.1) == CACHE_BOUND
    assert cache_limit(0.6) == 0.3


def from_logs_alone(evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole evidence, as if the recording machine had run the cache test as well."""
    measured = evidence / "uplift/runs" / load_paired(evidence / "uplift").pairs[1].other.run_id
    model = json.loads((measured / "spec.json").read_text())["model_sha256"]
    build = json.loads((measured / "result.json").read_text())["stack_digest"]
    runs = sorted((evidence / "cache/runs").iterdir())
    for run in runs:
        restate(run, model, build)
    found = recompute(evidence)
    assert not found.decision.kept
    assert [reason for reason in found.decision.reasons if "outputs are cached" in reason]
    assert main(["uplift", str(evidence)]) == 1
    for other in ({"model": "0" * 64, "build": build}, {"model": model, "build": "0" * 64}):
        for run in runs:
            restate(run, **other)
        with pytest.raises(EvidenceError, match="another model or build"):
            recompute(evidence)
    monkeypatch.setattr(whole, "cache_pairs", lambda plan: PAIRS + 1)
    with pytest.raises(EvidenceError, match="not those of the plan"):
        recompute(evidence)


def restate(run: Path, model: str, build: str) -> None:
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, "model_sha256": model}))
    result = json.loads((run / "result.json").read_text())
    digest = hashlib.sha256((run / "spec.json").read_bytes()).hexdigest()
    result |= {"stack_digest": build, "spec_sha256": digest}
    result["files"]["spec.json"] = digest
    (run / "result.json").write_text(json.dumps(result))


def refusals_of_edited_evidence(out: Path) -> None:
    """What would hide a cache: repeated inputs that are not, inputs or runs that are missing."""
    samples = {name: (out / name).read_bytes() for name in (FRESH, REPEATED)}
    (out / REPEATED).write_bytes(samples[FRESH])
    with pytest.raises(EvidenceError, match="was not asked repeated"):
        load_cache(out)
    (out / REPEATED).unlink()
    with pytest.raises(EvidenceError, match=r"repeated\.npz"):
        load_cache(out)
    (out / REPEATED).write_bytes(samples[REPEATED])
    with pytest.raises(EvidenceError, match="differ in more than the system"):
        load_paired(out)
    document = json.loads((out / "pairs.json").read_text())
    spec = RunSpec.from_dict(document["base_spec"])
    assert len(load_library(out / FRESH)) == 2 * samples_per_query(spec)
    shutil.rmtree(out / "runs" / document["pairs"][2]["other"])
    with pytest.raises(EvidenceError):
        load_cache(out)


@pytest.mark.slow
@pytest.mark.parametrize("case", some(["guessing", "honest"], 1))
def test_who_computes_is_not_caught_and_who_guesses_is(
    plan: MeasurementPlan,
    inputs: dict[str, Any],
    evidence: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    paired = measured(plan, inputs, evidence, monkeypatch, case)
    guard = cache_guard(paired, evidence / "cache", None, CHECK)
    assert guard.answers is not None
    assert guard.answers.passed == (case == "honest")
    if case == "guessing":
        assert not guard.passed
        assert "does not answer what it has not seen" in guard.reason
    else:
        assert "outputs are cached" not in guard.reason


def test_a_cache_test_may_not_be_left_out_by_a_method_that_has_one(evidence: Path) -> None:
    assert recompute(evidence).cache is None  # the first method had none
    path = evidence / "plan.json"
    text = path.read_text().replace("ignition-method-1", "ignition-method-2")
    path.write_text(text)
    digest = MeasurementPlan.from_json(json.loads(text)).digest
    baseline = evidence / "baseline/baseline.json"
    document = json.loads(baseline.read_text())
    baseline.write_text(json.dumps({**document, "plan_digest": digest}))
    with pytest.raises(EvidenceError, match="demands a cache test"):
        recompute(evidence)
