"""Works the figures of an evidence folder out again, from logs alone.

In: a folder as the product keeps it (``plan.json``, ``baseline/``, ``aa/``, ``uplift/``,
``accuracy/`` and, where it was measured, ``cache/``; where the plan makes no claim, the first two).
Out: :class:`Recomputed` or :class:`Unclaimed`. No database, no network, no model, no clock: a
stranger with this package gets the same numbers, or a reason why the evidence does not hold.
Several folders together are ``mix``'s. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from metering.baseline.frozen import Baseline
from metering.baseline.recount import hold_to_plan, read_object, read_plan, recompute_baseline
from metering.datasets.truth import TRUTH
from metering.loadgen.calibrate import MARGIN
from metering.loadgen.files import sha256_file
from metering.loadgen.verify import EvidenceError, load_run, load_spec
from metering.plan import MeasurementPlan
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import answer_check
from metering.uplift.cache import (
    CACHE,
    CacheGuard,
    cache_guard,
    cache_pairs,
    fresh_check,
    load_cache,
)
from metering.uplift.energy import Energy, energy_of
from metering.uplift.estimate import UpliftEstimate
from metering.uplift.gate import AaGate, Decision, aa_gate, decide
from metering.uplift.guards import TailGuard, tail_guard
from metering.uplift.measurement import ACCURACY_JSON, recompute_accuracy, timed_accuracy
from metering.uplift.pairs import RUNS, PairedRuns, load_paired
from metering.uplift.second import SecondMethod, second_method

NO_CANDIDATE = "no candidate: goes on at its baseline"
_FIRST_METHOD = "ignition-method-1"


@dataclass(frozen=True)
class Recomputed:
    """What the logs say. ``uplift`` is None when a run was not VALID; ``decision`` says why.

    ``cache`` and ``second`` are None under the first method, which had neither the cache test nor
    the guards of the second.
    """

    baseline_samples_per_second: Decimal
    baseline: Baseline
    aa: AaGate
    uplift: UpliftEstimate | None
    accuracy: Verdict
    timed_accuracy: Verdict
    tail: TailGuard
    cache: CacheGuard | None
    second: SecondMethod | None
    energy: Energy
    decision: Decision
    pairs: int
    abandoned: tuple[str, ...]
    plan_digest: str
    minimum_effect: float
    log_ratios: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan_digest": self.plan_digest,
            "baseline": _baseline_json(self.baseline),
            "aa": self.aa.to_dict(),
            "uplift": None if self.uplift is None else self.uplift.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "timed_accuracy": self.timed_accuracy.to_dict(),
            "p99": self.tail.to_dict(),
            "cache": None if self.cache is None else self.cache.to_dict(),
            **({} if self.second is None else self.second.to_dict()),
            # The first method said nothing of energy, and its record stays as it was.
            **({} if self.second is None else {"energy": self.energy.to_dict()}),
            "pairs": self.pairs,
            "abandoned": list(self.abandoned),
            "kept": self.decision.kept,
            "reasons": list(self.decision.reasons),
        }


@dataclass(frozen=True)
class Unclaimed:
    """A model of which a baseline was measured and no candidate planned: it goes on at it."""

    baseline: Baseline
    plan_digest: str
    task: str

    @property
    def baseline_samples_per_second(self) -> Decimal:
        return self.baseline.samples_per_second

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan_digest": self.plan_digest,
            "task": self.task,
            "baseline": _baseline_json(self.baseline),
            "claim": None,
            "kept": False,
            "reasons": [NO_CANDIDATE],
        }


def _baseline_json(baseline: Baseline) -> dict[str, Any]:
    return {
        "stack": baseline.stack,
        "version": baseline.version,
        "sut": baseline.sut.to_dict(),
        "samples_per_second": str(baseline.samples_per_second),
    }


def demands_cache_test(plan: MeasurementPlan) -> bool:
    """Whether the method both sides signed has a cache test: all but the first one."""
    return plan.method_version != _FIRST_METHOD


def recompute_member(evidence: Path) -> Recomputed | Unclaimed:
    """A model's evidence, whether its plan makes a claim or not. Raises EvidenceError."""
    plan = read_plan(evidence)
    if plan.claim:
        return recompute(evidence)
    for name in ("aa", "uplift", "accuracy", CACHE):
        if (evidence / name).exists():
            raise EvidenceError(f"{name}: was measured, but plan.json plans no claim")
    return Unclaimed(recompute_baseline(evidence / "baseline", plan), plan.digest, plan.task)


