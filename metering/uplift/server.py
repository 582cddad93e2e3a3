"""Two systems under a Server plan, compared by the rate each holds within the plan's bound.

In: the signed plan, two systems, a model and samples. Out: a folder with ``plan.json``,
``accuracy/``, ``aa/`` (the baseline's climbs against its own) and ``held/``, and
:class:`ServerComparison`, which works out from those alone what is shown. It bills nothing: the
contract's figures are those of Offline and SingleStream, and this comparison has no cache test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering import canonical
from metering.baseline.plan_specs import run_spec, server_spec
from metering.baseline.recount import read_plan
from metering.datasets.truth import keep_truth
from metering.loadgen.calibrate import probe_rate
from metering.loadgen.files import write_atomic
from metering.loadgen.spec import SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verdict import ACCURACY
from metering.loadgen.verify import EvidenceError, load_spec
from metering.plan import MeasurementPlan, ServerBounds
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import AnswerCheck, answer_check
from metering.uplift.held_pairs import HeldPairs, load_held, measure_held
from metering.uplift.held_rate import HeldRate
from metering.uplift.measurement import recompute_accuracy
from metering.uplift.order import ARMS, Arm
from metering.uplift.pairs import RUNS

NOT_BILLED = "Server is compared and bills nothing; Offline and SingleStream do"
_SAMPLED_OUTPUTS = 24
_ANSWERS: dict[Arm, str] = {"base": "reference", "other": "candidate"}


@dataclass(frozen=True)
class ServerComparison:
    """``aa`` and ``held`` are None where a climb broke off; ``reasons`` say why nothing is shown.

    ``shown``: the candidate holds a higher rate than the baseline by more than the plan's minimum.
    """

    target_latency_ns: int
    percentile: str
    aa: HeldRate | None
    held: HeldRate | None
    accuracy: Verdict
    timed_accuracy: Verdict
    reasons: tuple[str, ...]

    @property
    def shown(self) -> bool:
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        return {
            "target_latency_ns": self.target_latency_ns,
            "percentile": self.percentile,
            "aa": None if self.aa is None else self.aa.to_dict(),
            "held_rate": None if self.held is None else self.held.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "timed_accuracy": self.timed_accuracy.to_dict(),
            "shown": self.shown,
            "reasons": list(self.reasons),
            "billed": NOT_BILLED,
        }


def measure_server(
    plan: MeasurementPlan,
    base: SutSpec,
    other: SutSpec,
    *,
    model: Path,
    samples: Path,
    out: Path,
    on_climb: Callable[[int, str, float | None], None] | None = None,
) -> ServerComparison:
    """Accuracy of both, the baseline against itself, then against ``other``, into the new ``out``.

    Raises SpecError for a plan of another scenario, PairsRefused, CalibrationError.
    """
    specs = {
        arm: dataclasses.replace(
            server_spec(plan, sut, run_id=arm, model=model, samples=samples),
            sampled_outputs=_SAMPLED_OUTPUTS,
        )
        for arm, sut in zip(ARMS, (base, other), strict=True)
    }
    (out / "accuracy" / RUNS).mkdir(parents=True)
    write_atomic(out / "plan.json", canonical.dumps(plan.to_json()))
    if plan.task == "text_recognition":
        keep_truth(samples, out / "accuracy")
    # What a system answers does not depend on when it is asked.
    offline = dataclasses.replace(plan, scenario="Offline", bounds=None)
    for arm, run_id in _ANSWERS.items():
        spec = run_spec(
            offline, specs[arm].sut, run_id=run_id, model=model, samples=samples, mode="accuracy"
        )
        run(spec, out / "accuracy" / RUNS / run_id)
    rates = {arm: float(probe_rate(specs[arm], out / "probe")) for arm in ARMS}
    parts: tuple[tuple[str, Arm, int], ...] = (
        ("aa", "base", plan.aa_pairs),
        ("held", "other", plan.pairs),
    )
    for name, arm, pairs in parts:
        measure_held(
            specs["base"],
            specs[arm],
            (rates["base"], rates[arm]),
            run_seconds=plan.run_seconds,
            pairs=pairs,
            seed=plan.seeds.order,
            out=out / name,
            on_climb=on_climb,
        )
    return recompute_server(out)


def recompute_server(out: Path) -> ServerComparison:
    """The comparison from the logs alone. Raises EvidenceError."""
    plan = read_plan(out)
    if not isinstance(plan.bounds, ServerBounds):
        raise EvidenceError(f"plan.json: {plan.scenario}, wanted Server with its bounds")
    parts = {"aa": load_held(out / "aa"), "held": load_held(out / "held")}
    for (name, found), pairs in zip(parts.items(), (plan.aa_pairs, plan.pairs), strict=True):
        terms = (found.planned, found.seed, found.run_seconds, found.target_latency_ns)
        if terms != (pairs, plan.seeds.order, plan.run_seconds, plan.bounds.target_latency_ns):
            raise EvidenceError(f"{name}: pairs, seed, seconds or bound are not those of the plan")
        for run_id in found.held_runs["base"][:1]:
            spec = load_spec(out / name / RUNS / run_id)
            if (spec.task, spec.cores) != (plan.task, plan.cores):
                raise EvidenceError(f"{name}: task or cores are not those of the plan")
    aa, held = parts["aa"], parts["held"]
    if aa.base != aa.other or aa.base != held.base:
        raise EvidenceError("aa: its arms are not the baseline of held")
    answers = {run_id: load_spec(out / "accuracy" / RUNS / run_id) for run_id in _ANSWERS.values()}
    if (answers["reference"].sut, answers["candidate"].sut) != (held.base, held.other):
        raise EvidenceError("accuracy: its systems are not those of held")
    check = answer_check(plan, out / "accuracy")
    try:
        accuracy = recompute_accuracy(out / "accuracy", check)
        timed = _timed(out, held, check)
    except (ValueError, IndexError) as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"accuracy: outputs cannot be compared ({error})") from error
    own = None if aa.fault else aa.estimate()
    found_rate = None if held.fault else held.estimate()
    effect = float(plan.minimum_effect)
    return ServerComparison(
        target_latency_ns=plan.bounds.target_latency_ns,
        percentile=str(plan.bounds.percentile),
        aa=own,
        held=found_rate,
        accuracy=accuracy,
        timed_accuracy=timed,
        reasons=tuple(_reasons(parts, own, found_rate, (accuracy, timed), effect)),
    )


def _reasons(
    parts: dict[str, HeldPairs],
    own: HeldRate | None,
    found: HeldRate | None,
    answers: tuple[Verdict, Verdict],
    effect: float,
) -> list[str]:
    reasons = [f"{name}: {part.fault}" for name, part in parts.items() if part.fault]
    for verdict, what in zip(answers, ("accuracy", "outputs of timed runs"), strict=True):
        if not verdict.passed:
            reasons.append(f"{what}: {verdict.words}, wanted {verdict.wanted}")
    if found is None or own is None:
        return reasons
    if not found.lower_95 > effect:
        reasons.append(
            f"not shown: the lower bound {found.lower_95:.2%} is not above the minimum effect of "
            f"{effect:.2%}"
        )
    claim = max(found.lower_95, effect)
    if not own.lo <= 0 <= own.hi or not own.hi - own.lo < claim / 2:
        reasons.append(
            f"host not measurable: A/A interval [{own.lo:.2%}, {own.hi:.2%}] must hold 0 and be "
            f"narrower than half of {claim:.2%}"
        )
    return reasons


def _timed(out: Path, held: HeldPairs, check: AnswerCheck) -> Verdict:
    logged = []
    for arm, run_id in _ANSWERS.items():
        reference = (out / "accuracy" / RUNS / run_id / ACCURACY).read_bytes()
        questions = load_spec(out / "accuracy" / RUNS / run_id).samples_sha256
        timed = []
        for name in held.held_runs[arm]:
            folder = out / "held" / RUNS / name
            if load_spec(folder).samples_sha256 != questions:
                raise EvidenceError("accuracy: asked about other samples than the timed runs")
            timed.append((folder / ACCURACY).read_bytes())
        logged.append((reference, timed))
    return check.sampled(logged)
