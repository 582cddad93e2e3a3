"""Works the figures of an evidence folder out again, from logs alone.

In: a folder as the product keeps it (``plan.json``, ``baseline/``, ``aa/``, ``uplift/``,
``accuracy/`` and, where it was measured, ``cache/``). Out: :class:`Recomputed`. No database, no
network, no model, no clock: a stranger with this package gets the same numbers, or a reason why the
evidence does not hold. Nothing here writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from metering.baseline.candidates import candidates
from metering.baseline.frozen import Baseline, Row, load
from metering.loadgen.calibrate import MARGIN
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec
from metering.loadgen.verdict import ACCURACY, accuracy_outputs
from metering.loadgen.verify import EvidenceError, load_run, load_spec
from metering.plan import MeasurementPlan
from metering.stacks import StackInfo
from metering.uplift.accuracy import Accuracy, accuracy_guard
from metering.uplift.cache import (
    CACHE,
    CacheGuard,
    cache_guard,
    cache_pairs,
    load_cache,
)
from metering.uplift.estimate import UpliftEstimate, fraction_text
from metering.uplift.family import Claim, Traffic, family, mix_uplift
from metering.uplift.gate import AaGate, Decision, aa_gate, decide
from metering.uplift.guards import TailGuard, tail_guard
from metering.uplift.measurement import ACCURACY_JSON, recompute_accuracy, timed_accuracy
from metering.uplift.pairs import RUNS, PairedRuns, load_paired
from metering.uplift.second import SecondMethod, second_method

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
    accuracy: Accuracy
    timed_accuracy: Accuracy
    tail: TailGuard
    cache: CacheGuard | None
    second: SecondMethod | None
    decision: Decision
    pairs: int
    abandoned: tuple[str, ...]
    plan_digest: str
    minimum_effect: float
    log_ratios: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan_digest": self.plan_digest,
            "baseline": {
                "stack": self.baseline.stack,
                "version": self.baseline.version,
                "sut": self.baseline.sut.to_dict(),
                "samples_per_second": str(self.baseline_samples_per_second),
            },
            "aa": self.aa.to_dict(),
            "uplift": None if self.uplift is None else self.uplift.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "timed_accuracy": self.timed_accuracy.to_dict(),
            "p99": self.tail.to_dict(),
            "cache": None if self.cache is None else self.cache.to_dict(),
            **({} if self.second is None else self.second.to_dict()),
            "pairs": self.pairs,
            "abandoned": list(self.abandoned),
            "kept": self.decision.kept,
            "reasons": list(self.decision.reasons),
        }


@dataclass(frozen=True)
class RecomputedFamily:
    """Several claims made together. ``uplift`` is that of the mix; None without traffic."""

    claims: tuple[Claim, ...]
    kept: tuple[str, ...]
    reasons: Mapping[str, tuple[str, ...]]
    uplift: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "claims": [claim.to_dict() for claim in self.claims],
            "kept": list(self.kept),
            "reasons": {name: list(found) for name, found in self.reasons.items()},
            "mix_uplift": None if self.uplift is None else fraction_text(self.uplift, down=True),
        }


def demands_cache_test(plan: MeasurementPlan) -> bool:
    """Whether the method both sides signed has a cache test: all but the first one."""
    return plan.method_version != _FIRST_METHOD


def recompute_family(
    members: Mapping[str, Recomputed], traffic: Sequence[int] | None = None
) -> RecomputedFamily:
    """Judge claims as one family: Holm decides, bounds at 5 % / k, and each one's own guards.

    ``traffic`` is samples served per member, in order. Raises ValueError with too few pairs.
    """
    logs = {name: found.log_ratios for name, found in members.items() if found.log_ratios}
    effects = {name: found.minimum_effect for name, found in members.items()}
    claims = family(logs, effects, planned=len(members)) if logs else ()
    reasons = {name: found.decision.reasons for name, found in members.items()}
    for claim in claims:
        aa, name = members[claim.name].aa, claim.name
        if not claim.billable:
            reasons[name] += (
                f"no claim among {len(members)}: bound {claim.bound:.2%} at 5 % / {len(members)}, "
                f"Holm p {claim.adjusted_p:.4f}, minimum effect {claim.minimum_effect:.2%}",
            )
        elif aa.passed and not aa.hi - aa.lo < claim.bound / 2:
            reasons[name] += (
                f"host not measurable: A/A interval {aa.hi - aa.lo:.2%} wide, wanted less than "
                f"half the claim of {claim.bound:.2%}",
            )
    kept = tuple(claim.name for claim in claims if not reasons[claim.name])
    bounds = {claim.name: claim.bound for claim in claims if claim.name in kept}
    mix = None
    if traffic is not None:
        parts = {
            name: Traffic(samples, found.baseline_samples_per_second)
            for (name, found), samples in zip(members.items(), traffic, strict=True)
        }
        mix = mix_uplift({name: bounds.get(name, 0.0) for name in members}, parts)
    return RecomputedFamily(claims, kept, reasons, mix)


def recompute(evidence: Path) -> Recomputed:
    """Recompute everything measured. Raises EvidenceError naming the first thing that is wrong."""
    plan = read_plan(evidence)
    baseline = recompute_baseline(evidence / "baseline", plan)
    aa_runs = _paired(evidence / "aa", plan, baseline, plan.aa_pairs)
    runs = _paired(evidence / "uplift", plan, baseline, plan.pairs)
    _check_held_out(evidence, {"aa": aa_runs, "uplift": runs})
    uplift = runs.estimate() if runs.complete else None
    minimum_effect = float(plan.minimum_effect)
    claim = None if uplift is None else uplift.lower_95
    gate = aa_gate(aa_runs, claim, minimum_effect)
    accuracy = _accuracy(evidence / "accuracy", plan, runs)
    floor = float(plan.accuracy_floor_cosine)
    timed = timed_accuracy(runs, evidence / "uplift", evidence / "accuracy", floor)
    tail = tail_guard(runs)
    cache = _cache(evidence / CACHE, plan, runs, claim)
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
        decision=decide(gate, runs, accuracy, minimum_effect, timed, guards),
        pairs=runs.planned,
        abandoned=(*aa_runs.abandoned, *runs.abandoned),
        plan_digest=plan.digest,
        minimum_effect=minimum_effect,
        log_ratios=runs.log_ratios() if runs.complete else (),
    )


def recompute_baseline(folder: Path, plan: MeasurementPlan) -> Baseline:
    """The frozen baseline, every figure of it held to its runs. Raises EvidenceError."""
    baseline = load(folder)
    if baseline.plan_digest != plan.digest:
        raise EvidenceError("baseline.json: plan_digest is not that of plan.json")
    reference = _run(folder, baseline.reference_run, baseline, plan)
    if not reference.valid:
        raise EvidenceError(f"baseline: the reference run is {reference.state}")
    expected = _outputs(folder, baseline.reference_run)
    best: Decimal | None = None
    for row in baseline.table:
        _check_row(folder, row, baseline, plan, expected)
        fit = row.final_runs and row.accuracy is not None and row.accuracy.passed
        if fit and row.samples_per_second is not None:
            best = max(best or row.samples_per_second, row.samples_per_second)
    _check_table_is_whole(folder, baseline, plan)
    if baseline.as_found is not None and baseline.as_found not in baseline.table:
        raise EvidenceError("baseline.json: as_found is not a row of its table")
    chosen = [row for row in baseline.table if row.sut == baseline.sut]
    if len(chosen) != 1 or chosen[0].final_runs != baseline.runs:
        raise EvidenceError("baseline.json: the chosen configuration is not in its table")
    if chosen[0].samples_per_second != baseline.samples_per_second:
        raise EvidenceError("baseline.json: samples_per_second is not that of its table")
    if baseline.samples_per_second != best:
        raise EvidenceError("baseline.json: a faster correct configuration was measured")
    if chosen[0].accuracy != baseline.accuracy:
        raise EvidenceError("baseline.json: accuracy is not that of its table")
    finals = [load_run(folder / RUNS / run_id) for run_id in baseline.runs]
    builds = {(result.stack_version, result.stack_digest) for result in finals}
    if builds != {(baseline.version, baseline.digest)} or baseline.stack != baseline.sut.stack:
        raise EvidenceError("baseline.json: stack, version or digest is not that of its runs")
    return baseline


def _check_table_is_whole(folder: Path, baseline: Baseline, plan: MeasurementPlan) -> None:
    """Leaving a fast configuration out would lower the baseline and raise every saving."""
    named = [run_id for row in baseline.table for run_id in _ids(row)] + [baseline.reference_run]
    present = {path.name for path in (folder / RUNS).iterdir()}
    if len(named) != len(set(named)) or set(named) != present:
        raise EvidenceError(f"baseline/{RUNS}: its folders are not the runs baseline.json names")
    infos = [StackInfo(**info) for info in baseline.stacks]
    missing = set(candidates(plan, infos)) - {row.sut for row in baseline.table}
    if missing:
        raise EvidenceError(f"baseline.json: the plan's sweep has {len(missing)} rows more")


def _check_row(
    folder: Path, row: Row, baseline: Baseline, plan: MeasurementPlan, expected: Any
) -> None:
    runs = {run_id: _run(folder, run_id, baseline, plan) for run_id in _ids(row)}
    for run_id in runs:
        if load_spec(folder / RUNS / run_id).sut != row.sut:
            raise EvidenceError(f"baseline/{RUNS}/{run_id}: is not of the row that names it")
    counted = [runs[run_id] for run_id in row.final_runs or (row.screening_run,)]
    rates = [result.samples_per_second for result in counted if result.valid]
    value = None
    if len(rates) == len(counted):
        value = median([rate for rate in rates if rate is not None])
    if value != row.samples_per_second:
        raise EvidenceError(
            f"baseline.json: {row.screening_run}: samples_per_second is "
            f"{row.samples_per_second}, its runs say {value}"
        )
    if row.accuracy_run is not None and row.accuracy is not None:
        floor = float(plan.accuracy_floor_cosine)
        found = accuracy_guard(expected, _outputs(folder, row.accuracy_run), floor)
        if found.to_dict() != row.accuracy.to_dict():
            raise EvidenceError(f"baseline/{RUNS}/{row.accuracy_run}: accuracy is not as recorded")


def _ids(row: Row) -> tuple[str, ...]:
    accuracy = () if row.accuracy_run is None else (row.accuracy_run,)
    return (row.screening_run, *row.final_runs, *accuracy)


def _run(folder: Path, run_id: str, baseline: Baseline, plan: MeasurementPlan) -> RunResult:
    if Path(run_id).name != run_id:
        raise EvidenceError(f"baseline.json: {run_id!r} is not a run id")
    result, spec = load_run(folder / RUNS / run_id), load_spec(folder / RUNS / run_id)
    if result.run_id != run_id:
        raise EvidenceError(f"baseline/{RUNS}/{run_id}: holds another run")
    if (spec.model_sha256, spec.samples_sha256) != (baseline.model_sha256, baseline.samples_sha256):
        raise EvidenceError(f"baseline/{RUNS}/{run_id}: another model or other samples")
    _hold_to_plan(spec, plan, f"baseline/{RUNS}/{run_id}")
    return result


def _outputs(folder: Path, run_id: str) -> Any:
    return accuracy_outputs((folder / RUNS / run_id / ACCURACY).read_bytes())


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
        _hold_to_plan(spec, plan, f"{out.name}/{RUNS}/{pair.base.run_id}")
        if spec.model_sha256 != baseline.model_sha256:
            raise EvidenceError(f"{out.name}: measured another model than the baseline's")
        if pair.base.stack_digest != baseline.digest:
            raise EvidenceError(f"{out.name}: the base arm is another build than the baseline's")
    return paired


def _hold_to_plan(spec: RunSpec, plan: MeasurementPlan, where: str) -> None:
    asked = (
        plan.scenario,
        plan.cores,
        plan.precision,
        (plan.seeds.qsl, plan.seeds.sample_index, plan.seeds.schedule),
    )
    seeds = (spec.seeds.qsl, spec.seeds.sample_index, spec.seeds.schedule)
    if (spec.scenario, spec.cores, spec.sut.precision, seeds) != asked:
        raise EvidenceError(f"{where}: scenario, cores, precision or seeds are not the plan's")


def _check_held_out(evidence: Path, measured: Mapping[str, PairedRuns]) -> None:
    """What was registered as held out is what was measured: the search has seen all the rest."""
    if not (evidence / "mix.json").is_file():
        return
    wanted = _json(evidence / "mix.json").get("held_out_sha256")
    for name, paired in measured.items():
        for pair in paired.pairs[:1]:  # All others of an arm are held to its first run.
            spec = load_spec(evidence / name / RUNS / pair.other.run_id)
            if wanted is not None and spec.samples_sha256 != wanted:
                raise EvidenceError(
                    f"{name}: measured on samples {spec.samples_sha256[:12]}, wanted those that "
                    f"mix.json holds out, {wanted!s:.12}"
                )


def _accuracy(out: Path, plan: MeasurementPlan, runs: PairedRuns) -> Accuracy:
    found = recompute_accuracy(out, float(plan.accuracy_floor_cosine))
    recorded = _json(out / ACCURACY_JSON)
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
                _hold_to_plan(spec, plan, f"{folder.name}/{RUNS}/{result.run_id}")
                builds.add((spec.model_sha256, spec.package_sha256, result.stack_digest))
    if len(builds) > 1:
        raise EvidenceError(f"{CACHE}: tested another model or build than was measured")
    try:
        return cache_guard(paired, out, claim, float(plan.accuracy_floor_cosine))
    except (ValueError, IndexError) as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"{CACHE}: outputs cannot be compared ({error})") from error


def runs_folder(out: Path) -> Path:
    """The uplift runs beside the folder of another measurement."""
    return out.parent / "uplift" / RUNS


def read_plan(evidence: Path) -> MeasurementPlan:
    """The signed plan of an evidence folder. Raises EvidenceError."""
    try:
        return MeasurementPlan.from_json(_json(evidence / "plan.json"))
    except ValueError as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"plan.json: {error}") from error


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path.name}: cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise EvidenceError(f"{path.name}: wanted a JSON object")
    return value