def recompute(evidence: Path) -> Recomputed:
    """Recompute everything measured. Raises EvidenceError naming the first thing that is wrong."""
    plan = read_plan(evidence)
    if not plan.claim:
        raise EvidenceError("plan.json: plans no claim, so there is no uplift to work out")
    baseline = recompute_baseline(evidence / "baseline", plan)
    aa_runs = _paired(evidence / "aa", plan, baseline, plan.aa_pairs)
    runs = _paired(evidence / "uplift", plan, baseline, plan.pairs)
    _check_held_out(evidence, {"aa": aa_runs, "uplift": runs})
    uplift = runs.estimate() if runs.complete else None
    minimum_effect = float(plan.minimum_effect)
    claim = None if uplift is None else uplift.lower_95
    gate = aa_gate(aa_runs, claim, minimum_effect)
    accuracy = _accuracy(evidence / "accuracy", plan, runs)
    with _comparing("uplift"):
        timed = timed_accuracy(
            runs,
            evidence / "uplift",
            evidence / "accuracy",
            answer_check(plan, evidence / "accuracy"),
        )
    tail = tail_guard(runs)
    cache = _cache(evidence / CACHE, plan, runs, claim)
    with _comparing("uplift"):
        second = second_method(aa_runs, runs, evidence) if demands_cache_test(plan) else None
    guards = (tail, *((cache,) if cache else ()), *(second.guards if second else ()))
    return Recomputed(
        baseline_samples_per_second=baseline.samples_per_second,
        baseline=baseline,
        aa=gate,
        uplift=uplift,
        accuracy=accuracy,
        timed_accuracy=timed,
        tail=tail,
        cache=cache,
        second=second,
        energy=energy_of(runs, evidence),
        decision=decide(gate, runs, accuracy, minimum_effect, timed, guards),
        pairs=runs.planned,
        abandoned=(*aa_runs.abandoned, *runs.abandoned),
        plan_digest=plan.digest,
        minimum_effect=minimum_effect,
        log_ratios=runs.log_ratios() if runs.complete else (),
    )


def _paired(out: Path, plan: MeasurementPlan, baseline: Baseline, pairs: int) -> PairedRuns:
    paired = load_paired(out)
    if paired.planned != pairs or paired.seed != plan.seeds.order:
        raise EvidenceError(f"{out.name}/pairs.json: pairs or seed are not those of the plan")
    if paired.base != baseline.sut:
        raise EvidenceError(f"{out.name}/pairs.json: the base arm is not the frozen baseline")
    if paired.base_spec.min_duration_ms < plan.run_seconds * 1000 // MARGIN:
        raise EvidenceError(f"{out.name}: runs of {plan.run_seconds} s were planned, not shorter")
    for pair in paired.pairs:
        spec = load_spec(out / RUNS / pair.base.run_id)
        hold_to_plan(spec, plan, f"{out.name}/{RUNS}/{pair.base.run_id}")
        if spec.model_sha256 != baseline.model_sha256:
            raise EvidenceError(f"{out.name}: measured another model than the baseline's")
        if pair.base.stack_digest != baseline.digest:
            raise EvidenceError(f"{out.name}: the base arm is another build than the baseline's")
    return paired


