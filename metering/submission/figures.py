"""Whether the figures of one detail log can all be true at once, and agree with its summary.

In: a parsed detail log and the summary's text. Out: sentences about what cannot be. An edited
result has to keep every one of these relations; LoadGen's own output keeps them by construction.
No figure is taken from the summary. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

from metering.loadgen.detail_log import DetailLog

# LoadGen prints six digits of a rate in the detail log and fewer in the summary.
_RATE_TOLERANCE = Decimal("0.00001")
_SUMMARY_TOLERANCE = Decimal("0.001")
_CLOCK_MS = 2
_POINTS = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
_ESTIMATE = re.compile(r"Early stopping 90\.0th percentile estimate: ([0-9]+)")
TTFT_P99 = "result_first_token_99.00_percentile_latency_ns"
TPOT_P99 = "result_time_per_output_token_99.00_percentile_ns"
_STAMP = "%m-%d-%Y %H:%M:%S.%f"

_STATISTICS = {
    "Scenario": "effective_scenario",
    "Mode": "effective_test_mode",
    "Result is": "result_validity",
    "Samples per second": "result_samples_per_second",
    "Completed samples per second": "result_completed_samples_per_sec",
    "90.0th percentile latency (ns)": "result_90.00_percentile_latency_ns",
    "QPS w/ loadgen overhead": "result_qps_with_loadgen_overhead",
    "QPS w/o loadgen overhead": "result_qps_without_loadgen_overhead",
    "* Early stopping 90.0th percentile estimate": "early_stopping_latency_ss",
    "Min latency (ns)": "result_min_latency_ns",
    "Max latency (ns)": "result_max_latency_ns",
    "Mean latency (ns)": "result_mean_latency_ns",
    **{f"{point} percentile latency (ns)": f"result_{point}_percentile_latency_ns"
       for point in _POINTS},
}  # fmt: skip
# Told in token mode only. Its two estimates of early stopping carry the same label and are not
# compared: no result is taken from them.
_TOKENS = {
    "Tokens per second": "result_tokens_per_second",
    "Completed tokens per second": "result_completed_tokens_per_second",
    "TPS w/ loadgen overhead": "result_token_throughput_with_loadgen_overhead",
    "90.0th first token percentile latency (ns)": "result_first_token_90.00_percentile_latency_ns",
    **{f"{name} First Token latency (ns)": f"result_first_token_{name.lower()}_latency_ns"
       for name in ("Min", "Max", "Mean")},
    **{f"{name} Time per Output Token (ns)": f"result_time_to_output_token_{name.lower()}"
       for name in ("Min", "Max", "Mean")},
    **{f"{point} percentile first token latency (ns)":
       f"result_first_token_{point}_percentile_latency_ns" for point in _POINTS},
    **{f"{point} percentile time to output token (ns)":
       f"result_time_per_output_token_{point}_percentile_ns" for point in _POINTS},
}  # fmt: skip
_ESTIMATED = "* Early stopping 90.0th percentile estimate"
_TWICE = "Completed tokens per second"
_SETTINGS = {
    **{
        name: f"effective_{name}"
        for name in (
            "samples_per_query",
            "target_qps",
            "max_async_queries",
            "min_query_count",
            "max_query_count",
            "qsl_rng_seed",
            "sample_index_rng_seed",
            "schedule_rng_seed",
            "accuracy_log_probability",
            "performance_sample_count",
            "accuracy_sample_count",
        )
    },
    "min_duration (ms)": "effective_min_duration_ms",
    "max_duration (ms)": "effective_max_duration_ms",
}


def token_mode(log: DetailLog) -> bool:
    """Whether LoadGen was told to measure tokens in this run."""
    return log.values.get("requested_use_token_latencies") is True


def impossible(log: DetailLog) -> list[str]:
    """Relations a performance run's figures break; empty when all hold."""
    try:
        return list(_broken(log.values))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return [f"a figure is missing or is no number ({error!r})"]


def _broken(values: Mapping[str, Any]) -> Iterable[str]:
    least, most, mean = (
        _integer(values, f"result_{name}_latency_ns") for name in ("min", "max", "mean")
    )
    points = [_integer(values, f"result_{point}_percentile_latency_ns") for point in _POINTS]
    if not all(left <= right for left, right in pairwise([1, least, *points, most])):
        yield "latency percentiles are not in order"
    if not least <= mean <= most:
        yield f"mean latency {mean} ns is not between the least and the longest"
    span_ms = _span_ms(values)
    if most > (span_ms + _CLOCK_MS) * 10**6:
        yield f"a latency of {most} ns in a test that took {span_ms} ms by its own clock"
    if span_ms + _CLOCK_MS < _integer(values, "effective_min_duration_ms"):
        yield (
            f"the test took {span_ms} ms by its own clock, its settings want at least "
            f"{values['effective_min_duration_ms']} ms"
        )
    scenario = values["effective_scenario"]
    if scenario == "Offline":
        count = _integer(values, "result_query_count")
        count *= _integer(values, "generated_samples_per_query")
        rate, implied = Decimal(values["result_samples_per_second"]), Decimal(count * 10**9) / most
        if abs(rate - implied) > _RATE_TOLERANCE * implied:
            yield (
                f"result_samples_per_second {rate} does not follow from {count} samples in "
                f"{most} ns, which is {implied:.6g}"
            )
    elif scenario == "SingleStream":
        yield from _single_stream(values, mean, most, span_ms)


