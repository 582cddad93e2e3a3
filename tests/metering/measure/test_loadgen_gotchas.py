"""What is known to go wrong with LoadGen: every row has a test that names it, here or elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering import loadgen
from metering.loadgen import EvidenceError, RunResult, RunSpec, SpecError, processes
from metering.loadgen.early_stopping import holds, least_queries, most_over
from metering.loadgen.files import sha256_bytes
from metering.loadgen.harness import Harness
from metering.loadgen.supervisor import supervise
from tests.metering.measure.conftest import ONE_CORE

MakeSpec = Callable[..., RunSpec]
HERE = Path(__file__).parent
DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
ACCURACY = "mlperf_log_accuracy.json"

# Symptom -> the test, and where it has one, the row of its table.
KNOWN: dict[str, tuple[str, str, str]] = {
    "exception in issue_query: SIGSEGV later": ("endings", "each_ending", "raise_in_issue_query"),
    "exception in QSL load: SIGSEGV later": ("endings", "each_ending", "raise_in_load_samples"),
    "a SUT that never completes hangs": ("endings", "each_ending", "never"),
    "SIGTERM with a handler has no effect": ("endings", "each_ending", "never_and_deaf"),
    "after a kill the logs are no logs": ("gotchas", "the_remains_of_a_killed_run", ""),
    "missing outdir: silent return": ("endings", "each_ending", "missing_outdir"),
    "two tests in one process abort": ("gotchas", "two_runs_at_once", ""),
    "FromConfig keeps state (inference#2287)": ("endings", "what_fails_silently", ""),
    "config typos are dropped (inference#493)": ("spec", "a_misspelt_field", ""),
    "fractional latency is cut (inference#471)": ("gotchas", "a_fraction_of_a_nanosecond", ""),
    "settings in user.conf ignored (inference#1630)": ("endings", "each_ending", "other_settings"),
    "equal issue raises the count (inference#2028)": ("gotchas", "equal_issue", ""),
    "audit.config of the folder overrides": ("endings", "a_stray_audit_config", ""),
    "freed response buffers (inference#1337)": ("stacks", "the_accuracy_log_carries", ""),
    "freed buffers of texts": ("tasks", "recognised_texts_are_in", ""),
    "freed buffers of tokens": ("tasks", "generated_tokens_are_in", ""),
    "double completion is VALID (inference#460)": ("endings", "loadgen_calls_a_double", ""),
    "more completions than asked (inference#227)": ("endings", "each_ending", "complete_twice"),
    "a bogus response id is a SIGSEGV": ("endings", "each_ending", "complete_unknown"),
    "issue query threads hang": ("scenarios", "a_server_run", ""),
    "no first token: SIGSEGV or errors": ("tokens", "each_ending_of_token", "no_first_token"),
    "one token: negative time per token": ("tokens", "each_ending_of_token", "one_token"),
    "INVALID of a language model with no reason": ("tokens", "each_ending_of_token", "TTFT"),
    "token throughput of 4.5e-06": ("gotchas", "the_odd_token_throughput", ""),
    "token targets ignored (inference PR#1874)": ("tokens", "each_ending_of_token", "other_bound"),
    "TTFT or target latency (inference#1593)": ("scenarios", "bounds_and_limits_are", "ttft"),
    "1e14 tokens a second (inference PR#1523)": ("tokens", "a_forged_token_figure", "tokens in"),
    "queries fill the memory (automations#283)": ("scenarios", "queries_that_would_fill", ""),
    "expected latency too high: too few queries": ("scenarios", "each_scenario", "Ran out"),
    "the trace fills the disk": ("endings", "each_ending", "mlperf_log_trace"),
    "an overloaded server queues for ever": ("scenarios", "each_scenario", "does not keep up"),
    "max_duration does not rescue a hung SUT": ("scenarios", "each_scenario", '"never"'),
    "early stopping asks for ever (inference#1095)": ("scenarios", "each_scenario", "max_duration"),
    "early stopping above 1,024 (inference#1083)": ("gotchas", "early_stopping_goes_on", ""),
    "percentiles are order statistics": ("scenarios", "a_forged_figure", "does not fit"),
    "the rate counts all but the last": ("scenarios", "a_forged_figure", "does not follow"),
    "callbacks hold the interpreter": ("gotchas", "asking_is_only_queueing", ""),
    "empty summary (inference#564)": ("gotchas", "a_log_that_is_not_whole", ""),
    "too many accuracy records (inference#268)": ("gotchas", "each_sample_is_answered_once", ""),
    "part of the data is VALID (mobile_app_open#1127)": ("gotchas", "each_sample_is_answered", ""),
    "a hang in Offline accuracy (inference#267)": ("stacks", "the_accuracy_log_carries", ""),
    "a request that times out (inference#2389)": ("tasks", "what_is_no_answer", "stalls"),
    "no result API (inference#1189)": ("verify", "the_rate_keeps_the_digits", ""),
    "a package that hides the module (cm4mlops#493)": ("endings", "what_fails_silently", ""),
    "nobody finds the rate (cm4mlops#398)": ("scenarios", "calibration_finds_a_rate", ""),
}


@pytest.mark.parametrize("symptom", KNOWN)
def test_every_known_symptom_has_its_test(symptom: str) -> None:
    file, name, row = KNOWN[symptom]
    path = HERE / ("test_stacks.py" if file == "stacks" else f"test_loadgen_{file}.py")
    text = path.read_text()
    assert re.search(rf"^def test_{name}", text, re.MULTILINE), f"{path.name}: no test_{name}"
    assert row in text, f"{path.name}: no row {row}"


def hostile(case: str) -> tuple[str, ...]:
    return (sys.executable, "-P", str(HERE / "hostile_child.py"), case)


def null(**fields: Any) -> dict[str, Any]:
    defaults = {"sut": {"stack": "null", "batch": 16}, "warmup_ms": 0, "min_query_count": 4000}
    return {**defaults, **fields}


def test_the_remains_of_a_killed_run_are_no_result(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Gotcha 2: a summary of 0 bytes, a detail log without a result, an accuracy log of "["."""
    out = tmp_path / "run"

    def kill(beat: loadgen.Heartbeat) -> None:
        for child in processes.children(os.getpid()) if beat.issued else ():
            if str(out).encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                os.killpg(child, signal.SIGKILL)

    spec = make_spec(**null(mode="accuracy"))
    result = supervise(spec, out, child=hostile("never"), on_heartbeat=kill)
    assert result.state == "CRASHED"
    assert (out / SUMMARY).read_bytes() == b""
    assert b"result_validity" not in (out / DETAIL).read_bytes()
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads((out / ACCURACY).read_bytes())
    told = json.loads((out / "result.json").read_text())
    (out / "result.json").write_text(json.dumps({**told, "state": "VALID", "reasons": []}))
    with pytest.raises(EvidenceError, match="called VALID, but its logs say otherwise"):
        loadgen.load_run(out)


