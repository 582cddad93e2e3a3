"""MultiStream and Server through the real LoadGen: settings, verdicts, reasons, figures."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering import loadgen
from metering.__main__ import main
from metering.loadgen import EvidenceError, RunRefused, RunSpec, SpecError
from metering.loadgen.calibrate import MARGIN, matched, probe_spec, server_peak, sized
from metering.loadgen.early_stopping import holds, least_queries, most_over
from metering.loadgen.files import sha256_bytes
from metering.loadgen.settings import generated_queries
from metering.loadgen.supervisor import supervise
from tests.metering.measure.conftest import ONE_CORE

MakeSpec = Callable[..., RunSpec]
HOSTILE = Path(__file__).with_name("hostile_child.py")
DETAIL = "mlperf_log_detail.txt"
SECOND_NS = 10**9


def hostile(case: str) -> tuple[str, ...]:
    return (sys.executable, "-P", str(HOSTILE), case)


def multi(**fields: Any) -> dict[str, Any]:
    """700 queries of eight: 662 are the fewest that MultiStream can be VALID with."""
    return {
        "sut": {"stack": "null", "batch": 16},
        "scenario": "MultiStream",
        "warmup_ms": 0,
        "target_qps": 80_000.0,
        "min_query_count": 700,
        "max_duration_ms": 20_000,
        **fields,
    }


def server(**fields: Any) -> dict[str, Any]:
    """700 queries at 1,000 a second, and a bound that a busy machine keeps."""
    return {
        "sut": {"stack": "null", "batch": 16},
        "scenario": "Server",
        "warmup_ms": 0,
        "target_qps": 1000.0,
        "min_query_count": 700,
        "target_latency_ns": 5 * SECOND_NS,
        "max_async_queries": 5000,
        "max_duration_ms": 20_000,
        **fields,
    }


def test_a_multi_stream_run(make_spec: MakeSpec, tmp_path: Path) -> None:
    result = loadgen.run(make_spec(**multi()), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    assert result.sample_count is not None
    assert result.sample_count >= 8 * 700
    latency = result.latency
    assert latency is not None
    assert latency.early_stopping_p90_ns is None
    assert latency.early_stopping_p99_ns is not None
    assert latency.p90_ns <= latency.early_stopping_p99_ns <= latency.max_ns
    assert result.log_metric() == -math.log(latency.early_stopping_p99_ns)
    # LoadGen has no rate for it; ours is eight samples in the mean latency of a query.
    assert result.samples_per_second is not None
    assert float(result.samples_per_second) == pytest.approx(8e9 / latency.mean_ns, rel=1e-5)
    assert result.effective["effective_samples_per_query"] == "8"
    assert loadgen.load_run(tmp_path / "run") == result
    text = json.dumps(result.to_dict())
    assert loadgen.RunResult.from_dict(json.loads(text)) == result


def test_a_server_run(make_spec: MakeSpec, tmp_path: Path) -> None:
    result = loadgen.run(make_spec(**server(sampled_outputs=30)), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    assert result.samples_per_second is not None
    assert result.log_metric() == math.log(result.samples_per_second)
    detail = (tmp_path / "run" / DETAIL).read_text()
    assert f'"result_completed_samples_per_sec", "value": {result.samples_per_second},' in detail
    assert result.effective["effective_max_async_queries"] == "5000"
    assert result.effective["effective_max_duration_ms"] == "20000"
    assert result.effective["requested_server_num_issue_query_threads"] == "0"
    assert loadgen.load_run(tmp_path / "run") == result


# What a run of each scenario that LoadGen ends by itself is called, and why, in our words.
ENDINGS: list[tuple[str, dict[str, Any], str, str]] = [
    # Gotcha of the table of real runs: 662 queries are needed, and too few were made up.
    ("honest", multi(min_query_count=100), "INVALID", "early stopping at 0.99 wants at least 662"),
    (
        "honest",
        multi(target_qps=800.0, min_duration_ms=400, min_query_count=1),
        "ERROR",
        "Ran out of generated queries",
    ),
    # Gotcha 17: the time limit ends a run that still answers.
    ("five_milliseconds", multi(max_duration_ms=200), "INVALID", "max_duration_ms passed"),
    (
        "honest",
        server(target_qps=100.0, max_duration_ms=200),
        "INVALID",
        "max_duration_ms passed before enough was asked",
    ),
    # Gotcha 17: an overloaded server ends early with a limit on what is under way.
    (
        "five_milliseconds",
        server(sut={"stack": "null", "batch": 1}, max_async_queries=20, min_query_count=500),
        "INVALID",
        "the system does not keep up with target_qps",
    ),
    (
        "five_milliseconds",
        server(
            sut={"stack": "null", "batch": 1}, target_latency_ns=20_000_000, min_query_count=300
        ),
        "INVALID",
        "queries over 20000000 ns|ns, wanted at most 20000000 ns",
    ),
    # The table of real runs: 288 queries at p99, and no reason said.
    ("honest", server(min_query_count=288), "INVALID", "288 queries, early stopping at 0.99 wants"),
    # Gotcha 17: neither limit rescues a run whose system hangs.
    ("never", server(max_duration_ms=100, stall_limit_s=0.8), "HUNG", "no progress"),
    ("never", multi(max_duration_ms=100, stall_limit_s=0.8), "HUNG", "no progress"),
    ("other_bound", server(), "ERROR", "effective_target_latency_ns: got 1000000000000"),
    ("raises", server(), "ERROR", "ValueError: model exploded"),
    ("raise_in_issue_query", server(), "ERROR", "issue_query: AttributeError"),
    ("complete_twice_behind_the_ledger", server(), "ERROR", "complete a sample twice"),
    ("segfault", server(), "CRASHED", "SIGSEGV"),
    ("killed", multi(), "CRASHED", "SIGKILL"),
    ("too_much_memory", server(memory_limit_bytes=2**32), "ERROR", "MemoryError"),
]


@pytest.mark.parametrize(
    ("case", "fields", "state", "reason"),
    ENDINGS,
    ids=[f"{case}-{fields['scenario']}-{n}" for n, (case, fields, _, _) in enumerate(ENDINGS)],
)
def test_each_scenario_has_its_endings(
    make_spec: MakeSpec, tmp_path: Path, case: str, fields: dict[str, Any], state: str, reason: str
) -> None:
    result = supervise(make_spec(**fields), tmp_path / "run", child=hostile(case))
    assert result.state == state, result.reasons
    for part in reason.split("|"):
        assert part in "; ".join(result.reasons)
    assert result.samples_per_second is None
    assert loadgen.load_run(tmp_path / "run") == result


def test_waiting_queries_are_handed_over_together(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Five milliseconds a call keep up with 1,000 queries a second only in batches."""
    spec = make_spec(**server(sut={"stack": "null", "batch": 64}))
    result = supervise(spec, tmp_path / "run", child=hostile("five_milliseconds"))
    assert result.state == "VALID", result.reasons
    assert result.samples_per_second is not None
    assert result.samples_per_second > 250