def _single_stream(values: Mapping[str, Any], mean: int, most: int, span_ms: int) -> Iterable[str]:
    # In token mode LoadGen overwrites the estimate with that of the time to first token.
    if values.get("requested_use_token_latencies") is not True:
        yield from _early_stopped(values, most)
    without = Decimal(values["result_qps_without_loadgen_overhead"])
    if abs(without * mean / 10**9 - 1) > 2 * _RATE_TOLERANCE:
        yield f"result_qps_without_loadgen_overhead {without} does not follow from the mean latency"
    rate = Decimal(values["result_qps_with_loadgen_overhead"])
    count = _integer(values, "result_query_count")
    # LoadGen divides all queries but the last by the time at which it issued the last one.
    issued = Decimal(count - 1) * 10**9 / rate * (1 + _RATE_TOLERANCE)
    span = (span_ms + _CLOCK_MS) * 10**6 * (1 + _RATE_TOLERANCE)
    if issued * (1 - 2 * _RATE_TOLERANCE) > span:
        yield f"{count} queries at {rate} a second take longer than the test's {span_ms} ms"
    # One query at a time: none was issued before the one before it had ended.
    if count * mean - most > issued or count * mean > span:
        yield f"{count} queries of {mean} ns each take longer than the test did"


def _early_stopped(values: Mapping[str, Any], most: int) -> Iterable[str]:
    result, ninety = (
        _integer(values, name)
        for name in ("early_stopping_latency_ss", "result_90.00_percentile_latency_ns")
    )
    if not ninety <= result <= most:
        yield f"early_stopping_latency_ss {result} is not between the 90th percentile and the most"
    said = _ESTIMATE.search(str(values["early_stopping_result"]))
    if said is None or int(said[1]) != result:
        yield "early_stopping_latency_ss is not the estimate that early_stopping_result tells"


def _integer(values: Mapping[str, Any], name: str) -> int:
    """A count as LoadGen writes one; 1e999999 would take for ever to become one."""
    value = values[name]
    if not isinstance(value, int) or isinstance(value, bool) or value.bit_length() > 64:
        raise ValueError(f"{name}: got {str(value)[:40]}, wanted a whole number of 64 bits")
    return value


def _span_ms(values: Mapping[str, Any]) -> int:
    """Milliseconds from ``power_begin`` to ``power_end``; both are one machine's clock, no zone."""
    begin, end = (
        datetime.strptime(str(values[name]), _STAMP)  # noqa: DTZ007 (LoadGen writes no zone)
        for name in ("power_begin", "power_end")
    )
    return round((end - begin).total_seconds() * 1000)


def disagreements(log: DetailLog, summary: bytes) -> list[str]:
    """Lines of the summary that say something else than the detail log."""
    text = summary.decode("utf-8", "replace")
    told: dict[str, str] = {}
    found = []
    known = _STATISTICS | _SETTINGS
    if token_mode(log):
        known |= _TOKENS
        del known[_ESTIMATED]
    for line in text.splitlines():
        label, colon, value = line.partition(":")
        label = label.strip()
        if not colon or label not in known:
            continue
        # LoadGen itself repeats this one, with the same figure.
        if label in told and (label != _TWICE or told[label] != value.strip()):
            found.append(f"says {label!r} twice")
        told[label] = value.strip()
    for label, value in told.items():
        key = known[label]
        wanted = log.values.get(key)
        if wanted is None or not _same(value, wanted):
            found.append(f"{label}: got {value}, the detail log has {key} {wanted}")
    missing = sorted(set(_SETTINGS) - set(told)) + [
        label
        for label in ("Scenario", "Mode", "Result is", "Mean latency (ns)")
        if label not in told
    ]
    found += [f"{label}: missing" for label in missing]
    if not text.rstrip().endswith("No errors encountered during test."):
        found.append("does not end with LoadGen's word that there were no errors")
    return found


def _same(told: str, wanted: object) -> bool:
    if told == str(wanted):
        return True
    try:
        left, right = Decimal(told), Decimal(str(wanted))
    except InvalidOperation:
        return False
    exact = "." not in told + str(wanted) and "e" not in told + str(wanted)
    return left == right if exact else abs(left - right) <= _SUMMARY_TOLERANCE * abs(right)
