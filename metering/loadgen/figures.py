"""The figures of a run, taken from its detail log, and whether they can all be true at once.

In: a spec and the log of a run that LoadGen calls VALID. Out: :class:`Figures`. An edited figure
has to keep every relation checked here; LoadGen's own keep them by construction. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from metering.loadgen.detail_log import DetailLog
from metering.loadgen.early_stopping import OTHERS, SINGLE_STREAM, holds, most_over
from metering.loadgen.result import Latency, TokenFigures, TokenLatency
from metering.loadgen.settings import MULTI_STREAM_SAMPLES, needs_first_token
from metering.loadgen.spec import RunSpec

# LoadGen prints six digits of a rate; the product of rate and time may be off by half a unit there.
_TOLERANCE = Decimal("0.00001")
_POINTS = {"50.00": 0.5, "90.00": 0.9, "95.00": 0.95, "97.00": 0.97, "99.00": 0.99, "99.90": 0.999}


@dataclass(frozen=True)
class Figures:
    """Samples per second as LoadGen wrote it, latency of queries, samples, tokens if any.

    MultiStream has no rate of LoadGen's own: eight samples in the mean latency of a query.
    """

    samples_per_second: Decimal
    latency: Latency
    sample_count: int
    tokens: TokenFigures | None = None


def figures(spec: RunSpec, log: DetailLog) -> Figures:
    """Raises KeyError, TypeError, ValueError or ArithmeticError for figures that are none."""
    values = log.values
    queries = int(values["result_query_count"])
    multi = spec.scenario == "MultiStream"
    points = _points(values, "result_{}_percentile_per_query_latency_ns" if multi else
                     "result_{}_percentile_latency_ns")  # fmt: skip
    kind = "query_latency" if multi else "latency"
    longest = int(values[f"result_max_{kind}_ns"])
    if not all(a <= b for a, b in zip([1, *points], [*points, longest], strict=True)):
        raise ValueError("latency percentiles are not in order")
    early = _early_stopping(spec, values, queries, points, longest)
    latency = Latency(
        mean_ns=int(values[f"result_mean_{kind}_ns"]),
        p50_ns=points[0],
        p90_ns=points[1],
        p99_ns=points[4],
        max_ns=longest,
        early_stopping_p90_ns=early if spec.scenario == "SingleStream" else None,
        early_stopping_p99_ns=early if multi else None,
    )
    if spec.scenario == "Offline":
        count, rate = _offline(spec, values, queries, longest)
    elif spec.scenario == "Server":
        count, rate = _server(spec, values, queries, latency)
    elif multi:
        count = queries * MULTI_STREAM_SAMPLES
        rate = Decimal(f"{Decimal(MULTI_STREAM_SAMPLES * 10**9) / latency.mean_ns:.6g}")
    else:
        count, rate = queries, Decimal(values["result_qps_with_loadgen_overhead"])
    tokens = _tokens(spec, values, count, points, latency) if spec.task == "generation" else None
    return Figures(rate, latency, count, tokens)


def _points(values: Any, name: str) -> list[int]:
    return [int(values[name.format(point)]) for point in _POINTS]


def _early_stopping(
    spec: RunSpec, values: Any, queries: int, points: Sequence[int], longest: int
) -> int | None:
    """The early-stopped percentile of a stream, an order statistic LoadGen cannot choose freely."""
    # In token mode LoadGen overwrites it with the one of the time to first token.
    if spec.task == "generation" or spec.scenario not in ("SingleStream", "MultiStream"):
        return None
    multi = spec.scenario == "MultiStream"
    percentile = OTHERS if multi else SINGLE_STREAM
    early = int(values["early_stopping_latency_ms" if multi else "early_stopping_latency_ss"])
    over = most_over(queries, percentile)
    if over < 1:
        raise ValueError(f"{queries} queries are too few for an early-stopping estimate")
    rank = queries - over
    for part, value in zip((*_POINTS.values(), 1.0), (*points, longest), strict=True):
        at = min(int(queries * part), queries - 1)
        if (early < value and rank >= at) or (early > value and rank <= at):
            raise ValueError(f"early-stopping latency {early} ns does not fit {value} at {part:g}")
    return early


def _offline(spec: RunSpec, values: Any, queries: int, longest: int) -> tuple[int, Decimal]:
    count = int(values["generated_samples_per_query"]) * queries
    rate = Decimal(values["result_samples_per_second"])
    # The rate LoadGen prints must follow from its own count and last completion.
    implied = Decimal(count) * 10**9 / longest
    if abs(rate - implied) > _TOLERANCE * implied:
        raise ValueError(f"result_samples_per_second {rate} does not follow from {implied:.6g}")
    if longest < spec.min_duration_ms * 10**6:
        raise ValueError("the query ended before the minimum duration, yet is called VALID")
    return count, rate


def _server(spec: RunSpec, values: Any, queries: int, latency: Latency) -> tuple[int, Decimal]:
    completed = Decimal(values["result_completed_samples_per_sec"])
    scheduled = Decimal(values["result_scheduled_samples_per_sec"])
    # Both count all queries but the last, over the times when the last was issued and was answered.
    issued_ns = Decimal(queries - 1) * 10**9 / scheduled
    answered_ns = Decimal(queries - 1) * 10**9 / completed
    slack = 2 * _TOLERANCE * answered_ns
    if not -slack <= answered_ns - issued_ns <= latency.max_ns + slack:
        raise ValueError(
            f"result_completed_samples_per_sec {completed} does not follow from the scheduled "
            f"{scheduled} and the latencies"
        )
    if issued_ns + slack < spec.min_duration_ms * 10**6:
        raise ValueError("the last query came before the minimum duration, yet is called VALID")
    if spec.task != "generation":
        over = int(values["result_overlatency_query_count"])
        if latency.p99_ns > spec.target_latency_ns or not holds(queries, over, OTHERS):
            raise ValueError(f"{over} of {queries} queries over the bound, yet called VALID")
        if (over > 0) != (latency.max_ns > spec.target_latency_ns):
            raise ValueError(f"{over} queries over the bound do not fit the longest latency")
    return queries, completed


def _tokens(
    spec: RunSpec, values: Any, count: int, points: Sequence[int], latency: Latency
) -> TokenFigures:
    if not needs_first_token(spec):
        rate = Decimal(values["result_tokens_per_second"])
        _hold_count(spec, count, rate * latency.max_ns / 10**9)
        return TokenFigures(rate)
    # LoadGen's result_token_throughput divides by nanoseconds as if they were seconds: not used.
    rate = Decimal(values["result_completed_tokens_per_second"])
    if spec.scenario == "Server":
        told = rate * (count - 1) / Decimal(values["result_completed_samples_per_sec"])
    else:
        told = Decimal(values["result_token_throughput_with_loadgen_overhead"])
        told = told * (count - 1) / Decimal(values["result_qps_with_loadgen_overhead"])
    _hold_count(spec, count, told)
    first = _points(values, "result_first_token_{}_percentile_latency_ns")
    each = _points(values, "result_time_per_output_token_{}_percentile_ns")
    ttft = TokenLatency(
        mean_ns=int(values["result_first_token_mean_latency_ns"]),
        p50_ns=first[0],
        p90_ns=first[1],
        p99_ns=first[4],
        max_ns=int(values["result_first_token_max_latency_ns"]),
    )
    tpot = TokenLatency(
        mean_ns=int(values["result_time_to_output_token_mean"]),
        p50_ns=each[0],
        p90_ns=each[1],
        p99_ns=each[4],
        max_ns=int(values["result_time_to_output_token_max"]),
    )
    for name, ordered, most in (("first token", first, ttft), ("output token", each, tpot)):
        if not all(a <= b for a, b in zip([0, *ordered], [*ordered, most.max_ns], strict=True)):
            raise ValueError(f"{name} percentiles are not in order")
        # No answer is whole before its first token, nor faster than the rest of its tokens.
        if any(a > b for a, b in zip(ordered, points, strict=True)) or most.max_ns > latency.max_ns:
            raise ValueError(f"{name} latencies are above those of whole answers")
    if spec.scenario == "Server" and (
        ttft.p99_ns > spec.ttft_latency_ns or tpot.p99_ns > spec.tpot_latency_ns
    ):
        raise ValueError("p99 of a token latency is over its bound, yet the run is called VALID")
    return TokenFigures(rate, ttft, tpot)


def _hold_count(spec: RunSpec, answers: int, tokens: Decimal) -> None:
    """Answers have 2 to ``max_new_tokens`` tokens, so together a number between."""
    least, most = 2 * answers, spec.max_new_tokens * answers
    if not least * (1 - 3 * _TOLERANCE) <= tokens <= most * (1 + 3 * _TOLERANCE):
        raise ValueError(f"{tokens:.6g} tokens in {answers} answers, wanted {least} to {most}")