def _check_held_out(evidence: Path, measured: Mapping[str, PairedRuns]) -> None:
    """What was registered as held out is what was measured: the search has seen all the rest."""
    if not (evidence / "mix.json").is_file():
        return
    wanted = read_object(evidence / "mix.json").get("held_out_sha256")
    for name, paired in measured.items():
        for pair in paired.pairs[:1]:  # All others of an arm are held to its first run.
            spec = load_spec(evidence / name / RUNS / pair.other.run_id)
            if wanted is not None and spec.samples_sha256 != wanted:
                raise EvidenceError(
                    f"{name}: measured on samples {spec.samples_sha256[:12]}, wanted those that "
                    f"mix.json holds out, {wanted!s:.12}"
                )


def _accuracy(out: Path, plan: MeasurementPlan, runs: PairedRuns) -> Verdict:
    recorded = read_object(out / ACCURACY_JSON)
    if plan.task == "text_recognition" and sha256_file(out / TRUTH) != recorded.get("truth_sha256"):
        raise EvidenceError(f"{out.name}/{TRUTH}: its SHA-256 is not that of {ACCURACY_JSON}")
    with _comparing(out.name):
        found = recompute_accuracy(out, answer_check(plan, out))
    if any(recorded.get(name) != value for name, value in found.to_dict().items()):
        raise EvidenceError(f"{out.name}/{ACCURACY_JSON}: is not what the accuracy logs say")
    reference = load_spec(out / RUNS / "reference")
    candidate = load_spec(out / RUNS / "candidate")
    if (reference.sut, candidate.sut) != (runs.base, runs.other):
        raise EvidenceError("accuracy: its systems are not those of the uplift")
    if runs.pairs:
        measured = load_spec(runs_folder(out) / runs.pairs[0].other.run_id)
        if candidate.package_sha256 != measured.package_sha256:
            raise EvidenceError("accuracy: its package is not the one that was measured")
        for run_id, timed in (
            ("reference", runs.pairs[0].base),
            ("candidate", runs.pairs[0].other),
        ):
            if load_run(out / RUNS / run_id).stack_digest != timed.stack_digest:
                raise EvidenceError(f"accuracy: {run_id} is another build than was measured")
    return found


def _cache(
    out: Path, plan: MeasurementPlan, runs: PairedRuns, claim: float | None
) -> CacheGuard | None:
    """The cache test of the very candidate that was measured; absent only where that is allowed."""
    if not out.exists():
        if demands_cache_test(plan):
            raise EvidenceError(f"{CACHE}: missing, and {plan.method_version} demands a cache test")
        return None
    paired = load_cache(out)
    if (paired.planned, paired.seed) != (cache_pairs(plan), plan.seeds.order):
        raise EvidenceError(f"{CACHE}/pairs.json: pairs or seed are not those of the plan")
    if paired.other != runs.other:
        raise EvidenceError(f"{CACHE}: tested another system than the candidate")
    builds = set()
    for folder, found in ((out, paired), (runs_folder(out).parent, runs)):
        for pair in found.pairs:
            for result in (pair.base, pair.other) if found is paired else (pair.other,):
                spec = load_spec(folder / RUNS / result.run_id)
                hold_to_plan(spec, plan, f"{folder.name}/{RUNS}/{result.run_id}")
                builds.add((spec.model_sha256, spec.package_sha256, result.stack_digest))
    if len(builds) > 1:
        raise EvidenceError(f"{CACHE}: tested another model or build than was measured")
    with _comparing(CACHE):
        return cache_guard(paired, out, claim, fresh_check(plan, out))


@contextmanager
def _comparing(where: str) -> Iterator[None]:
    """Outputs of another form, or to samples that are not there: evidence that does not hold."""
    try:
        yield
    except (ValueError, IndexError) as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"{where}: outputs cannot be compared ({error})") from error


def runs_folder(out: Path) -> Path:
    """The uplift runs beside the folder of another measurement."""
    return out.parent / "uplift" / RUNS
