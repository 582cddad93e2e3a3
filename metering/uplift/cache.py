"""The cache test: is the candidate faster because it has seen the question before?

In: the candidate, and two libraries made from the held-out samples (see ``fresh_inputs``):
``fresh``, every one another, and ``repeated``, a few over and over, equal in length one by one.
Out: ``cache/`` of an evidence folder and a guard. Same seeds draw the same positions, so a system
that computes does the same work on both; one that remembers is faster on the repeated ones. Answers
to the fresh ones are compared with the baseline's, or guessing at new questions would pass. A run
too short for LoadGen's clock is a finding too, not a fault: no computation ends so soon.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering.baseline.plan_specs import run_spec
from metering.datasets.truth import truth_of
from metering.loadgen.calibrate import probe_spec
from metering.loadgen.files import sha256_file
from metering.loadgen.library import LibraryError, load_samples
from metering.loadgen.settings import samples_per_query
from metering.loadgen.spec import SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verdict import ACCURACY
from metering.loadgen.verify import EvidenceError, load_run, load_spec, stored
from metering.plan import CosineFloor, MeasurementPlan
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import (
    AnswerCheck,
    CosineCheck,
    ReadingCheck,
    verdict_from_dict,
)
from metering.uplift.estimate import UpliftEstimate, fraction_text, lower_bound
from metering.uplift.fresh_inputs import DISTINCT, FRESH, REPEATED, write_libraries
from metering.uplift.pairs import RUNS, Pair, PairedRuns, load_paired, measure_pairs

CACHE, ANSWERS = "cache", "answers"
CACHE_PAIRS = 10
CACHE_BOUND = 0.10
LEVEL = 0.05
_FREE = ("samples", "samples_sha256")
# Enough that a run lasts some tenths of a second; docs/method.md says why that is long enough.
_SAMPLES = {"embedding": (256, 512), "text_recognition": (24, 96)}
# Short, so that warming up does not show a system many of the fresh inputs before they count.
_WARM_UP_MS = 100
_SAMPLED_OUTPUTS = 24
_TOO_SHORT = "result_min_duration_met is false"


@dataclass(frozen=True)
class CacheGuard:
    """Rate on repeated over rate on fresh inputs, as ratios minus one; None without figures.

    Caught when ``lower_95`` is above ``CACHE_BOUND``. Not shown when ``upper_95`` is above
    :func:`cache_limit`: then the claim could be a cache. ``answers``: accuracy on fresh inputs.
    """

    point: float | None
    lower_95: float | None
    upper_95: float | None
    answers: Verdict | None
    passed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "point": None if self.point is None else fraction_text(self.point),
            "lower_95": None if self.lower_95 is None else fraction_text(self.lower_95, down=True),
            "upper_95": None if self.upper_95 is None else fraction_text(self.upper_95),
            "answers": None if self.answers is None else self.answers.to_dict(),
            "passed": self.passed,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CacheGuard:
        figures = (data[name] for name in ("point", "lower_95", "upper_95"))
        point, lower, upper = (None if value is None else float(value) for value in figures)
        answers = data["answers"]
        return cls(
            point=point,
            lower_95=lower,
            upper_95=upper,
            answers=None if answers is None else verdict_from_dict(answers),
            passed=bool(data["passed"]),
            reason=str(data["reason"]),
        )


def cache_pairs(plan: MeasurementPlan) -> int:
    """Pairs of the cache test: ten, or the plan's own number when that is smaller."""
    return min(CACHE_PAIRS, plan.pairs)


def measure_cache(
    plan: MeasurementPlan,
    baseline: SutSpec,
    candidate: SutSpec,
    *,
    model: Path,
    samples: Path,
    evidence: Path,
    on_pair: Callable[[Pair], None] | None = None,
) -> PairedRuns:
    """The candidate on fresh (arm base) and on repeated inputs, into ``evidence/cache``.

    Runs after the uplift, with as many samples in a run. ``samples`` are the held-out ones.
    """
    out = evidence / CACHE
    out.mkdir(parents=True, exist_ok=True)
    uplift = load_paired(evidence / "uplift").base_spec
    least, most = _SAMPLES[plan.task]
    count = min(max(samples_per_query(uplift), least), most)
    if not ((out / FRESH).is_file() and (out / REPEATED).is_file()):
        write_libraries(uplift.task, samples, out, 2 * count)
    arms = []
    for name in (FRESH, REPEATED):
        spec = run_spec(plan, candidate, run_id="cache", model=model, samples=out / name)
        spec = dataclasses.replace(probe_spec(spec, count), sampled_outputs=_SAMPLED_OUTPUTS)
        arms.append(
            dataclasses.replace(spec, wall_limit_s=uplift.wall_limit_s, warmup_ms=_WARM_UP_MS)
        )
    answers = out / ANSWERS
    if not stored(answers):
        spec = run_spec(
            plan, baseline, run_id=ANSWERS, model=model, samples=out / FRESH, mode="accuracy"
        )
        run(spec, answers)
    return measure_pairs(
        arms[0],
        arms[1],
        pairs=cache_pairs(plan),
        seed=plan.seeds.order,
        out=out,
        on_pair=on_pair,
        free=_FREE,
    )


