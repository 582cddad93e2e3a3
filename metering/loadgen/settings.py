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


def test_settings(loadgen: Any, spec: RunSpec) -> Any:
    """A ``TestSettings`` of the module ``loadgen`` holding everything the spec asks for."""
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, spec.scenario)
    settings.mode = getattr(loadgen.TestMode, _MODES[spec.mode])
    settings.min_duration_ms = spec.min_duration_ms
    settings.max_duration_ms = 0
    settings.min_query_count = spec.min_query_count
    settings.offline_expected_qps = spec.target_qps
    settings.single_stream_expected_latency_ns = round(1e9 / spec.target_qps)
    settings.qsl_rng_seed = spec.seeds.qsl
    settings.sample_index_rng_seed = spec.seeds.sample_index
    settings.schedule_rng_seed = spec.seeds.schedule
    settings.accuracy_log_probability = sampling_probability(spec)
    settings.accuracy_log_rng_seed = _sampling_seed(spec)
    settings.use_token_latencies = spec.task == "generation"
    # Threads that register through a function Python lacks: more than zero hangs.
    settings.server_num_issue_query_threads = 0
    return settings


def needs_first_token(spec: RunSpec) -> bool:
    """Whether LoadGen wants to be told of first tokens; without, it reads what is not there."""
    return spec.task == "generation" and spec.scenario != "Offline"


def samples_per_query(spec: RunSpec) -> int:
    """Samples in one query: 1.1 x target x duration in Offline, and at least the minimum count."""
    if spec.scenario == "SingleStream":
        return 1
    duration_s = spec.min_duration_ms / 1000
    return max(spec.min_query_count, int(_OFFLINE_HEADROOM * duration_s * spec.target_qps))


def sampling_probability(spec: RunSpec) -> float:
    """Chance of one output of a timed run to be kept, in the six digits the log repeats."""
    if spec.mode == "accuracy" or spec.sampled_outputs == 0:
        return 0.0
    expected = samples_per_query(spec)
    if spec.scenario == "SingleStream":
        seconds = spec.min_duration_ms / 1000
        expected = max(spec.min_query_count, int(spec.target_qps * seconds))
    return float(f"{min(1.0, spec.sampled_outputs / expected):.6g}")


def _sampling_seed(spec: RunSpec) -> int:
    return spec.seeds.sample_index if sampling_probability(spec) else 0


def expected_effective(spec: RunSpec) -> dict[str, str]:
    """What every ``effective_*`` line must say for this spec, as text."""
    offline = spec.scenario == "Offline"
    qps = spec.target_qps if offline else 1e9 / round(1e9 / spec.target_qps)
    per_query = samples_per_query(spec)
    return {
        "effective_scenario": spec.scenario,
        "effective_test_mode": _MODES[spec.mode],
        "effective_samples_per_query": str(per_query),
        "effective_target_qps": f"{qps:.6g}",
        "effective_target_latency_ns": "0",
        "effective_target_latency_percentile": "0.99" if offline else "0.9",
        "effective_max_async_queries": "1",
        "effective_target_duration_ms": "0" if offline else str(spec.min_duration_ms),
        "effective_min_duration_ms": str(spec.min_duration_ms),
        "effective_max_duration_ms": "0",
        "effective_min_query_count": "1" if offline else str(spec.min_query_count),
        "effective_max_query_count": "0",
        "effective_min_sample_count": str(per_query if offline else spec.min_query_count),
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