def test_two_runs_at_once_are_two_processes(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Gotcha 4: two tests in two threads of one process abort it."""
    results: list[RunResult] = []

    def one(name: str) -> None:
        results.append(loadgen.run(make_spec(**null(run_id=name)), tmp_path / name))

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.state for result in results] == ["VALID", "VALID"]
    pids = {
        json.loads((tmp_path / name / DETAIL).read_text().splitlines()[0][8:])["metadata"]["pid"]
        for name in ("a", "b")
    }
    assert len(pids) == 2


def test_a_fraction_of_a_nanosecond_is_refused(make_spec: MakeSpec) -> None:
    """inference#471: 7.5 ms of a bound became 7 ms without a word."""
    limits = {"max_async_queries": 9, "max_duration_ms": 9}
    spec = make_spec(scenario="Server", target_latency_ns=7_500_000, **limits)
    assert spec.target_latency_ns == 7_500_000
    with pytest.raises(SpecError, match=r"target_latency_ns: got 7500000\.5"):
        make_spec(scenario="Server", target_latency_ns=7_500_000.5, **limits)


def test_equal_issue_is_not_taken_for_what_was_asked(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Gotcha 15: it raises the number of queries by itself."""
    fields = null(scenario="SingleStream", min_query_count=70, target_qps=1000.0)
    result = supervise(make_spec(**fields), tmp_path / "run", child=hostile("equal_issue"))
    assert result.state == "ERROR"
    told = "; ".join(result.reasons)
    assert "effective_sample_concatenate_permutation: got True, wanted False" in told
    assert "effective_min_query_count: got 96, wanted 70" in told


def test_the_odd_token_throughput_is_not_used(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Gotcha 13: LoadGen divides by nanoseconds; what it completed a second is the figure."""
    spec = make_spec(
        **null(scenario="SingleStream", min_query_count=100, target_qps=5000.0),
        task="generation",
        max_new_tokens=4,
    )
    result = loadgen.run(spec, tmp_path / "run")
    assert result.tokens is not None, result.reasons
    detail = (tmp_path / "run" / DETAIL).read_text()
    rate = result.tokens.tokens_per_second
    assert f'"result_completed_tokens_per_second", "value": {rate},' in detail
    odd = re.search(r'"result_token_throughput", "value": ([^,]+),', detail)
    assert odd is not None
    assert float(odd[1]) < float(rate) / 1000


def test_early_stopping_goes_on_above_a_thousand() -> None:
    """inference#1083: the count collapsed beyond 1,024 queries over the bound."""
    needed = [least_queries(over, 0.9) for over in (1000, 1024, 1025, 1100)]
    assert needed == sorted(set(needed))
    for over, queries in zip((1000, 1024, 1025, 1100), needed, strict=True):
        assert most_over(queries, 0.9) == over
        # About ten queries for each one over, and the margin of 99 % confidence.
        assert 10 * over < queries < 11 * over + 100
        assert not holds(10 * over, over, 0.9)


def test_the_measuring_process_loads_only_what_it_needs() -> None:
    """What it imports is in its memory and in the time of every run before it starts."""
    code = "import sys, metering.loadgen.child; print(*sys.modules)"
    root = str(Path(loadgen.__file__).resolve().parents[2])
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"scipy", "pandas", "onnx", "onnxruntime", "openvino", "torch", "httpx", "psutil"}
    assert heavy.isdisjoint(told.stdout.split())


def test_asking_is_only_queueing(make_spec: MakeSpec) -> None:
    """Gotcha 19: LoadGen's thread holds the interpreter, so it may only put the query down."""

    def opened(*_: object) -> object:
        raise AssertionError("a callback opened the system")

    def fail(where: str, error: BaseException) -> Any:
        raise AssertionError(where) from error

    for scenario, fields in (
        ("Offline", {}),
        ("SingleStream", {}),
        ("MultiStream", {"max_duration_ms": 9}),
        ("Server", {"max_duration_ms": 9, "max_async_queries": 9, "target_latency_ns": 9}),
    ):
        harness = Harness(make_spec(scenario=scenario, **fields), [], opened, fail, None)
        query = [object()]
        harness.issue_query(query)
        harness.flush_queries()
        waiting = [one for one in (harness._queries, harness._work) if not one.empty()]
        assert len(waiting) == 1
        assert waiting[0].get_nowait() is query


@pytest.fixture(scope="module")
def original(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = RunSpec(
        run_id="run",
        scenario="Offline",
        mode="accuracy",
        sut=loadgen.SutSpec("null", batch=16),
        model=str(inputs["model"]),
        samples=str(inputs["samples"]),
        min_duration_ms=1,
        target_qps=1.0,
        warmup_ms=0,
        cores=ONE_CORE,
    )
    out = tmp_path_factory.mktemp("runs") / "run"
    assert loadgen.run(spec, out).state == "VALID"
    return out


def changed(original: Path, out: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """A copy with one log changed and its digest made to fit."""
    shutil.copytree(original, out)
    (out / name).write_bytes(change((out / name).read_bytes()))
    result = json.loads((out / "result.json").read_text())
    result["files"][name] = sha256_bytes((out / name).read_bytes())
    (out / "result.json").write_text(json.dumps(result))
    return out


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (SUMMARY, lambda data: b"", "summary log: empty"),
        (SUMMARY, lambda data: data[: len(data) // 2], "summary log: cut off"),
        (DETAIL, lambda data: b"", "called VALID, but its logs say otherwise"),
        (ACCURACY, lambda data: b"[", "not a complete list"),
        (ACCURACY, lambda data: data[: len(data) // 2], "not a complete list"),
    ],
    ids=["no-summary", "half-summary", "no-detail", "killed-accuracy", "half-accuracy"],
)
def test_a_log_that_is_not_whole_is_refused(
    original: Path,
    tmp_path: Path,
    name: str,
    change: Callable[[bytes], bytes],
    reason: str,
) -> None:
    with pytest.raises(EvidenceError, match=reason):
        loadgen.load_run(changed(original, tmp_path / "run", name, change))


@pytest.mark.parametrize(
    "change",
    [lambda records: records[:-1], lambda records: [*records, records[0]],
     lambda records: [records[0], *records[:-1]]],
    ids=["one-missing", "one-twice", "one-for-another"],
)  # fmt: skip
def test_each_sample_is_answered_once(
    original: Path, tmp_path: Path, change: Callable[[list[Any]], list[Any]]
) -> None:
    """inference#268 had too many answers; mobile_app_open#1127 had 100 of 24,576."""

    def edit(data: bytes) -> bytes:
        return json.dumps(change(json.loads(data))).encode()

    with pytest.raises(EvidenceError, match="wanted each of 96 samples exactly once"):
        loadgen.load_run(changed(original, tmp_path / "run", ACCURACY, edit))
