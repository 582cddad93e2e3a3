"""From logs to a verdict: the same pure judgement when a run ends and when a stranger re-checks it.

In: a spec and the bytes of the logs. Out: state, reasons and figures. LoadGen's own "VALID" is only
one of the conditions: it prints it over thousands of error lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil

import numpy as np
import numpy.typing as npt

from metering.loadgen import answers, detail_log
from metering.loadgen.detail_log import DetailLog, DetailLogError
from metering.loadgen.figures import figures
from metering.loadgen.reasons import invalid_reasons, limit_reached
from metering.loadgen.result import Latency, State, TokenFigures
from metering.loadgen.settings import differences, expected_effective, samples_per_query
from metering.loadgen.spec import RunSpec

DETAIL = "mlperf_log_detail.txt"
SUMMARY = "mlperf_log_summary.txt"
ACCURACY = "mlperf_log_accuracy.json"

_MOST_REASONS = 20
_CLOSING = re.compile(
    r"\n(No errors encountered during test\.|[0-9]+ ERRORS? encountered\. See detailed log\.)\s*\Z"
)


@dataclass(frozen=True)
class Judgement:
    """A verdict and, only when it is VALID, the figures."""

    state: State
    reasons: tuple[str, ...]
    samples_per_second: Decimal | None = None
    latency: Latency | None = None
    sample_count: int | None = None
    effective: dict[str, str] = field(default_factory=dict)
    loadgen_version: str = ""
    tokens: TokenFigures | None = None


def judge(spec: RunSpec, detail: bytes, summary: bytes, accuracy: bytes | None) -> Judgement:
    """The verdict on a run that ended by itself."""
    if not detail.strip():
        return Judgement("SILENT", ("the run ended without a detail log",))
    try:
        log = detail_log.parse(detail)
    except DetailLogError as error:
        return Judgement("ERROR", (str(error),))
    version = str(log.values.get("loadgen_version", ""))
    effective = log.effective()
    if spec.mode == "performance" and "result_validity" not in log.values:
        state: State = "ERROR" if log.errors else "SILENT"
        reasons = (
            *log.errors[:_MOST_REASONS],
            "the detail log has no result: the test never ended",
        )
        return Judgement(state, reasons, effective=effective, loadgen_version=version)
    reasons_found = [*_faults(spec, log), *_summary_faults(spec, summary)]
    if spec.mode == "accuracy" or spec.sampled_outputs:
        reasons_found += _output_faults(spec, accuracy)
    if reasons_found:
        kept = tuple(reasons_found[:_MOST_REASONS])
        return Judgement("ERROR", kept, effective=effective, loadgen_version=version)
    if spec.mode == "accuracy":
        return Judgement(
            "VALID",
            (),
            sample_count=spec.library_size,
            effective=effective,
            loadgen_version=version,
        )
    if log.values["result_validity"] != "VALID":
        invalid = invalid_reasons(spec, log)
        return Judgement("INVALID", invalid, effective=effective, loadgen_version=version)
    try:
        found = figures(spec, log)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        text = f"detail log: a figure is missing or makes no sense ({error!r})"
        return Judgement("ERROR", (text,), effective=effective, loadgen_version=version)
    return Judgement(
        "VALID",
        (),
        found.samples_per_second,
        found.latency,
        found.sample_count,
        effective,
        version,
        found.tokens,
    )


def _faults(spec: RunSpec, log: DetailLog) -> list[str]:
    errors = log.errors
    if log.values.get("result_validity") == "INVALID":
        # A limit of the spec that ended the run early is an answer, and no fault of the run.
        errors = tuple(text for text in errors if not limit_reached(text))
    faults = [f"LoadGen error: {text}" for text in errors[:_MOST_REASONS]]
    if len(errors) > _MOST_REASONS:
        faults.insert(0, f"LoadGen logged {len(errors)} errors")
    # Accuracy mode never logs num_errors; there the error lines themselves are the whole evidence.
    if spec.mode == "performance" and log.values.get("num_errors") != len(log.errors):
        faults.append(
            f"num_errors: got {log.values.get('num_errors')}, wanted {len(log.errors)}, "
            "the number of error lines"
        )
    if log.values.get("qsl_reported_total_count") != spec.library_size:
        faults.append(
            f"qsl_reported_total_count: got {log.values.get('qsl_reported_total_count')}, "
            f"wanted {spec.library_size}"
        )
    if "power_end" not in log.values:
        faults.append("detail log: no power_end line, so the test did not come to its end")
    return faults + differences(expected_effective(spec), log.effective())


def _summary_faults(spec: RunSpec, summary: bytes) -> list[str]:
    """Completeness only: no figure is taken from the summary."""
    text = summary.decode("utf-8", "replace")
    if not text.strip():
        return ["summary log: empty, so LoadGen did not finish"]
    if not _CLOSING.search(text):
        return ["summary log: cut off before its closing line about errors"]
    if spec.mode == "performance" and "Result is :" not in text:
        return ["summary log: has no result section"]
    return []


def _output_faults(spec: RunSpec, accuracy: bytes | None) -> list[str]:
    """Whole outputs: of every sample once in accuracy mode, of some samples in a timed run."""
    try:
        records = answers.read_records(accuracy or b"")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return [f"{ACCURACY}: not a complete list of records ({error})"]
    indices = [record.position for record in records]
    if spec.mode == "performance":
        if not indices or indices[0] < 0 or indices[-1] >= spec.library_size:
            return [f"{ACCURACY}: wanted outputs of samples drawn from the library"]
    elif sorted(set(indices)) != list(range(spec.library_size)) or len(indices) != _asked(spec):
        return [f"{ACCURACY}: wanted each of {spec.library_size} samples exactly once"]
    return [f"{ACCURACY}: {reason}" for reason in answers.wrong_answers(spec, records)]


def _asked(spec: RunSpec) -> int:
    """Answers of an accuracy run: MultiStream fills its last query up with samples asked before."""
    whole = samples_per_query(spec) if spec.scenario == "MultiStream" else 1
    return ceil(spec.library_size / whole) * whole


def _once(accuracy: bytes) -> list[answers.Record]:
    """One record per sample, the first of those that MultiStream asked twice."""
    records = answers.read_records(accuracy)
    return list({record.position: record for record in reversed(records)}.values())[::-1]


def logged_outputs(accuracy: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Library positions (n,), and outputs (n, d) float32, of every record in library order."""
    records = answers.read_records(accuracy)
    positions = np.array([record.position for record in records], dtype=np.int64)
    return positions, answers.embeddings(records)


def accuracy_outputs(accuracy: bytes) -> npt.NDArray[np.float32]:
    """Outputs (library_size, d) float32 in library order, from a VALID accuracy log."""
    return answers.embeddings(_once(accuracy))


def accuracy_texts(accuracy: bytes) -> list[str]:
    """The recognised texts in library order, from a VALID accuracy log."""
    return [record.data.decode() for record in _once(accuracy)]


def logged_texts(accuracy: bytes) -> list[tuple[int, str]]:
    """(library position, text) of every record in library order."""
    return [(record.position, record.data.decode()) for record in answers.read_records(accuracy)]


def accuracy_tokens(accuracy: bytes) -> list[list[int]]:
    """The generated token ids in library order, from a VALID accuracy log."""
    return [answers.decode_tokens(record.data) for record in _once(accuracy)]
