"""A frozen baseline worked out again: every figure in its document held to the runs it names.

In: the signed plan and the folder of a baseline. Out: the :class:`Baseline`, or EvidenceError with
the first thing that is wrong. The whole table counts: a configuration left out, or a slow row
chosen, would lower the baseline and raise every saving made from it.
Never here: a run that was not VALID passed over, a document believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from metering.baseline.candidates import candidates
from metering.baseline.frozen import Baseline, Row, load
from metering.datasets.truth import TRUTH
from metering.loadgen.files import sha256_file
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec
from metering.loadgen.verdict import ACCURACY
from metering.loadgen.verify import EvidenceError, load_run, load_spec
from metering.plan import MeasurementPlan
from metering.stacks import StackInfo
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import AnswerCheck, answer_check
from metering.uplift.pairs import RUNS


def recompute_baseline(folder: Path, plan: MeasurementPlan) -> Baseline:
    """The frozen baseline, every figure of it held to its runs. Raises EvidenceError."""
    baseline = load(folder)
    if baseline.plan_digest != plan.digest:
        raise EvidenceError("baseline.json: plan_digest is not that of plan.json")
    reference = _run(folder, baseline.reference_run, baseline, plan)
    if not reference.valid:
        raise EvidenceError(f"baseline: the reference run is {reference.state}")
    check = _check(folder, baseline, plan)
    expected = _log(folder, baseline.reference_run)
    best: Decimal | None = None
    for row in baseline.table:
        _check_row(folder, row, baseline, plan, (expected, check))
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
    folder: Path,
    row: Row,
    baseline: Baseline,
    plan: MeasurementPlan,
    judged_by: tuple[bytes, AnswerCheck],
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
    if row.final_runs and row.accuracy_run is None:
        raise EvidenceError(f"baseline.json: {row.screening_run}: finals without an accuracy run")
    if row.accuracy_run is not None:
        told = None if row.accuracy is None else row.accuracy.to_dict()
        found = None
        if runs[row.accuracy_run].valid:
            found = _compared(folder, row.accuracy_run, judged_by).to_dict()
        if found != told:
            raise EvidenceError(f"baseline/{RUNS}/{row.accuracy_run}: accuracy is not as recorded")


def _compared(folder: Path, run_id: str, judged_by: tuple[bytes, AnswerCheck]) -> Verdict:
    expected, check = judged_by
    try:
        return check.whole(expected, _log(folder, run_id))
    except ValueError as error:
        raise EvidenceError(f"baseline/{RUNS}/{run_id}: cannot be compared ({error})") from error


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
    hold_to_plan(spec, plan, f"baseline/{RUNS}/{run_id}")
    return result


def _log(folder: Path, run_id: str) -> bytes:
    return (folder / RUNS / run_id / ACCURACY).read_bytes()


def _check(folder: Path, baseline: Baseline, plan: MeasurementPlan) -> AnswerCheck:
    """How rows are judged; the truth of lines is the one that was frozen, of these very samples."""
    if bool(baseline.truth_sha256) != (plan.task == "text_recognition"):
        raise EvidenceError("baseline.json: truth_sha256 is not what the plan's task has")
    check = answer_check(plan, folder)
    check.asked(baseline.samples_sha256, folder.name)
    if baseline.truth_sha256 and sha256_file(folder / TRUTH) != baseline.truth_sha256:
        raise EvidenceError(f"{folder.name}/{TRUTH}: its SHA-256 is not that of baseline.json")
    return check


def hold_to_plan(spec: RunSpec, plan: MeasurementPlan, where: str) -> None:
    """Raises EvidenceError unless a run was asked what the plan says."""
    asked = (
        plan.task,
        plan.scenario,
        plan.cores,
        plan.precision,
        (plan.seeds.qsl, plan.seeds.sample_index, plan.seeds.schedule),
    )
    seeds = (spec.seeds.qsl, spec.seeds.sample_index, spec.seeds.schedule)
    if (spec.task, spec.scenario, spec.cores, spec.sut.precision, seeds) != asked:
        raise EvidenceError(
            f"{where}: task, scenario, cores, precision or seeds are not the plan's"
        )


def read_plan(evidence: Path) -> MeasurementPlan:
    """The signed plan of an evidence folder. Raises EvidenceError."""
    try:
        return MeasurementPlan.from_json(read_object(evidence / "plan.json"))
    except ValueError as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"plan.json: {error}") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """The JSON object of a document. Raises EvidenceError."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path.name}: cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise EvidenceError(f"{path.name}: wanted a JSON object")
    return value
