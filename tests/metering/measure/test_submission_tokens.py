"""A model that generates, in a submission folder: real token-mode runs, and what is refused.

The runs are short and of a small decoder, so the rules are those of the round with two numbers
replaced: the length, and a benchmark of as many prompts as there are here.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from metering import loadgen
from metering.loadgen import RunSpec
from metering.loadgen.library import write_library
from metering.loadgen.supervisor import supervise
from metering.submission import Request, build, read, verify
from metering.submission.documents import not_in_user_conf, user_conf
from metering.submission.request import Sources
from metering.submission.rules import V6_1, Benchmark, Rules
from metering.submission.snapshot import Snapshot
from metering.submission.system import registered
from tests.metering.measure.conftest import ONE_CORE
from tests.metering.measure.tiny_decoder import VOCABULARY
from tests.metering.submission_cases import Files, edit, forge, log_value, system_record

CHILD = (sys.executable, str(Path(__file__).with_name("task_child.py")), "generates")
PROMPTS, LIMIT, MS = 12, 3, 10**6
SECOND = 1000 * MS
ROUND = V6_1.benchmarks["llama3.1-8b"]
TINY = dataclasses.replace(
    ROUND, name="tiny", dataset=PROMPTS, performance_samples=PROMPTS, ttft_ns=60 * SECOND,
    tpot_ns=60 * SECOND,
)  # fmt: skip
RULES = dataclasses.replace(V6_1, min_duration_ms=1, benchmarks=MappingProxyType({"tiny": TINY}))
TOLD = (
    "{'rouge1': 38.7792, 'rouge2': 15.9075, 'rougeL': 24.4957, 'rougeLsum': 35.793, "
    "'gen_len': 8167644, 'gen_num': 13368}"
)
SOURCE = "open/Lumen/src/tiny/README.md"
BASE = "open/Lumen/results/search-node-r3/tiny"


def rules(**fields: Any) -> Rules:
    """The same rules with a benchmark that differs in some fields."""
    changed: Benchmark = dataclasses.replace(TINY, **fields)
    return dataclasses.replace(RULES, benchmarks=MappingProxyType({"tiny": changed}))


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Any]) -> dict[str, RunSpec]:
    path = tmp_path_factory.mktemp("prompts") / "prompts.npz"
    write_library(path, [np.array([token * 7 % VOCABULARY, token]) for token in range(PROMPTS)])
    offline = RunSpec(
        run_id="run", scenario="Offline", mode="performance",
        sut=loadgen.SutSpec("onnxruntime", batch=8), model=str(inputs["model"]),
        samples=str(path), min_duration_ms=1, target_qps=1.0,
        min_query_count=36, warmup_ms=0, cores=ONE_CORE, task="generation", max_new_tokens=LIMIT,
    )  # fmt: skip
    server = dataclasses.replace(
        offline, scenario="Server", target_qps=400.0, min_query_count=480,
        ttft_latency_ns=50 * SECOND, tpot_latency_ns=50 * SECOND, max_async_queries=5000,
        max_duration_ms=60_000,
    )  # fmt: skip
    stream = dataclasses.replace(
        offline, scenario="SingleStream", target_qps=1000.0, min_query_count=80
    )
    return {spec.scenario: spec for spec in (offline, server, stream)}


@pytest.fixture(scope="module")
def sources(
    specs: dict[str, RunSpec], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Sources, ...]:
    made = []
    for scenario, spec in specs.items():
        folder = tmp_path_factory.mktemp(scenario)
        for mode in ("performance", "accuracy"):
            asked = dataclasses.replace(spec, mode=mode, run_id=mode)
            result = supervise(asked, folder / mode, child=CHILD)
            assert result.state == "VALID", result.reasons
        made.append(Sources(folder / "performance", folder / "accuracy", report=TOLD))
    return tuple(made)


def request(sources: tuple[Sources, ...], asked: Rules = RULES) -> Request:
    return Request(
        submitter="Lumen", system=registered(system_record()), model="tiny", benchmark="tiny",
        status="available", system_type="datacenter", details={},
        measurements={"input_data_types": "int64 token ids", "retraining": "no",
                      "weight_transformations": "none"},
        results=sources, rules=asked,
    )  # fmt: skip


@pytest.fixture(scope="module")
def files(sources: tuple[Sources, ...], tmp_path_factory: pytest.TempPathFactory) -> Files:
    out = tmp_path_factory.mktemp("built") / "folder"
    report = build(request(sources), out)
    assert report.holds
    snapshot = read(out)
    assert snapshot.faults == ()
    return dict(snapshot.files)


def test_a_folder_tells_tokens_and_their_times(files: Files, sources: tuple[Sources, ...]) -> None:
    report = verify(Snapshot(files, ()), RULES)
    assert report.holds, report.findings
    found = {result.scenario: result for result in report.results}
    for source in sources:
        run = loadgen.load_run(source.performance)
        assert run.tokens is not None
        shown = found[run.scenario]
        assert shown.accuracy == "ROUGE1: 38.7792"
        if run.scenario == "SingleStream":
            assert run.latency is not None
            assert (shown.value, shown.unit) == (str(run.latency.p90_ns), "ns")
        else:
            assert (shown.value, shown.unit) == (str(run.tokens.tokens_per_second), "tokens/s")
        for text, times in (
            (shown.ttft_p99_ns, run.tokens.ttft),
            (shown.tpot_p99_ns, run.tokens.tpot),
        ):
            assert text == ("" if times is None else str(times.p99_ns))
    readme = files[f"{BASE}/Server/README.md"].decode()
    assert f"Answers of at most {LIMIT} tokens" in readme
    assert "time to first token 50000000000 ns" in readme


def test_loadgen_reads_token_mode_back_from_user_conf(
    specs: dict[str, RunSpec], tmp_path: Path
) -> None:
    conf = tmp_path / "user.conf"
    conf.write_bytes(user_conf(specs["Server"]))
    program = (
        "import sys, mlperf_loadgen as lg; s = lg.TestSettings(); "
        "code = s.FromConfig(sys.argv[1], 'tiny', 'Server', 1); "
        "print(code, s.use_token_latencies, s.ttft_latency, s.tpot_latency, s.server_target_qps)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(conf)], capture_output=True, text=True, timeout=60,
        cwd=tmp_path, check=True,
    )  # fmt: skip
    bound = 50 * SECOND
    assert done.stdout.split() == ["0", "True", str(bound), str(bound), "400.0"]


def detail(scenario: str) -> str:
    return f"{BASE}/{scenario}/performance/run_1/mlperf_log_detail.txt"


def corrupt(scenario: str, key: str, value: str) -> Callable[[Files], Files]:
    return lambda files: log_value(files, detail(scenario), key, value)


TTFT = "result_first_token_99.00_percentile_latency_ns"
TPOT = "result_time_per_output_token_99.00_percentile_ns"
CORRUPTED: list[tuple[str, Callable[[Files], Files], str]] = [
    ("token mode taken out", corrupt("Offline", "requested_use_token_latencies", "false"),
     "requested_use_token_latencies: got False, wanted True: tiny generates tokens"),
    ("more tokens", corrupt("Offline", "result_tokens_per_second", "99999999"), "tokens in 36"),
    ("more tokens while serving", corrupt("Server", "result_completed_tokens_per_second", "9e9"),
     "tokens in 480 answers"),
    ("a first token too late", corrupt("Server", TTFT, str(60 * SECOND)), "p99 TTFT"),
    ("tokens too slow", corrupt("Server", TPOT, str(60 * SECOND)), "p99 TPOT"),
    ("no time to first token", corrupt("Server", TTFT, "null"), "p99 TTFT"),
    ("a looser bound", corrupt("Server", "requested_server_ttft_latency", str(61 * SECOND)),
     "requested_server_ttft_latency: got 61000000000, wanted at most 60000000000"),
    ("a first token before its time", corrupt("SingleStream", TTFT, "1"), "not in order"),
    ("a summary that tells another time",
     lambda f: edit(f, f"{BASE}/Server/performance/run_1/mlperf_log_summary.txt",
                    r"(99\.00 percentile first token latency \(ns\) +: )\d+", r"\g<1>7"),
     "99.00 percentile first token latency (ns): got 7"),
    ("an accuracy line without its length",
     lambda f: edit(f, f"{BASE}/Offline/accuracy/accuracy.txt", r", 'gen_len': \d+", ""),
     "0 lines report ROUGE1"),
    ("another limit for the outputs",
     lambda f: edit(f, SOURCE, r'"max_new_tokens": 3', '"max_new_tokens": 2'),
     "max_new_tokens of the accuracy run is 2, of the performance run 3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"), [row[1:] for row in CORRUPTED], ids=[row[0] for row in CORRUPTED]
)
def test_a_corrupted_copy_is_refused_with_its_reason(
    files: Files, change: Callable[[Files], Files], reason: str
) -> None:
    corrupted = change(files)
    for scenario in ("Offline", "Server", "SingleStream"):
        corrupted = forge(corrupted, f"{BASE}/{scenario}")
    found = [str(finding) for finding in verify(Snapshot(corrupted, ()), RULES).findings]
    assert any(reason in text for text in found), found


def test_a_benchmark_without_tokens_or_without_server_refuses_them(files: Files) -> None:
    for changed, reason in (
        (rules(generates=False), "got True, wanted False: tiny has no tokens"),
        (rules(ttft_ns=0), "tiny has no Server scenario"),
        (rules(tpot_ns=1), "requested_server_tpot_latency"),
    ):
        found = [str(finding) for finding in verify(Snapshot(files, ()), changed).findings]
        assert any(reason in text for text in found), found


def test_the_visible_records_of_a_cut_log_are_read_in_token_mode(files: Files) -> None:
    path = f"{BASE}/Server/accuracy/mlperf_log_accuracy.json"
    whole = files[path]
    record = re.search(rb"\{ [^}]* \}", whole)
    assert record is not None
    assert b"token_data" in record[0]
    # As the round's tool cuts a long log; the same record at both ends names a sample twice.
    end = b",\n" + record[0] + b"\n]\n"
    padding = b" " * 4096
    cut = (whole.split(b"}")[0] + b"}" + padding)[:4096] + b"\n\n...\n\n" + (padding + end)[-4096:]
    found = verify(Snapshot(forge({**files, path: cut}, f"{BASE}/Server"), ()), RULES).findings
    assert "name a sample twice" in "; ".join(map(str, found))


def test_a_bound_that_user_conf_cannot_say_is_refused(specs: dict[str, RunSpec]) -> None:
    assert not_in_user_conf(specs["Server"]) == []
    odd = dataclasses.replace(specs["Server"], ttft_latency_ns=50 * SECOND + 1)
    assert "ttft_latency_ns: 50000000001 ns is not whole milli" in not_in_user_conf(odd)[0]
