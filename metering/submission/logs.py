"""One LoadGen run of a submission, held to its rules, its recorded spec and itself.

In: the bytes of its logs, the spec recorded beside it, the rules. Out: findings and, from a
performance run without any, its result. LoadGen's verdict is one condition of many: it says VALID
over error lines, and its own checker accepts a run that says INVALID. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from metering.loadgen import detail_log
from metering.loadgen.detail_log import DetailLog, DetailLogError
from metering.loadgen.figures import figures
from metering.loadgen.files import sha256_bytes
from metering.loadgen.settings import differences, expected_effective
from metering.loadgen.spec import RunSpec
from metering.loadgen.verdict import ACCURACY, DETAIL, SUMMARY
from metering.submission import documents
from metering.submission.figures import (
    TPOT_P99,
    TTFT_P99,
    disagreements,
    impossible,
    token_mode,
)
from metering.submission.finding import Finding
from metering.submission.rules import PRIMARY_KEYS, TOKEN_KEYS, UNLISTED, Benchmark, Rules
from metering.submission.tree import ACCURACY_TXT

_MOST = 8
# The round's least Offline query, or the data set where that is smaller.
_OFFLINE_SAMPLES = 24_576
_SEEDS = ("qsl", "sample_index", "schedule")
_MODES = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}
# Token mode adds the first token (not in Offline) and how many LoadGen was told of.
_RECORD = re.compile(
    rb'\{ "seq_id" : [0-9]+, "qsl_idx" : ([0-9]+), "data" : "[0-9A-F]*"'
    rb'(?:(?:, "token_data" : "[0-9A-F]*")?, "token_count" : [0-9]+)? \}'
)


@dataclass(frozen=True)
class Result:
    """One scenario's result: the primary metric as LoadGen wrote it, and the accuracy reported.

    ``ttft_p99_ns`` and ``tpot_p99_ns`` stand beside the metric of a model that generates tokens,
    where LoadGen measures them (all scenarios but Offline); else they are empty.
    """

    scenario: str
    metric: str
    value: str
    unit: str
    accuracy: str = ""
    ttft_p99_ns: str = ""
    tpot_p99_ns: str = ""


def performance(
    folder: str, scenario: str, files: Mapping[str, bytes], spec: RunSpec | None, rules: Rules,
    benchmark: Benchmark,
) -> tuple[list[Finding], Result | None]:  # fmt: skip
    """Findings on ``performance/run_1``, and its result when there is none."""
    path, summary_path = f"{folder}/{DETAIL}", f"{folder}/{SUMMARY}"
    log, found = _parsed(path, files)
    if log is None:
        return found, None
    found += _listed(path, _verdict(log))
    found += _listed(path, _held(log, "performance", scenario, spec, rules))
    found += _listed(path, _performance_rules(log, rules, benchmark))
    found += _listed(path, _token_rules(log, spec, rules, benchmark))
    found += _listed(path, impossible(log))
    if spec is not None and spec.task == "generation" and not found:
        found += _listed(path, _impossible_tokens(spec, log))
    if summary_path in files:
        found += _listed(summary_path, disagreements(log, files[summary_path]))
    keys = TOKEN_KEYS if token_mode(log) else PRIMARY_KEYS
    key, unit = keys.get(scenario, ("", ""))
    if found or key not in log.values:
        return found or [Finding(path, f"{key}: missing")], None
    times = [log.text(name) if name in log.values else "" for name in (TTFT_P99, TPOT_P99)]
    return [], Result(scenario, key, log.text(key), unit, "", *times)


def accuracy(
    folder: str, scenario: str, files: Mapping[str, bytes], spec: RunSpec | None, rules: Rules,
    benchmark: Benchmark,
) -> tuple[list[Finding], str]:  # fmt: skip
    """Findings on ``accuracy``, and the figure accuracy.txt reports, empty when there is none."""
    path, text_path = f"{folder}/{DETAIL}", f"{folder}/{ACCURACY_TXT}"
    log, found = _parsed(path, files)
    samples = 0
    if log is not None:
        samples = _whole(log.values.get("effective_accuracy_sample_count"))
        found += _listed(path, _errors(log, counted=False))
        found += _listed(path, _held(log, "accuracy", scenario, spec, rules))
        found += _listed(path, _accuracy_rules(log, samples, benchmark))
    summary_path, log_path = f"{folder}/{SUMMARY}", f"{folder}/{ACCURACY}"
    summary = files.get(summary_path, b"").rstrip()
    if summary_path in files and not summary.endswith(b"No errors encountered during test."):
        found.append(
            Finding(summary_path, "does not end with LoadGen's word that there were no errors")
        )
    text = files.get(text_path, b"").decode("utf-8", "replace")
    figures = [match[1] for line in text.splitlines()
               if (match := benchmark.accuracy_line.fullmatch(line))]  # fmt: skip
    if text_path in files:
        found += _listed(text_path, _text(text, figures, rules, benchmark))
    if log_path in files:
        found += _listed(log_path, _outputs(files[log_path], text, samples))
    return found, figures[0] if len(figures) == 1 else ""


def _listed(path: str, reasons: Iterable[str]) -> list[Finding]:
    whole = list(reasons)
    found = [Finding(path, reason) for reason in whole[:_MOST]]
    if len(whole) > _MOST:
        found.append(Finding(path, f"and {len(whole) - _MOST} reasons more"))
    return found


def _parsed(path: str, files: Mapping[str, bytes]) -> tuple[DetailLog | None, list[Finding]]:
    if path not in files:
        return None, []  # The tree has said already that it is missing.
    try:
        return detail_log.parse(files[path]), []
    except DetailLogError as error:
        return None, [Finding(path, str(error))]


def _errors(log: DetailLog, *, counted: bool) -> list[str]:
    reasons = [f"LoadGen error: {text[:300]}" for text in log.errors]
    # Accuracy mode never logs the count.
    if counted and log.values.get("num_errors") != 0:
        reasons.append(f"num_errors: got {log.values.get('num_errors')}, wanted 0")
    if "power_end" not in log.values:
        reasons.append("no power_end line, so the test did not come to its end")
    return reasons


def _verdict(log: DetailLog) -> list[str]:
    reasons = _errors(log, counted=True)
    if log.values.get("result_validity") != "VALID":
        said = log.values.get("result_validity", "nothing")
        why = str(log.values.get("result_invalid_reason", "")).strip()
        reasons.append(f"result_validity: got {said}, wanted VALID" + (f" ({why})" if why else ""))
    for key in ("result_min_duration_met", "result_min_queries_met", "early_stopping_met"):
        if log.values.get(key) is not True:
            reasons.append(f"{key}: got {log.values.get(key)}, wanted True")
    if log.values.get("result_perf_constraints_met", True) is not True:
        reasons.append("result_perf_constraints_met: got False, wanted True")
    return reasons


def _held(
    log: DetailLog, mode: str, scenario: str, spec: RunSpec | None, rules: Rules
) -> list[str]:
    values, reasons = log.values, []
    for name in _SEEDS:
        wanted = getattr(rules.seeds, name)
        for kind in ("effective", "requested"):
            got = values.get(f"{kind}_{name}_rng_seed")
            if got != wanted:
                reasons.append(f"{kind}_{name}_rng_seed: wrong seed {got}, wanted {wanted}")
    if values.get("effective_scenario") != scenario:
        reasons.append(
            f"effective_scenario: got {values.get('effective_scenario')}, in a folder {scenario}"
        )
    if values.get("effective_test_mode") != _MODES[mode]:
        reasons.append(
            f"effective_test_mode: got {values.get('effective_test_mode')}, wanted {_MODES[mode]}"
        )
    version = str(values.get("loadgen_version", ""))
    if version.split(" ", 1)[0] != rules.loadgen:
        reasons.append(f"loadgen_version: got {version!r}, wanted {rules.loadgen}, as the round")
    if values.get("loadgen_git_status_message"):
        reasons.append("loadgen_git_status_message: this LoadGen was built with changes")
    if spec is not None:
        reasons += differences(expected_effective(spec), log.effective())
    return reasons


def _performance_rules(log: DetailLog, rules: Rules, benchmark: Benchmark) -> list[str]:
    values, reasons = log.values, []
    if _whole(values.get("effective_min_duration_ms")) < rules.min_duration_ms:
        reasons.append(
            f"effective_min_duration_ms: got {values.get('effective_min_duration_ms')}, wanted at "
            f"least {rules.min_duration_ms}"
        )
    held = _whole(values.get("effective_performance_sample_count"))
    if held < benchmark.performance_samples:
        reasons.append(
            f"effective_performance_sample_count: got {held}, wanted at least "
            f"{benchmark.performance_samples}"
        )
    if not rules.rehearsal and values.get("effective_accuracy_log_probability") != 0:
        reasons.append("effective_accuracy_log_probability: a performance run that logs outputs")
    scenario, query = values.get("effective_scenario"), values.get("effective_samples_per_query")
    least = min(benchmark.dataset, _OFFLINE_SAMPLES)
    if scenario == "Offline" and _whole(query) < least:
        reasons.append(f"effective_samples_per_query: got {query}, wanted at least {least}")
    bound = benchmark.server_latency_ns
    if scenario == "Server" and bound:
        asked = _whole(values.get("effective_target_latency_ns"))
        if not 0 < asked <= bound:
            reasons.append(f"effective_target_latency_ns: got {asked}, wanted at most {bound}")
    return reasons


def _token_rules(
    log: DetailLog, spec: RunSpec | None, rules: Rules, benchmark: Benchmark
) -> list[str]:
    """Token mode where the benchmark generates and nowhere else, and the two bounds of Server."""
    values, generates = log.values, benchmark.generates
    if benchmark.name == UNLISTED:
        generates = spec.task == "generation" if spec is not None else token_mode(log)
    if token_mode(log) != generates:
        wanted = f"{generates}: {benchmark.name} {'generates' if generates else 'has no'} tokens"
        return [f"requested_use_token_latencies: got {token_mode(log)}, wanted {wanted}"]
    if not generates or values.get("effective_scenario") != "Server" or rules.rehearsal:
        return []
    if not benchmark.ttft_ns:
        return [f"effective_scenario: {benchmark.name} has no Server scenario"]
    reasons = []
    for name, bound, asked, told in (
        ("TTFT", benchmark.ttft_ns, "requested_server_ttft_latency", TTFT_P99),
        ("TPOT", benchmark.tpot_ns, "requested_server_tpot_latency", TPOT_P99),
    ):
        if not 0 < _whole(values.get(asked)) <= bound:
            reasons.append(f"{asked}: got {values.get(asked)}, wanted at most {bound}")
        if not 0 < _whole(values.get(told)) < bound:
            reasons.append(f"p99 {name}: {told} is {values.get(told)}, wanted below {bound}")
    return reasons


def _impossible_tokens(spec: RunSpec, log: DetailLog) -> list[str]:
    """The relations that need the limits of the answers, which only the specification tells."""
    try:
        figures(spec, log)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return [f"token figures cannot all be true: {error}"]
    return []


def _accuracy_rules(log: DetailLog, samples: int, benchmark: Benchmark) -> list[str]:
    total = _whole(log.values.get("qsl_reported_total_count"))
    wanted = benchmark.dataset or total
    if samples < 1 or samples != wanted or total != wanted:
        return [
            f"effective_accuracy_sample_count: got {samples} of a library of {total}, wanted the "
            f"whole data set of {wanted or 'at least 1'}"
        ]
    return []


def _text(text: str, figures: list[str], rules: Rules, benchmark: Benchmark) -> list[str]:
    reasons = []
    if len(figures) != 1:
        reasons.append(
            f"{len(figures)} lines report {benchmark.metric}, wanted one that matches "
            f"{benchmark.accuracy_line.pattern}"
        )
    elif rules.floor is not None and not float(figures[0]) >= float(rules.floor):
        reasons.append(f"{benchmark.metric}: got {figures[0]}, the plan wants {rules.floor}")
    try:
        documents.read_accuracy_hash(text)
    except ValueError as error:
        reasons.append(str(error))
    return reasons


def _outputs(log: bytes, text: str, samples: int) -> list[str]:
    if len(log) > documents.MOST_ACCURACY_BYTES:
        return [f"{len(log)} bytes, wanted at most {documents.MOST_ACCURACY_BYTES}: cut it"]
    if not log.startswith(b"[") or not log.rstrip().endswith(b"]"):
        return ["does not begin and end as LoadGen's list of outputs"]
    if not documents.is_cut(log):
        return _whole_outputs(log, text, samples)
    shown = [int(index) for index in _RECORD.findall(log)]
    if len(set(shown)) != len(shown) or any(index >= samples for index in shown):
        return ["its visible records name a sample twice or one beyond the data set"]
    return []


def _whole_outputs(log: bytes, text: str, samples: int) -> list[str]:
    reasons = []
    if f"hash={sha256_bytes(log)}" not in text.splitlines():
        reasons.append("its SHA-256 is not the hash of accuracy.txt")
    try:
        records: Any = json.loads(log)
        indices = sorted(int(record["qsl_idx"]) for record in records)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return [*reasons, f"neither whole nor cut as the round's tool cuts it ({error})"]
    if indices != list(range(samples)):
        reasons.append(f"wanted each of {samples} samples exactly once")
    return reasons


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
