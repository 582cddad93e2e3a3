"""The sweep: every stock configuration screened, the best checked and run again, interleaved.

In: the signed plan, a model and samples. Out: a folder of runs and a :class:`Sweep`. Screening
gives each configuration one short run of the same samples; only the best few are then checked for
correctness against an unoptimised reference and measured again in rounds, so that a slow minute of
the machine hits all of them alike. A sweep that was cut off goes on with what is stored.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from metering import stacks
from metering.baseline.candidates import candidates
from metering.baseline.plan_specs import run_spec
from metering.datasets.truth import keep_truth
from metering.loadgen.calibrate import check_floor, probe_rate, probe_spec, sized
from metering.loadgen.files import sha256_input, write_json
from metering.loadgen.library import LibraryError
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec, SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verdict import ACCURACY
from metering.loadgen.verify import load_run, load_spec, stored
from metering.plan import MeasurementPlan
from metering.stacks import StackInfo
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import AnswerCheck, answer_check

RUNS, SWEEP = "runs", "sweep.json"
FINALISTS = 3
ROUNDS = 3
_SCREEN_SECONDS = 0.5
# Least and most, by the time a sample of each task takes.
_SCREEN_SAMPLES = {"embedding": (128, 50_000), "text_recognition": (16, 10_000)}
REFERENCE = SutSpec(
    stack="onnxruntime", threads=1, instances=1, arrangement="single", graph_optimization="none"
)


class SweepError(RuntimeError):
    """No baseline can be named; the message says which step failed and why."""


@dataclass(frozen=True)
class SweepStep:
    """Progress: ``done`` of ``total`` runs, the one just judged."""

    stage: str
    done: int
    total: int
    result: RunResult
    sut: SutSpec


@dataclass(frozen=True)
class Cell:
    """One configuration: its screening run, and for finalists accuracy and final runs.

    ``samples_per_second`` is the median of the final runs, or of the screening run for the rest.
    """

    sut: SutSpec
    screening: RunResult
    accuracy: Verdict | None
    accuracy_run: str | None
    finals: tuple[RunResult, ...]

    @property
    def samples_per_second(self) -> Decimal | None:
        rates = [rate(result) for result in self.finals]
        if self.finals:
            return None if None in rates else median([r for r in rates if r is not None])
        return rate(self.screening)

    @property
    def finalist(self) -> bool:
        return bool(self.finals)


@dataclass(frozen=True)
class Sweep:
    """Everything measured. ``best`` is the fastest configuration that is correct.

    ``truth_sha256`` is the digest of ``truth.json`` where the task has one, else empty.
    """

    plan_digest: str
    model_sha256: str
    samples_sha256: str
    reference_run: str
    stacks: tuple[StackInfo, ...]
    cells: tuple[Cell, ...]
    as_found: SutSpec | None
    truth_sha256: str = ""

    @property
    def best(self) -> Cell:
        return fastest(self.cells)


def rate(result: RunResult) -> Decimal | None:
    """Samples per second of a VALID run, whichever the scenario."""
    return result.samples_per_second if result.valid else None


def fastest(cells: Sequence[Cell]) -> Cell:
    """The fastest finalist that passed the accuracy check. Raises SweepError."""
    fit = [
        (cell.samples_per_second, -number, cell)
        for number, cell in enumerate(cells)
        if cell.finalist and cell.accuracy is not None and cell.accuracy.passed
        and cell.samples_per_second is not None
    ]  # fmt: skip
    if not fit:
        raise SweepError("no stock configuration was both correct and VALID; see the sweep table")
    return max(fit)[2]


def sweep(
    plan: MeasurementPlan,
    model: Path,
    samples: Path,
    out: Path,
    on_step: Callable[[SweepStep], None] | None = None,
    *,
    as_found: SutSpec | None = None,
) -> Sweep:
    """Measure every stock configuration of the plan in ``out`` (runs under ``out/runs``).

    ``as_found`` is the customer's own configuration; it is measured beside the others and recorded,
    and does not become the baseline unless it is the fastest. Raises SweepError, RunRefused.
    """
    runs = _Runs(plan, model, samples, out, on_step)
    infos = stacks.discover_stock()
    suts = list(candidates(plan, infos))
    if as_found is not None and as_found not in suts:
        suts.append(as_found)
    if not suts:
        reasons = "; ".join(f"{info.name}: {info.reason}" for info in infos if not info.available)
        raise SweepError(
            f"plan.sweep.stacks: none of {plan.sweep.stacks} can run {plan.task} here; {reasons}"
        )
    truth_sha256 = _keep_truth(plan, samples, out)
    runs.total = 1 + len(suts) + (min(FINALISTS, len(suts)) + (as_found is not None)) * (1 + ROUNDS)
    reference = runs.once("reference", REFERENCE, "accuracy", "reference")
    if not reference.valid:
        raise SweepError(f"reference run: {reference.state}: {'; '.join(reference.reasons)}")
    screening = _screen(runs, suts)
    check = answer_check(plan, out)
    finalists = _finalists(runs, suts, screening, (reference.run_id, check), as_found)
    finals = _finals(runs, suts, finalists, screening)
    cells = tuple(
        Cell(
            sut=sut,
            screening=screening[number],
            accuracy=finalists.get(number),
            accuracy_run=f"accuracy-{number:02d}" if number in finalists else None,
            finals=tuple(finals.get(number, ())),
        )
        for number, sut in enumerate(suts)
    )
    measured = Sweep(
        plan_digest=plan.digest,
        model_sha256=runs.state["model_sha256"],
        samples_sha256=runs.state["samples_sha256"],
        reference_run=reference.run_id,
        stacks=infos,
        cells=cells,
        as_found=as_found,
        truth_sha256=truth_sha256,
    )
    best = measured.best.samples_per_second
    if best is not None and "floor_passed" not in runs.state:
        check_floor(runs.spec(measured.best.sut, "best"), best, out / "probe")
        runs.remember(floor_passed=True)
    return measured


def _keep_truth(plan: MeasurementPlan, samples: Path, out: Path) -> str:
    if plan.task != "text_recognition":
        return ""
    try:
        return keep_truth(samples, out)
    except LibraryError as error:
        raise SweepError(f"no truth to read against: {error}") from error


class _Runs:
    """Runs of one sweep folder: each is run once, or taken from the folder when it is there."""

    def __init__(
        self,
        plan: MeasurementPlan,
        model: Path,
        samples: Path,
        out: Path,
        on_step: Callable[[SweepStep], None] | None,
    ) -> None:
        self.plan, self.model, self.samples, self.out = plan, model, samples, out
        self._on_step = on_step
        self.done, self.total = 0, 0
        (out / RUNS).mkdir(parents=True, exist_ok=True)
        self.state = self._open_state()

    def _open_state(self) -> dict[str, Any]:
        path = self.out / SWEEP
        identity = {
            "plan_digest": self.plan.digest,
            "model_sha256": sha256_input(self.model),
            "samples_sha256": sha256_input(self.samples),
        }
        if not path.is_file():
            return dict(identity)
        state: dict[str, Any] = json.loads(path.read_bytes())
        different = [name for name, value in identity.items() if state.get(name) != value]
        if different:
            raise SweepError(
                f"out: {self.out} holds a sweep with another {', '.join(different)}; "
                "use a new folder"
            )
        return state

    def remember(self, **facts: Any) -> None:
        """Keep a choice a resumed sweep must repeat."""
        self.state.update(facts)
        write_json(self.out / SWEEP, self.state)

    def spec(self, sut: SutSpec, run_id: str) -> RunSpec:
        return run_spec(self.plan, sut, run_id=run_id, model=self.model, samples=self.samples)

    def once(self, run_id: str, sut: SutSpec, mode: Any, stage: str) -> RunResult:
        return self.take(dataclasses.replace(self.spec(sut, run_id), mode=mode), stage)

    def take(self, spec: RunSpec, stage: str) -> RunResult:
        folder = self.out / RUNS / spec.run_id
        if stored(folder):
            result = load_run(folder)
            have = load_spec(folder)
            bare = dataclasses.replace(have, model_sha256="", samples_sha256="", library_size=0)
            if bare != spec.recorded():
                raise SweepError(f"out: {folder} holds another run; use a new folder")
        else:
            result = run(spec, folder)
        self.done += 1
        if self._on_step is not None:
            self._on_step(SweepStep(stage, self.done, max(self.total, self.done), result, spec.sut))
        return result


def _screen(runs: _Runs, suts: Sequence[SutSpec]) -> list[RunResult]:
    """One run each of the same samples, as many as the first configuration does in 0.5 s."""
    if "screen_samples" not in runs.state:
        probe = probe_rate(runs.spec(suts[0], "screen"), runs.out / "probe")
        seconds = min(_SCREEN_SECONDS, runs.plan.run_seconds / 2)
        least, most = _SCREEN_SAMPLES[runs.plan.task]
        runs.remember(screen_samples=min(most, max(least, int(float(probe) * seconds))))
    found = []
    for number, sut in enumerate(suts):
        spec = probe_spec(runs.spec(sut, f"screen-{number:02d}"), runs.state["screen_samples"])
        found.append(runs.take(dataclasses.replace(spec, run_id=f"screen-{number:02d}"), "screen"))
    return found


def _finalists(
    runs: _Runs,
    suts: Sequence[SutSpec],
    screening: Sequence[RunResult],
    judged_by: tuple[str, AnswerCheck],
    as_found: SutSpec | None,
) -> dict[int, Verdict | None]:
    """The fastest configurations with their accuracy; an incorrect one gives way to the next.

    The customer's own configuration is checked and measured with them, however slow it is. None
    stands for an accuracy run that was not VALID.
    """
    ranked = sorted(
        (number for number, result in enumerate(screening) if rate(result) is not None),
        key=lambda number: (-(rate(screening[number]) or Decimal(0)), number),
    )
    reference, check = judged_by
    expected = (runs.out / RUNS / reference / ACCURACY).read_bytes()
    found: dict[int, Verdict | None] = {}
    correct = 0
    for number in ranked:
        sut = suts[number]
        if correct >= FINALISTS and sut != as_found:
            continue
        result = runs.once(f"accuracy-{number:02d}", sut, "accuracy", "accuracy")
        found[number] = None
        if not result.valid:
            continue
        mine = (runs.out / RUNS / result.run_id / ACCURACY).read_bytes()
        guarded = check.whole(expected, mine)
        found[number] = guarded
        correct += guarded.passed
    return found


def _finals(
    runs: _Runs,
    suts: Sequence[SutSpec],
    finalists: dict[int, Verdict | None],
    screening: Sequence[RunResult],
) -> dict[int, list[RunResult]]:
    """Rounds over the correct finalists, each round starting one further along."""
    numbers = [number for number, accuracy in finalists.items() if accuracy and accuracy.passed]
    found: dict[int, list[RunResult]] = {number: [] for number in numbers}
    if not numbers:
        return found
    if "final_rate" not in runs.state:
        best = max(rate(screening[number]) or Decimal(0) for number in numbers)
        runs.remember(final_rate=str(best))
    final_rate = float(runs.state["final_rate"])
    for turn in range(ROUNDS):
        shift = turn % len(numbers)
        for number in numbers[shift:] + numbers[:shift]:
            spec = runs.spec(suts[number], f"final-{number:02d}-r{turn}")
            result = runs.take(sized(spec, final_rate, runs.plan.run_seconds), "final")
            found[number].append(result)
    return found
