"""From logs to a verdict: the same pure judgement when a run ends and when a stranger re-checks it.

In: a spec and the bytes of the logs. Out: state, reasons and figures. LoadGen's own "VALID" is only
one of the conditions: it prints it over thousands of error lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from metering.loadgen import answers, detail_log
from metering.loadgen.detail_log import DetailLog, DetailLogError
from metering.loadgen.result import Latency, State
from metering.loadgen.settings import differences, expected_effective
from metering.loadgen.spec import RunSpec

DETAIL = "mlperf_log_detail.txt"
SUMMARY = "mlperf_log_summary.txt"
ACCURACY = "mlperf_log_accuracy.json"

_MOST_REASONS = 20
# LoadGen prints six digits of a rate; the product of rate and time may be off by half a unit there.
_RATE_TOLERANCE = Decimal("0.00001")


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
        invalid = _invalid_reasons(log)
        return Judgement("INVALID", invalid, effective=effective, loadgen_version=version)
    try:
        rate, latency, count = _figures(spec, log)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        text = f"detail log: a figure is missing or makes no sense ({error!r})"
        return Judgement("ERROR", (text,), effective=effective, loadgen_version=version)
    return Judgement("VALID", (), rate, latency, count, effective, version)


def _faults(spec: RunSpec, log: DetailLog) -> list[str]:
    faults = [f"LoadGen error: {text}" for text in log.errors[:_MOST_REASONS]]
    if len(log.errors) > _MOST_REASONS:
        faults.insert(0, f"LoadGen logged {len(log.errors)} errors")
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
    if not text.rstrip().endswith("encountered during test.") and "ERROR" not in text[-200:]:
        return ["summary log: cut off before its closing line about errors"]
    if spec.mode == "performance" and "Result is :" not in text:
        return ["summary log: has no result section"]
    return []


def _invalid_reasons(log: DetailLog) -> tuple[str, ...]:
    """Our own list: LoadGen's reason text is sometimes empty although a condition failed."""
    conditions = (
        "result_min_duration_met",
        "result_min_queries_met",
        "result_perf_constraints_met",
        "early_stopping_met",
    )
    reasons = [f"{key} is false" for key in conditions if log.values.get(key) is False]
    said = str(log.values.get("result_invalid_reason", "")).strip()
    return tuple([*reasons, said] if said else reasons) or ("LoadGen gave no reason",)


def _figures(spec: RunSpec, log: DetailLog) -> tuple[Decimal, Latency, int]:
    values = log.values
    latency = Latency(
        mean_ns=int(values["result_mean_latency_ns"]),
        p50_ns=int(values["result_50.00_percentile_latency_ns"]),
        p90_ns=int(values["result_90.00_percentile_latency_ns"]),
        p99_ns=int(values["result_99.00_percentile_latency_ns"]),
        max_ns=int(values["result_max_latency_ns"]),
        early_stopping_p90_ns=(
            int(values["early_stopping_latency_ss"]) if spec.scenario == "SingleStream" else None
        ),
    )
    if not 0 < latency.p50_ns <= latency.p90_ns <= latency.p99_ns <= latency.max_ns:
        raise ValueError("latency percentiles are not in order")
    if spec.scenario == "SingleStream":
        count = int(values["result_query_count"])
        return Decimal(values["result_qps_with_loadgen_overhead"]), latency, count
    count = int(values["generated_samples_per_query"]) * int(values["result_query_count"])
    rate = Decimal(values["result_samples_per_second"])
    # The rate LoadGen prints must follow from its own count and last completion.
    implied = Decimal(count) * 10**9 / latency.max_ns
    if abs(rate - implied) > _RATE_TOLERANCE * implied:
        raise ValueError(f"result_samples_per_second {rate} does not follow from {implied:.6g}")
    if latency.max_ns < spec.min_duration_ms * 10**6:
        raise ValueError("the query ended before the minimum duration, yet is called VALID")
    return rate, latency, count


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
    elif indices != list(range(spec.library_size)):
        return [f"{ACCURACY}: wanted each of {spec.library_size} samples exactly once"]
    return [f"{ACCURACY}: {reason}" for reason in answers.wrong_answers(spec, records)]


def logged_outputs(accuracy: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Library positions (n,), and outputs (n, d) float32, of every record in library order."""
    records = answers.read_records(accuracy)
    positions = np.array([record.position for record in records], dtype=np.int64)
    return positions, answers.embeddings(records)


def accuracy_outputs(accuracy: bytes) -> npt.NDArray[np.float32]:
    """Outputs (library_size, d) float32 in library order, from a VALID accuracy log."""
    return logged_outputs(accuracy)[1]


def accuracy_texts(accuracy: bytes) -> list[str]:
    """The recognised texts in library order, from a VALID accuracy log."""
    return [record.data.decode() for record in answers.read_records(accuracy)]


def accuracy_tokens(accuracy: bytes) -> list[list[int]]:
    """The generated token ids in library order, from a VALID accuracy log."""
    return [answers.decode_tokens(record.data) for record in answers.read_records(accuracy)]