def load_cache(out: Path) -> PairedRuns:
    """The stored cache test, held to what makes it one. Raises EvidenceError."""
    paired = load_paired(out, free=_FREE)
    if paired.base != paired.other:
        raise EvidenceError(f"{out.name}: its arms are two systems, wanted the candidate in both")
    libraries = []
    for name, arm in ((FRESH, "base"), (REPEATED, "other")):
        try:
            digest = sha256_file(out / name)
            libraries.append(load_samples(out / name, paired.base_spec.task))
        except (OSError, LibraryError) as error:
            raise EvidenceError(f"{out.name}/{name}: {error}") from error
        for pair in paired.pairs:
            run_id = getattr(pair, arm).run_id
            if load_spec(out / RUNS / run_id).samples_sha256 != digest:
                raise EvidenceError(f"{out.name}/{RUNS}/{run_id}: was not asked {name}")
    fresh, repeated = libraries
    if [one.shape for one in fresh] != [one.shape for one in repeated]:
        raise EvidenceError(f"{out.name}: fresh and repeated inputs differ in length")
    if len({one.tobytes() for one in fresh}) != len(fresh):
        raise EvidenceError(f"{out.name}/{FRESH}: an input occurs twice")
    if len({one.tobytes() for one in repeated}) > DISTINCT:
        raise EvidenceError(f"{out.name}/{REPEATED}: wanted {DISTINCT} different inputs at most")
    if len(fresh) < 2 * samples_per_query(paired.base_spec):
        raise EvidenceError(f"{out.name}/{FRESH}: too few inputs for a run to meet new ones")
    return paired


def cache_limit(claim: float | None) -> float:
    """How much faster on repeated inputs a system may still be, for the claim that is made.

    A claim that is nothing but a cache comes out larger here, since here it hits nearly always;
    so the limit is below the claim, always, and for a large one at half of it.
    """
    if claim is None or claim <= 0:
        return CACHE_BOUND
    return max(min(CACHE_BOUND, claim), claim / 2)


def fresh_check(plan: MeasurementPlan, out: Path) -> AnswerCheck:
    """How answers to the fresh inputs are judged; made lines bring their text. EvidenceError."""
    floor = plan.accuracy_floor
    if isinstance(floor, CosineFloor):
        return CosineCheck(float(floor.cosine))
    try:
        return ReadingCheck(floor, truth_of(out / FRESH))
    except LibraryError as error:
        raise EvidenceError(f"{out.name}/{FRESH}: {error}") from error


def cache_guard(
    paired: PairedRuns, out: Path, claim: float | None, check: AnswerCheck
) -> CacheGuard:
    """Judge a cache test that :func:`load_cache` accepted. Raises EvidenceError."""
    if not paired.complete:
        reason = _at_once(paired) or "cache test: " + "; ".join(paired.faults)
        return CacheGuard(None, None, None, None, False, reason)
    answers = _answers(paired, out, check)
    found: UpliftEstimate = paired.estimate()
    negated = [-value for value in paired.log_ratios()]
    upper = 1 / (1 + lower_bound(negated, LEVEL)) - 1
    most = cache_limit(claim)
    reason = ""
    if not answers.samples:
        reason = f"cache test: run {ANSWERS}, the baseline on the fresh inputs, is not VALID"
    elif not answers.passed:
        reason = (
            f"cache test: {answers.words} on fresh inputs, wanted {answers.wanted}: the system "
            "does not answer what it has not seen"
        )
    elif found.lower_95 > CACHE_BOUND:
        reason = (
            f"cache test: at least {found.lower_95:.2%} faster on repeated inputs, wanted at most "
            f"{CACHE_BOUND:.0%}: outputs are cached"
        )
    elif upper > most:
        reason = (
            f"cache test: up to {upper:.2%} faster on repeated inputs, wanted at most {most:.2%}: "
            "not shown that the claim is no cache"
        )
    return CacheGuard(found.point, found.lower_95, upper, answers, not reason, reason)


def _at_once(paired: PairedRuns) -> str:
    """The finding when a run ended before LoadGen's shortest time; empty when none did."""
    spec = paired.base_spec
    for pair in paired.pairs[-1:]:
        for result, inputs, finding in (
            (pair.base, "fresh", "it does not compute what it has not seen"),
            (pair.other, "repeated", "outputs are cached"),
        ):
            if _TOO_SHORT in result.reasons:
                return (
                    f"cache test: {samples_per_query(spec)} {inputs} inputs answered in less than "
                    f"{spec.min_duration_ms} ms (run {result.run_id}): {finding}"
                )
    return ""


def _answers(paired: PairedRuns, out: Path, check: AnswerCheck) -> Verdict:
    """Outputs sampled from timed runs on fresh inputs, against the baseline's answers to them."""
    folder = out / ANSWERS
    result, spec = load_run(folder), load_spec(folder)
    if result.run_id != ANSWERS or result.mode != "accuracy":
        raise EvidenceError(f"{out.name}/{ANSWERS}: not the accuracy run it should be")
    if not result.valid:
        return check.none()
    timed = []
    for pair in paired.pairs:
        run_folder = out / RUNS / pair.base.run_id
        if load_spec(run_folder).samples_sha256 != spec.samples_sha256:
            raise EvidenceError(f"{out.name}/{ANSWERS}: answers other questions")
        timed.append((run_folder / ACCURACY).read_bytes())
    return check.sampled([((folder / ACCURACY).read_bytes(), timed)])
