"""Why a run is INVALID, in our own words: LoadGen's reason is sometimes empty.

In: a spec and the log of a run that ended by itself. Out: one sentence per condition that was not
met, with the figure and the bound. In token mode LoadGen looks at the time to first token only if
the time per output token passed, and then says neither. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from metering.loadgen.detail_log import DetailLog
from metering.loadgen.early_stopping import OTHERS, SINGLE_STREAM, least_queries, most_over
from metering.loadgen.spec import RunSpec

_CONDITIONS = (
    "result_min_duration_met",
    "result_min_queries_met",
    "result_perf_constraints_met",
    "early_stopping_met",
)
_LIMITS = {
    "Ending early: Too many outstanding queries.": (
        "more than max_async_queries were unanswered: the system does not keep up with target_qps"
    ),
    "Ending early: Max test duration reached.": "max_duration_ms passed before enough was asked",
}
_PASSED = "Run successful"


def limit_reached(error: str) -> str:
    """What an error line means that only says that a limit of the spec ended the run; or empty."""
    return next((reason for said, reason in _LIMITS.items() if said in error), "")


def invalid_reasons(spec: RunSpec, log: DetailLog) -> tuple[str, ...]:
    """Every condition that failed, then what LoadGen said of it; never empty."""
    values = log.values
    reasons = [f"{key} is false" for key in _CONDITIONS if values.get(key) is False]
    reasons += dict.fromkeys(filter(None, map(limit_reached, log.errors)))
    reasons += _early_stopping(spec, values)
    if spec.scenario == "Server":
        reasons += _bounds(spec, values)
    said = str(values.get("result_invalid_reason", "")).strip()
    return tuple([*reasons, said] if said else reasons) or ("LoadGen gave no reason",)


def _early_stopping(spec: RunSpec, values: Any) -> Iterator[str]:
    queries = values.get("result_query_count")
    if spec.scenario == "Offline" or not isinstance(queries, int):
        return
    percentile = SINGLE_STREAM if spec.scenario == "SingleStream" else OTHERS
    # A stream's estimate needs one query to leave out, a bound needs none.
    least = least_queries(0 if spec.scenario == "Server" else 1, percentile)
    if queries < least:
        yield f"{queries} queries, early stopping at {percentile:g} wants at least {least}"


def _bounds(spec: RunSpec, values: Any) -> Iterator[str]:
    if spec.task == "generation":
        yield from _token_bounds(spec, values)
        return
    p99, over = (
        values.get(name)
        for name in ("result_99.00_percentile_latency_ns", "result_overlatency_query_count")
    )
    bound, queries = spec.target_latency_ns, values.get("result_query_count", 0)
    if isinstance(p99, int) and p99 > bound:
        yield f"p99 latency {p99} ns, wanted at most {bound} ns"
    if isinstance(over, int) and over > (most := max(0, most_over(queries, OTHERS))):
        yield f"{over} of {queries} queries over {bound} ns, early stopping allows {most}"


def _token_bounds(spec: RunSpec, values: Any) -> Iterator[str]:
    for name, key, bound in (
        ("TTFT", "result_first_token_99.00_percentile_latency_ns", spec.ttft_latency_ns),
        ("TPOT", "result_time_per_output_token_99.00_percentile_ns", spec.tpot_latency_ns),
    ):
        p99 = values.get(key)
        if isinstance(p99, int) and p99 > bound:
            yield f"p99 {name} {p99} ns, wanted at most {bound} ns"
    tpot = str(values.get("early_stopping_tpot_result", ""))
    ttft = str(values.get("early_stopping_ttft_result", ""))
    if _PASSED not in tpot:
        yield "early stopping of TPOT did not pass, so LoadGen did not look at TTFT"
    elif _PASSED not in ttft:
        yield "early stopping of TTFT did not pass"
