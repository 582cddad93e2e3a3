"""Token mode through the real LoadGen and a real decoder: TTFT, TPOT, tokens a second, verdicts."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metering import loadgen
from metering.loadgen import EvidenceError, RunSpec
from metering.loadgen.files import sha256_bytes
from metering.loadgen.library import write_library
from metering.loadgen.supervisor import supervise
from tests.metering.measure.conftest import ONE_CORE
from tests.metering.measure.tiny_decoder import END, VOCABULARY, whole

CHILD = Path(__file__).with_name("task_child.py")
DETAIL = "mlperf_log_detail.txt"
LIMIT, PROMPTS = 3, 12
HOUR_NS = 3600 * 10**9


def child(case: str) -> tuple[str, ...]:
    return (sys.executable, str(CHILD), case)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Any]) -> RunSpec:
    """An Offline run of short answers of three tokens each."""
    path = tmp_path_factory.mktemp("prompts") / "prompts.npz"
    write_library(path, [np.array([token * 7 % VOCABULARY, token]) for token in range(PROMPTS)])
    return RunSpec(
        run_id="run",
        scenario="Offline",
        mode="performance",
        sut=loadgen.SutSpec("null", batch=8),
        model=str(inputs["model"]),
        samples=str(path),
        min_duration_ms=1,
        target_qps=1.0,
        min_query_count=36,
        warmup_ms=0,
        cores=ONE_CORE,
        task="generation",
        max_new_tokens=LIMIT,
        wall_limit_s=60.0,
    )


def stream(spec: RunSpec, **fields: Any) -> RunSpec:
    values = {"target_qps": 1000.0, "min_query_count": 80, **fields}
    return dataclasses.replace(spec, scenario="SingleStream", **values)


def server(spec: RunSpec, **fields: Any) -> RunSpec:
    """480 queries: with none over its bounds, 459 are the fewest that can be VALID."""
    values = {
        "target_qps": 400.0,
        "min_query_count": 480,
        "ttft_latency_ns": HOUR_NS,
        "tpot_latency_ns": HOUR_NS,
        "max_async_queries": 5000,
        "max_duration_ms": 60_000,
        **fields,
    }
    return dataclasses.replace(spec, scenario="Server", **values)


@pytest.fixture(scope="module")
def originals(spec: RunSpec, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for asked in (spec, stream(spec), server(spec)):
        out = tmp_path_factory.mktemp(asked.scenario) / "run"
        result = supervise(asked, out, child=child("generates"))
        assert result.state == "VALID", result.reasons
        made[asked.scenario] = out
    return made


def test_offline_counts_every_token(originals: dict[str, Path]) -> None:
    result = loadgen.load_run(originals["Offline"])
    assert result.tokens is not None
    assert result.samples_per_second is not None
    assert (result.tokens.ttft, result.tokens.tpot) == (None, None)
    per_answer = result.tokens.tokens_per_second / result.samples_per_second
    assert float(per_answer) == pytest.approx(LIMIT, rel=1e-4)
    assert result.log_metric() == math.log(result.tokens.tokens_per_second)


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_times_of_tokens_add_up_to_the_latency(originals: dict[str, Path], scenario: str) -> None:
    result = loadgen.load_run(originals[scenario])
    tokens, latency = result.tokens, result.latency
    assert tokens is not None
    assert tokens.ttft is not None
    assert tokens.tpot is not None
    assert latency is not None
    # Every answer is a first token and two more; LoadGen cuts each of the three means to whole ns.
    total = tokens.ttft.mean_ns + (LIMIT - 1) * tokens.tpot.mean_ns
    assert abs(latency.mean_ns - total) <= 2 * LIMIT
    assert 0 < tokens.ttft.p99_ns < latency.p99_ns
    assert tokens.tpot.p50_ns > 0
    # LoadGen's own figure here is that of the time to first token.
    assert latency.early_stopping_p90_ns is None
    assert result.log_metric() == math.log(tokens.tokens_per_second)
    assert loadgen.RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_answers_of_a_timed_run_are_those_of_the_model(spec: RunSpec, tmp_path: Path) -> None:
    asked = stream(spec, sampled_outputs=40, max_new_tokens=8, end_token=END)
    result = supervise(asked, tmp_path / "run", child=child("generates"))
    assert result.state == "VALID", result.reasons
    prompts = [[token * 7 % VOCABULARY, token] for token in range(PROMPTS)]
    records = json.loads((tmp_path / "run/mlperf_log_accuracy.json").read_text())
    assert len(records) > 5
    for record in records:
        expected = whole(prompts[record["qsl_idx"]], 8, END)
        assert np.frombuffer(bytes.fromhex(record["data"]), "<i4").tolist() == expected
        assert bytes.fromhex(record["token_data"]) == expected[0].to_bytes(4, "little")


def test_tokens_of_one_long_answer_are_signs_of_life(spec: RunSpec, tmp_path: Path) -> None:
    """An answer may take longer than the stall limit; its tokens show that it goes on."""
    beats: list[loadgen.Heartbeat] = []
    asked = dataclasses.replace(spec, min_query_count=1, max_new_tokens=40)
    result = supervise(asked, tmp_path / "run", child=child("slow"), on_heartbeat=beats.append)
    assert result.state == "VALID", result.reasons
    assert len({beat.tokens for beat in beats if beat.completed == 0}) > 2


ENDINGS: list[tuple[str, dict[str, Any], str, str]] = [
    # Gotcha 13: LoadGen gives no reason at all, and does not look at TTFT when TPOT failed.
    ("generates", {"min_query_count": 60}, "INVALID", "60 queries, early stopping at 0.99 wants"),
    ("generates", {"min_query_count": 60}, "INVALID", "LoadGen did not look at TTFT"),
    (
        "generates",
        {"ttft_latency_ns": 1, "min_query_count": 480},
        "INVALID",
        "ns, wanted at most 1 ns|early stopping of TTFT did not pass",
    ),
    ("generates", {"tpot_latency_ns": 1, "min_query_count": 60}, "INVALID", "p99 TPOT"),
    ("stalls", {"stall_limit_s": 0.8}, "HUNG", "no progress"),
    # Gotcha 12: one-token answers are found before LoadGen makes a negative time of them.
    ("one_token", {"end_token": 1}, "ERROR", "has no time per output token"),
    ("short", {}, "ERROR", "stopped before their limit"),
    ("other_bound", {"min_query_count": 60}, "ERROR", "requested_server_ttft_latency: got 5"),
    ("no_first_token", {}, "ERROR", "before it's first token"),
]


@pytest.mark.parametrize(
    ("case", "fields", "state", "reason"), ENDINGS, ids=[str(n) for n in range(len(ENDINGS))]
)
def test_each_ending_of_token_mode(
    spec: RunSpec, tmp_path: Path, case: str, fields: dict[str, Any], state: str, reason: str
) -> None:
    result = supervise(server(spec, **fields), tmp_path / "run", child=child(case))
    assert result.state == state, result.reasons
    for part in reason.split("|"):
        assert part in "; ".join(result.reasons)
    assert result.tokens is None
    assert loadgen.load_run(tmp_path / "run") == result


FORGERIES: list[tuple[str, str, Callable[[Decimal], object], str]] = [
    ("Offline", "result_tokens_per_second", lambda v: v * 2, "tokens in 36 answers"),
    ("Offline", "result_tokens_per_second", lambda v: v / 2, "tokens in 36 answers"),
    ("Server", "result_completed_tokens_per_second", lambda v: v * 3, "tokens in 4"),
    ("SingleStream", "result_completed_tokens_per_second", lambda v: v * 3, "tokens_per_second"),
    (
        "SingleStream",
        "result_token_throughput_with_loadgen_overhead",
        lambda v: v * 3,
        "tokens in",
    ),
    ("Server", "result_first_token_99.00_percentile_latency_ns", lambda v: 1, "not in order"),
    ("Server", "result_first_token_max_latency_ns", lambda v: HOUR_NS, "above those of whole"),
    ("SingleStream", "result_time_to_output_token_max", lambda v: 1, "not in order"),
    ("SingleStream", "result_time_to_output_token_mean", lambda v: int(v) // 2, "the logs say"),
    ("Server", "requested_server_tpot_latency", lambda v: 1, "requested_server_tpot_latency"),
]


@pytest.mark.parametrize(
    ("scenario", "key", "change", "reason"), FORGERIES, ids=range(len(FORGERIES))
)
def test_a_forged_token_figure_does_not_fit_the_others(
    originals: dict[str, Path],
    tmp_path: Path,
    scenario: str,
    key: str,
    change: Callable[[Decimal], object],
    reason: str,
) -> None:
    out = Path(shutil.copytree(originals[scenario], tmp_path / "run"))
    path = out / DETAIL
    found = re.search(rf'"{re.escape(key)}", "value": ([^,]+),', path.read_text())
    assert found is not None
    told = found[0].replace(found[1], str(change(Decimal(found[1]))))
    path.write_text(path.read_text().replace(found[0], told))
    result = json.loads((out / "result.json").read_text())
    result["files"][DETAIL] = sha256_bytes(path.read_bytes())
    (out / "result.json").write_text(json.dumps(result))
    with pytest.raises(EvidenceError, match=reason):
        loadgen.load_run(out)
