"""The three measurements of an uplift, as the signed plan words them, each into its own folder.

In: the plan, the frozen baseline, a candidate, a model and samples. Out: ``aa/``, ``uplift/``
and ``accuracy/`` of an evidence folder. Sizes are probed once and kept, so a resumed measurement
goes on with the settings it began with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from metering.baseline.frozen import Baseline
from metering.baseline.plan_specs import run_spec
from metering.loadgen.calibrate import matched
from metering.loadgen.files import write_json
from metering.loadgen.spec import RunSpec, SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verdict import ACCURACY, accuracy_outputs, logged_outputs
from metering.loadgen.verify import EvidenceError, load_run, load_spec, stored
from metering.plan import MeasurementPlan
from metering.uplift.accuracy import Accuracy, accuracy_guard
from metering.uplift.pairs import RUNS, Pair, PairedRuns, measure_pairs, sizing

ACCURACY_JSON = "accuracy.json"
ACCURACY_SCHEMA = "ignition.accuracy.v1"
_KERNEL_BATCH = 32
_SAMPLED_OUTPUTS = 24


def kernel_sut(plan: MeasurementPlan, package: Path) -> SutSpec:
    """The package on every core of the plan: one thread an instance, sentences without padding."""
    return SutSpec(
        stack="kernelgen",
        threads=1,
        instances=len(plan.cores),
        arrangement="single" if plan.scenario == "SingleStream" else "ragged",
        batch=1 if plan.scenario == "SingleStream" else _KERNEL_BATCH,
        graph_optimization="default",
        package=str(package),
    )


def measure_aa(
    plan: MeasurementPlan,
    baseline: Baseline,
    *,
    model: Path,
    samples: Path,
    evidence: Path,
    on_pair: Callable[[Pair], None] | None = None,
) -> PairedRuns:
    """The baseline's own stack in both arms, into ``evidence/aa``."""
    return _measure(
        plan,
        (baseline.sut, baseline.sut),
        pairs=plan.aa_pairs,
        model=model,
        samples=samples,
        out=evidence / "aa",
        on_pair=on_pair,
    )


def measure_uplift(
    plan: MeasurementPlan,
    baseline: Baseline,
    candidate: SutSpec,
    *,
    model: Path,
    samples: Path,
    evidence: Path,
    on_pair: Callable[[Pair], None] | None = None,
) -> PairedRuns:
    """The frozen baseline against ``candidate`` (see :func:`kernel_sut`), into ``uplift``."""
    return _measure(
        plan,
        (baseline.sut, candidate),
        pairs=plan.pairs,
        model=model,
        samples=samples,
        out=evidence / "uplift",
        on_pair=on_pair,
    )


def _measure(
    plan: MeasurementPlan,
    suts: tuple[SutSpec, SutSpec],
    *,
    pairs: int,
    model: Path,
    samples: Path,
    out: Path,
    on_pair: Callable[[Pair], None] | None,
) -> PairedRuns:
    base, other = (
        run_spec(plan, sut, run_id=f"{out.name}-{arm}", model=model, samples=samples)
        for arm, sut in zip(("base", "other"), suts, strict=True)
    )
    base, other = (
        dataclasses.replace(spec, sampled_outputs=_SAMPLED_OUTPUTS) for spec in (base, other)
    )
    size = sizing(out)
    if size is None:
        base, other = matched(base, other, out / "probe", run_seconds=plan.run_seconds)
    else:
        base, other = (dataclasses.replace(spec, **size) for spec in (base, other))
    return measure_pairs(base, other, pairs=pairs, seed=plan.seeds.order, out=out, on_pair=on_pair)


def measure_accuracy(
    plan: MeasurementPlan,
    baseline: Baseline,
    candidate: SutSpec,
    *,
    model: Path,
    samples: Path,
    evidence: Path,
) -> Accuracy:
    """Outputs of ``candidate`` against those of the baseline, into ``evidence/accuracy``.

    ``samples`` should be sentences the search never saw. A run that is not VALID fails the guard.
    """
    out = evidence / "accuracy"
    arms = {"reference": baseline.sut, "candidate": candidate}
    for run_id, sut in arms.items():
        spec = run_spec(plan, sut, run_id=run_id, model=model, samples=samples, mode="accuracy")
        if not stored(out / RUNS / run_id):
            (out / RUNS).mkdir(parents=True, exist_ok=True)
            run(spec, out / RUNS / run_id)
    accuracy = recompute_accuracy(out, float(plan.accuracy_floor_cosine))
    document = {
        "schema": ACCURACY_SCHEMA,
        "reference": "reference",
        "candidate": "candidate",
        **accuracy.to_dict(),
    }
    write_json(out / ACCURACY_JSON, document)
    return accuracy


def recompute_accuracy(out: Path, floor: float) -> Accuracy:
    """The guard worked out from the two accuracy logs in ``out/runs``. Raises EvidenceError."""
    outputs, specs = [], []
    for run_id in ("reference", "candidate"):
        folder = out / RUNS / run_id
        result = load_run(folder)
        if result.run_id != run_id or result.mode != "accuracy":
            raise EvidenceError(f"{out.name}/{RUNS}/{run_id}: not the accuracy run it should be")
        if not result.valid:
            return Accuracy(-1.0, -1.0, 0.0, 0, floor, passed=False)
        outputs.append(accuracy_outputs((folder / ACCURACY).read_bytes()))
        specs.append(load_spec(folder))
    _check_same_questions(specs)
    return accuracy_guard(outputs[0], outputs[1], floor)


def timed_accuracy(paired: PairedRuns, measured: Path, answers: Path, floor: float) -> Accuracy:
    """Outputs sampled while the runs of ``measured`` were timed, against those that the same system
    gave in the accuracy runs of ``answers``.

    A system that computes only when it is checked fails here. No sampled output at all fails too.
    Raises EvidenceError when the two were asked about other sentences.
    """
    expected, found = [], []
    for arm, run_id in (("base", "reference"), ("other", "candidate")):
        folder = answers / RUNS / run_id
        if not load_run(folder).valid:
            return Accuracy(-1.0, -1.0, 0.0, 0, floor, passed=False)
        outputs = accuracy_outputs((folder / ACCURACY).read_bytes())
        questions = load_spec(folder).samples_sha256
        for pair in paired.pairs:
            timed = measured / RUNS / getattr(pair, arm).run_id
            if not (timed / ACCURACY).is_file():
                continue
            if load_spec(timed).samples_sha256 != questions:
                raise EvidenceError("accuracy: asked about other sentences than the timed runs")
            positions, rows = logged_outputs((timed / ACCURACY).read_bytes())
            expected.append(outputs[positions])
            found.append(rows)
    if not found:
        return Accuracy(-1.0, -1.0, 0.0, 0, floor, passed=False)
    return accuracy_guard(np.concatenate(expected), np.concatenate(found), floor)


def _check_same_questions(specs: list[RunSpec]) -> None:
    reference, candidate = specs
    if reference.comparable() != candidate.comparable():
        raise EvidenceError("accuracy: the two runs were not asked the same")
