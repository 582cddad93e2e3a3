"""The three measurements of an uplift, as the signed plan words them, each into its own folder.

In: the plan, the frozen baseline, a candidate, a model and samples. Out: ``aa/``, ``uplift/``
and ``accuracy/`` of an evidence folder. Sizes are probed once and kept, so a resumed measurement
goes on with the settings it began with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from metering.baseline.frozen import Baseline
from metering.baseline.plan_specs import run_spec
from metering.datasets.truth import keep_truth
from metering.loadgen.calibrate import matched
from metering.loadgen.files import write_json
from metering.loadgen.spec import RunSpec, SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verdict import ACCURACY
from metering.loadgen.verify import EvidenceError, load_run, load_spec, stored
from metering.plan import MeasurementPlan
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import AnswerCheck, answer_check
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
) -> Verdict:
    """Outputs of ``candidate`` against those of the baseline, into ``evidence/accuracy``.

    ``samples`` should be ones the search never saw. A run that is not VALID fails the guard.
    """
    out = evidence / "accuracy"
    arms = {"reference": baseline.sut, "candidate": candidate}
    for run_id, sut in arms.items():
        spec = run_spec(plan, sut, run_id=run_id, model=model, samples=samples, mode="accuracy")
        if not stored(out / RUNS / run_id):
            (out / RUNS).mkdir(parents=True, exist_ok=True)
            run(spec, out / RUNS / run_id)
    truth = {}
    if plan.task == "text_recognition":
        truth = {"truth_sha256": keep_truth(samples, out)}
    accuracy = recompute_accuracy(out, answer_check(plan, out))
    document = {
        "schema": ACCURACY_SCHEMA,
        "reference": "reference",
        "candidate": "candidate",
        **truth,
        **accuracy.to_dict(),
    }
    write_json(out / ACCURACY_JSON, document)
    return accuracy


def recompute_accuracy(out: Path, check: AnswerCheck) -> Verdict:
    """The guard worked out from the two accuracy logs in ``out/runs``. Raises EvidenceError."""
    logs, specs = [], []
    for run_id in ("reference", "candidate"):
        folder = out / RUNS / run_id
        result = load_run(folder)
        if result.run_id != run_id or result.mode != "accuracy":
            raise EvidenceError(f"{out.name}/{RUNS}/{run_id}: not the accuracy run it should be")
        if not result.valid:
            return check.none()
        logs.append((folder / ACCURACY).read_bytes())
        specs.append(load_spec(folder))
    _check_same_questions(specs)
    check.asked(specs[0].samples_sha256, f"{out.name}/{RUNS}")
    return check.whole(*logs)


def timed_accuracy(
    paired: PairedRuns, measured: Path, answers: Path, check: AnswerCheck
) -> Verdict:
    """Outputs sampled while the runs of ``measured`` were timed, against those that the same system
    gave in the accuracy runs of ``answers``.

    A system that computes only when it is checked fails here. No sampled output at all fails too.
    Raises EvidenceError when the two were asked about other samples.
    """
    logged = []
    for arm, run_id in (("base", "reference"), ("other", "candidate")):
        folder = answers / RUNS / run_id
        if not load_run(folder).valid:
            return check.none()
        questions = load_spec(folder).samples_sha256
        timed = []
        for pair in paired.pairs:
            run_folder = measured / RUNS / getattr(pair, arm).run_id
            if not (run_folder / ACCURACY).is_file():
                continue
            if load_spec(run_folder).samples_sha256 != questions:
                raise EvidenceError("accuracy: asked about other samples than the timed runs")
            timed.append((run_folder / ACCURACY).read_bytes())
        logged.append(((folder / ACCURACY).read_bytes(), timed))
    return check.sampled(logged)


def _check_same_questions(specs: list[RunSpec]) -> None:
    reference, candidate = specs
    if reference.comparable() != candidate.comparable():
        raise EvidenceError("accuracy: the two runs were not asked the same")
