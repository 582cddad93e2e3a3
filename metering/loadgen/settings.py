"""From a :class:`RunSpec` to LoadGen's settings, and to what its log must say about them.

In: a spec. Out: a filled ``TestSettings``, and the full table of ``effective_*`` values the run has
to echo. No config file is read: LoadGen's parser drops misspelt lines silently and keeps state
between calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from metering.loadgen.spec import RunSpec

_MODES = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}
# LoadGen prints six significant digits.
_TOLERANCE = Decimal("0.00001")
_OFFLINE_HEADROOM = 1.1
MULTI_STREAM_SAMPLES = 8
SERVER_PERCENTILE = "0.99"


_STREAMS = ("SingleStream", "MultiStream")
_PERCENTILES = {"SingleStream": "0.9"}


def test_settings(loadgen: Any, spec: RunSpec) -> Any:
    """A ``TestSettings`` of the module ``loadgen`` holding everything the spec asks for."""
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, spec.scenario)
    settings.mode = getattr(loadgen.TestMode, _MODES[spec.mode])
    settings.min_duration_ms = spec.min_duration_ms
    settings.max_duration_ms = spec.max_duration_ms
    settings.min_query_count = spec.min_query_count
    settings.offline_expected_qps = spec.target_qps
    settings.single_stream_expected_latency_ns = _expected_latency_ns(spec)
    settings.multi_stream_expected_latency_ns = _expected_latency_ns(spec)
    settings.multi_stream_samples_per_query = MULTI_STREAM_SAMPLES
    settings.server_target_qps = spec.target_qps
    settings.server_target_latency_ns = spec.target_latency_ns
    settings.server_max_async_queries = spec.max_async_queries
    settings.server_coalesce_queries = False
    settings.qsl_rng_seed = spec.seeds.qsl
    settings.sample_index_rng_seed = spec.seeds.sample_index
    settings.schedule_rng_seed = spec.seeds.schedule
    settings.accuracy_log_probability = sampling_probability(spec)
    settings.accuracy_log_rng_seed = _sampling_seed(spec)
    settings.use_token_latencies = spec.task == "generation"
    settings.ttft_latency = spec.ttft_latency_ns
    settings.tpot_latency = spec.tpot_latency_ns
    # Threads that register through a function Python lacks: more than zero hangs.
    settings.server_num_issue_query_threads = 0
    return settings


def needs_first_token(spec: RunSpec) -> bool:
    """Whether LoadGen wants to be told of first tokens; without, it reads what is not there."""
    return spec.task == "generation" and spec.scenario != "Offline"


def _expected_latency_ns(spec: RunSpec) -> int:
    samples = MULTI_STREAM_SAMPLES if spec.scenario == "MultiStream" else 1
    return round(samples * 1e9 / spec.target_qps)


def samples_per_query(spec: RunSpec) -> int:
    """Samples in one query: 1.1 x target x duration in Offline, and at least the minimum count."""
    if spec.scenario != "Offline":
        return MULTI_STREAM_SAMPLES if spec.scenario == "MultiStream" else 1
    duration_s = spec.min_duration_ms / 1000
    return max(spec.min_query_count, int(_OFFLINE_HEADROOM * duration_s * spec.target_qps))


def generated_queries(spec: RunSpec) -> int:
    """About how many queries LoadGen makes up, and holds in memory, before it issues the first."""
    if spec.scenario == "Offline":
        return 1
    seconds = spec.min_duration_ms / 1000 * (2 if spec.scenario in _STREAMS else 1)
    return max(spec.min_query_count, int(seconds * spec.target_qps / samples_per_query(spec)))


def sampling_probability(spec: RunSpec) -> float:
    """Chance of one output of a timed run to be kept, in the six digits the log repeats."""
    if spec.mode == "accuracy" or spec.sampled_outputs == 0:
        return 0.0
    expected = samples_per_query(spec)
    if spec.scenario != "Offline":
        seconds = spec.min_duration_ms / 1000
        expected = max(spec.min_query_count * expected, int(spec.target_qps * seconds))
    return float(f"{min(1.0, spec.sampled_outputs / expected):.6g}")


def _sampling_seed(spec: RunSpec) -> int:
    return spec.seeds.sample_index if sampling_probability(spec) else 0


def expected_effective(spec: RunSpec) -> dict[str, str]:
    """What every ``effective_*`` line must say for this spec, as text.

    With them the few settings that LoadGen repeats as ``requested_*`` only (see ``detail_log``).
    """
    offline, streams = spec.scenario == "Offline", spec.scenario in _STREAMS
    qps = 1e9 / _expected_latency_ns(spec) if streams else spec.target_qps
    per_query = samples_per_query(spec)
    expected = {
        "effective_scenario": spec.scenario,
        "effective_test_mode": _MODES[spec.mode],
        "effective_samples_per_query": str(per_query),
        "effective_target_qps": f"{qps:.6g}",
        "effective_target_latency_ns": str(spec.target_latency_ns),
        "effective_target_latency_percentile": _PERCENTILES.get(spec.scenario, SERVER_PERCENTILE),
        "effective_max_async_queries": str(spec.max_async_queries or 1),
        "effective_target_duration_ms": "0" if offline else str(spec.min_duration_ms),
        "effective_min_duration_ms": str(spec.min_duration_ms),
        "effective_max_duration_ms": str(spec.max_duration_ms),
        "effective_min_query_count": "1" if offline else str(spec.min_query_count),
        "effective_max_query_count": "0",
        "effective_min_sample_count": str(per_query * (1 if offline else spec.min_query_count)),
        "effective_qsl_rng_seed": str(spec.seeds.qsl),
        "effective_sample_index_rng_seed": str(spec.seeds.sample_index),
        "effective_schedule_rng_seed": str(spec.seeds.schedule),
        "effective_accuracy_log_rng_seed": str(_sampling_seed(spec)),
        "effective_accuracy_log_probability": f"{sampling_probability(spec):.6g}",
        "effective_accuracy_log_sampling_target": "0",
        "effective_print_timestamps": "False",
        "effective_performance_issue_unique": "False",
        "effective_performance_issue_same": "False",
        "effective_performance_issue_same_index": "0",
        "effective_performance_sample_count": str(spec.library_size),
        "effective_accuracy_sample_count": str(spec.library_size),
        "effective_sample_concatenate_permutation": "False",
    }
    if spec.scenario == "Server":
        expected["requested_server_coalesce_queries"] = "False"
        expected["requested_server_num_issue_query_threads"] = "0"
    if spec.task == "generation":
        expected |= {"requested_use_token_latencies": "True"}
    if needs_first_token(spec):
        expected["requested_server_ttft_latency"] = str(spec.ttft_latency_ns)
        expected["requested_server_tpot_latency"] = str(spec.tpot_latency_ns)
    return expected


def differences(expected: Mapping[str, str], effective: Mapping[str, str]) -> list[str]:
    """One sentence per setting that is missing, not asked for, or not as asked."""
    found = []
    for key in sorted(set(expected) | set(effective)):
        want, got = expected.get(key), effective.get(key)
        if want is None:
            found.append(f"{key}: got {got}, but nothing was asked for")
        elif got is None:
            found.append(f"{key}: missing, wanted {want}")
        elif not _same(want, got):
            found.append(f"{key}: got {got}, wanted {want}")
    return found


def _same(want: str, got: str) -> bool:
    if want == got:
        return True
    if "." not in want + got and "e" not in want + got:
        return False
    try:
        wanted, given = Decimal(want), Decimal(got)
    except InvalidOperation:
        return False
    return abs(wanted - given) <= _TOLERANCE * abs(wanted)