def test_multi_stream_asks_some_samples_twice_in_accuracy_mode(
    make_spec: MakeSpec, inputs: dict[str, Any], tmp_path: Path
) -> None:
    """inference#268: more records than samples; each sample's first record counts."""
    from metering.loadgen.library import write_library
    from metering.loadgen.verdict import ACCURACY, accuracy_outputs, logged_outputs

    write_library(tmp_path / "few.npz", inputs["library"][:21])
    spec = make_spec(
        **multi(sut={"stack": "onnxruntime", "batch": 8}, samples=str(tmp_path / "few.npz")),
        mode="accuracy",
    )
    result = loadgen.run(spec, tmp_path / "run")
    assert result.state == "VALID", result.reasons
    log = (tmp_path / "run" / ACCURACY).read_bytes()
    assert len(logged_outputs(log)[0]) == 24
    assert len(accuracy_outputs(log)) == 21


@pytest.fixture(scope="module")
def originals(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for fields in (multi(), server()):
        values = {**fields, "sut": loadgen.SutSpec(**fields["sut"])}
        spec = RunSpec(
            run_id="run",
            mode="performance",
            model=str(inputs["model"]),
            samples=str(inputs["samples"]),
            min_duration_ms=1,
            cores=ONE_CORE,
            **values,
        )
        out = tmp_path_factory.mktemp(spec.scenario) / "run"
        assert loadgen.run(spec, out).state == "VALID"
        made[spec.scenario] = out
    return made


def forge(out: Path, key: str, change: Callable[[Decimal], object]) -> None:
    """Change one figure of the log and make its digest fit."""
    path = out / DETAIL
    found = re.search(rf'"{re.escape(key)}", "value": ([^,]+),', path.read_text())
    assert found is not None, key
    told = found[0].replace(found[1], str(change(Decimal(found[1]))))
    path.write_text(path.read_text().replace(found[0], told))
    result = json.loads((out / "result.json").read_text())
    result["files"][DETAIL] = sha256_bytes(path.read_bytes())
    (out / "result.json").write_text(json.dumps(result))


FORGERIES: list[tuple[str, str, Callable[[Decimal], object], str]] = [
    ("MultiStream", "early_stopping_latency_ms", lambda v: int(v) // 3, "does not fit"),
    ("MultiStream", "early_stopping_latency_ms", lambda v: int(v) * 9, "does not fit"),
    ("MultiStream", "result_query_count", lambda v: 600, "too few for an early-stopping"),
    ("MultiStream", "result_mean_query_latency_ns", lambda v: int(v) // 2, "the logs say"),
    ("MultiStream", "result_90.00_percentile_per_query_latency_ns", lambda v: 1, "not in order"),
    ("MultiStream", "effective_samples_per_query", lambda v: 4, "effective_samples_per_query"),
    ("Server", "result_completed_samples_per_sec", lambda v: v * 2, "does not follow"),
    ("Server", "result_completed_samples_per_sec", lambda v: v / 50, "does not follow"),
    ("Server", "result_overlatency_query_count", lambda v: 9, "over the bound"),
    ("Server", "result_overlatency_query_count", lambda v: 1, "do not fit the longest"),
    ("Server", "result_max_latency_ns", lambda v: 6 * SECOND_NS, "do not fit the longest"),
    ("Server", "requested_server_num_issue_query_threads", lambda v: 4, "wanted 0"),
    ("Server", "effective_max_async_queries", lambda v: 0, "effective_max_async_queries"),
]


@pytest.mark.parametrize(
    ("scenario", "key", "change", "reason"), FORGERIES, ids=range(len(FORGERIES))
)
def test_a_forged_figure_does_not_fit_the_others(
    originals: dict[str, Path],
    tmp_path: Path,
    scenario: str,
    key: str,
    change: Callable[[Decimal], object],
    reason: str,
) -> None:
    out = Path(shutil.copytree(originals[scenario], tmp_path / "run"))
    assert loadgen.load_run(out).state == "VALID"
    forge(out, key, change)
    with pytest.raises(EvidenceError, match=reason):
        loadgen.load_run(out)


def test_a_run_cannot_be_called_invalid_afterwards(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    """A slow run that is dropped by another name after looking at it."""
    out = Path(shutil.copytree(originals["Server"], tmp_path / "run"))
    path = out / "result.json"
    cleared = {"state": "INVALID", "samples_per_second": None, "latency": None}
    path.write_text(json.dumps({**json.loads(path.read_text()), **cleared}))
    with pytest.raises(EvidenceError, match="called INVALID, but its logs say VALID"):
        loadgen.load_run(out)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (server(target_latency_ns=0), "target_latency_ns: got 0, wanted a whole number from 1"),
        (server(max_async_queries=0), "max_async_queries"),
        (server(max_duration_ms=0), "max_duration_ms"),
        (server(max_duration_ms=1), "max_duration_ms"),
        (server(ttft_latency_ns=1), "ttft_latency_ns: got 1, wanted 0: no Server run of the task"),
        (multi(max_duration_ms=0), "max_duration_ms"),
        (multi(max_async_queries=1), "max_async_queries"),
        (multi(task="generation", max_new_tokens=4), "scenario: got 'MultiStream'"),
        ({"max_duration_ms": 5}, "max_duration_ms: got 5, wanted 0: Offline issues one query"),
        ({"target_latency_ns": 5}, "target_latency_ns"),
    ],
)
def test_bounds_and_limits_are_where_the_scenario_has_them(
    make_spec: MakeSpec, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(named)):
        make_spec(**fields)


def test_early_stopping_is_the_rules_table() -> None:
    """Total queries needed for t over the bound, from the rules' appendix."""
    table = {
        0.90: (44, 64, 81, 127, 197, 1246),
        0.95: (90, 130, 165, 259, 398, 2504),
        0.97: (152, 219, 277, 433, 667, 4182),
        0.99: (459, 662, 838, 1307, 2010, 12571),
    }
    for percentile, totals in table.items():
        for over, queries in zip((0, 1, 2, 5, 10, 100), totals, strict=True):
            assert least_queries(over, percentile) == queries
            assert holds(queries, over, percentile)
            assert not holds(queries - 1, over, percentile)
            assert most_over(queries, percentile) == over
    assert most_over(43, 0.90) == -1


def test_sizing_sets_every_limit(make_spec: MakeSpec) -> None:
    stream = sized(make_spec(**multi()), 4000.0, 2.0)
    assert stream.min_query_count == 700
    assert generated_queries(stream) == 2 * MARGIN * 4000 * 2 // 8
    assert stream.max_duration_ms >= 4 * 2000
    asked = sized(make_spec(**server(target_latency_ns=50_000_000)), 200.0, 2.0)
    assert asked.target_qps == 200.0
    # 200 a second for 50 ms are ten under way; eight times that, and two batches of 16, may wait.
    assert asked.max_async_queries == 80 + 32
    assert asked.max_duration_ms > 1000 * 700 / 200
    # Two queries a second need minutes for 700, which the wall limit must allow.
    slow = sized(make_spec(**server()), 2.0, 2.0)
    assert slow.wall_limit_s * 1000 > slow.max_duration_ms >= 4 * 350_000
    answers = make_spec(
        **server(target_latency_ns=0, ttft_latency_ns=10**8, tpot_latency_ns=10**7),
        task="generation",
        max_new_tokens=10,
    )
    assert sized(answers, 10.0, 1.0).max_async_queries == 8 * 2 + 32
    for spec in (stream, asked):
        probe = probe_spec(spec, 64)
        assert (probe.scenario, probe.max_duration_ms, probe.target_latency_ns) == ("Offline", 0, 0)


def test_two_server_arms_are_not_matched_by_one_rate(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(**server())
    with pytest.raises(loadgen.CalibrationError, match="calibrate each"):
        matched(spec, spec, tmp_path / "probe", run_seconds=1.0)


def test_queries_that_would_fill_the_memory_are_refused(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """Gotcha 14: 200 ns expected and 2 s asked took 8.8 GB and 80 s before the first query."""
    spec = make_spec(scenario="SingleStream", target_qps=5e6, min_duration_ms=2000)
    with pytest.raises(RunRefused, match="LoadGen would make up 20000000 queries"):
        loadgen.run(spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_calibration_finds_a_rate_whose_bound_holds(make_spec: MakeSpec, tmp_path: Path) -> None:
    fields = server(sut={"stack": "onnxruntime", "batch": 8}, target_latency_ns=200_000_000)
    found = loadgen.calibrate(make_spec(**fields), tmp_path / "probe", run_seconds=0.5)
    assert found.spec.target_qps == float(found.samples_per_second)
    assert not (tmp_path / "probe").exists()
    # Half of what held leaves a busy machine its room.
    spec = sized(found.spec, found.spec.target_qps / 2, 0.5)
    result = loadgen.run(spec, tmp_path / "run")
    assert result.state == "VALID", result.reasons
    hurried = make_spec(**{**fields, "target_latency_ns": 1000})
    with pytest.raises(loadgen.CalibrationError, match="do not hold even at 625 queries/s: result"):
        server_peak(hurried, 20_000.0, tmp_path / "probe")


def test_a_run_is_sized_by_the_command_line(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "spec.json", tmp_path / "run"
    path.write_text(json.dumps(make_spec({"batch": 4}).to_dict()))
    assert main(["loadgen", str(path), "--out", str(out), "--calibrate", "0.3"]) == 0
    assert re.match(r"VALID run [0-9.e+]+ samples/s, p99 [0-9.]+ ms", capsys.readouterr().out)
    assert [item.name for item in tmp_path.iterdir()] == ["spec.json", "run"]
    spec = loadgen.load_spec(out)
    assert spec.min_duration_ms == 300 // MARGIN
    assert spec.target_qps > 1
    # Nothing that is there is probed over, and a probe that is not VALID sizes nothing.
    assert main(["loadgen", str(path), "--out", str(out), "--calibrate", "0.3"]) == 2
    assert "is there already" in capsys.readouterr().err
    path.write_text(json.dumps(make_spec(wall_limit_s=0.01).to_dict()))
    assert main(["loadgen", str(path), "--out", str(tmp_path / "b"), "--calibrate", "0.1"]) == 1
    assert "not measurable: probe run-probe: HUNG: no end within" in capsys.readouterr().err
