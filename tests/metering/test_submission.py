"""The verifier: a folder of real runs holds, each corrupted copy is refused for its own reason."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelgen.machine import Gpu, Machine, fingerprint_of
from metering.loadgen.files import sha256_bytes
from metering.loadgen.verify import load_run, load_spec
from metering.submission import V6_1, Snapshot, build, read, read_request, verify
from metering.submission.documents import user_conf
from metering.submission.official import judge
from metering.submission.system import (
    FIELDS,
    MEANINGFUL,
    describe,
    description_findings,
    registered,
)
from tests.metering.submission_cases import (
    ACCURACY,
    DESCRIPTION,
    DETAIL,
    MAPPING,
    PERFORMANCE,
    RESULT,
    SOURCE,
    SUMMARY,
    Files,
    edit,
    extract_recorded,
    field,
    forge,
    log_value,
    request,
    system_record,
    without,
)
from tests.quick import some

ACCURACY_DETAIL = f"{ACCURACY}/mlperf_log_detail.txt"
ACCURACY_LOG = f"{ACCURACY}/mlperf_log_accuracy.json"
ACCURACY_TXT = f"{ACCURACY}/accuracy.txt"
MEASUREMENTS = f"{RESULT}/measurements.json"
CONF = f"{RESULT}/user.conf"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_recorded(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def folder(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "folder"
    report = build(read_request(request(runs)), out)
    assert report.holds
    return out


@pytest.fixture(scope="module")
def files(folder: Path) -> Files:
    snapshot = read(folder)
    assert snapshot.faults == ()
    return dict(snapshot.files)


def reasons(files: Files) -> list[str]:
    return [str(finding) for finding in verify(Snapshot(files, ()), V6_1).findings]


def test_a_folder_of_real_runs_has_exactly_the_tree_and_the_keys(files: Files) -> None:
    assert sorted(files) == sorted(
        [
            "open/Lumen/model_mapping.json",
            "open/Lumen/src/minilm/README.md",
            "open/Lumen/systems/search-node-r3.json",
            *(f"{RESULT}/{name}" for name in ("measurements.json", "user.conf", "README.md")),
            f"{PERFORMANCE}/mlperf_log_detail.txt",
            f"{PERFORMANCE}/mlperf_log_summary.txt",
            f"{ACCURACY}/accuracy.txt",
            f"{ACCURACY}/mlperf_log_accuracy.json",
            f"{ACCURACY}/mlperf_log_detail.txt",
            f"{ACCURACY}/mlperf_log_summary.txt",
        ]
    )
    assert json.loads(files[MAPPING]) == {"minilm": "3d-unet-99"}
    assert set(json.loads(files[MEASUREMENTS])) == {
        "input_data_types",
        "retraining",
        "starting_weights_filename",
        "weight_data_types",
        "weight_transformations",
    }
    description = json.loads(files[DESCRIPTION])
    assert len(description) == 35
    assert set(description) == set(FIELDS)
    assert len(MEANINGFUL) == 26
    assert all(description[name] for name in MEANINGFUL)
    assert len(files[ACCURACY_LOG]) <= 10 * 1024
    report = verify(Snapshot(files, ()), V6_1)
    assert report.holds
    assert [(r.scenario, r.metric, r.accuracy) for r in report.results] == [
        ("SingleStream", "early_stopping_latency_ss", "DICE: 0.8600")
    ]


def test_the_description_is_the_registry_s_and_owns_to_what_is_not_known(files: Files) -> None:
    description = json.loads(files[DESCRIPTION])
    assert description["system_name"] == "search node, revision 3"
    assert description["host_processor_model_name"] == "Example CPU"
    assert description["accelerators_per_node"] == "0"
    assert description["framework"].startswith("onnxruntime ")
    assert description["other_software_stack"].startswith("mlcommons-loadgen 6.0.17")
    assert description["host_storage_type"] == "N/A"
    assert "host_storage_type" in description["hw_notes"]


def test_accelerators_come_from_the_registry_too() -> None:
    record = system_record()
    machine = Machine.from_dict(record["machine"])
    machine = dataclasses.replace(machine, gpus=(Gpu("Example GPU", 80 * 2**30, "1.0"),) * 2)
    machine = dataclasses.replace(machine, fingerprint=fingerprint_of(machine))
    told = describe(
        registered({**record, "machine": machine.to_dict()}),
        submitter="Lumen",
        status="preview",
        system_type="datacenter",
        framework="onnxruntime 1",
        software="mlcommons-loadgen 6.0.17",
        details={"accelerator_interconnect": "NVLink"},
    )
    assert told["accelerators_per_node"] == "2"
    assert told["accelerator_model_name"] == "Example GPU"
    assert told["accelerator_memory_capacity"] == "80.0 GiB"
    assert told["accelerator_interconnect"] == "NVLink"
    assert told["accelerator_host_interconnect"] == "N/A"
    assert "accelerator_host_interconnect" in told["hw_notes"]
    assert description_findings("x", told, "Lumen") == []


def test_the_logs_are_the_runs_bytes_and_the_hash_is_of_the_whole_log(
    files: Files, runs: Path
) -> None:
    assert files[DETAIL] == (runs / "performance/mlperf_log_detail.txt").read_bytes()
    whole = (runs / "accuracy/mlperf_log_accuracy.json").read_bytes()
    assert f"hash={sha256_bytes(whole)}" in files[ACCURACY_TXT].decode().splitlines()
    assert len(whole) > 10 * 1024 > len(files[ACCURACY_LOG])


def test_the_source_notes_hold_the_specs_of_both_runs(files: Files, runs: Path) -> None:
    text = files[SOURCE].decode()
    for name in ("performance", "accuracy"):
        assert json.dumps(load_spec(runs / name).to_dict(), indent=1, sort_keys=True) in text


def test_loadgen_itself_reads_the_settings_back_from_user_conf(runs: Path, tmp_path: Path) -> None:
    spec = load_spec(runs / "performance")
    conf = tmp_path / "user.conf"
    conf.write_bytes(user_conf(spec))
    program = (
        "import sys, json, mlperf_loadgen as lg; s = lg.TestSettings(); "
        "code = s.FromConfig(sys.argv[1], 'minilm', 'SingleStream', 1); "
        "print(json.dumps([code, s.min_duration_ms, s.min_query_count, "
        "s.single_stream_expected_latency_ns]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(conf)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=True,
    )
    expected = round(1e9 / spec.target_qps)
    assert json.loads(done.stdout) == [0, spec.min_duration_ms, spec.min_query_count, expected]


ERROR_LINE = (
    ':::MLLOG {"key": "error_runtime", "value": "Attempted to complete a sample twice.", '
    '"time_ms": 1.0, "namespace": "mlperf::logging", "event_type": "POINT_IN_TIME", '
    '"metadata": {"is_error": true, "is_warning": false, "file": "issue_query_controller.cc", '
    '"line_no": 1, "pid": 1, "tid": 1}}\n'
)


def invalid(files: Files) -> Files:
    """LoadGen's verdict turned round in both logs, as a run that was too short would have it."""
    told = log_value(files, DETAIL, "result_validity", '"INVALID"')
    told = log_value(told, DETAIL, "result_min_duration_met", "false")
    return edit(told, SUMMARY, "Result is : VALID", "Result is : INVALID")


def faster(files: Files) -> Files:
    """The result and every place that repeats it, but not the other figures."""
    told = log_value(files, DETAIL, "early_stopping_latency_ss", "1000")
    told = edit(told, DETAIL, r"(percentile estimate: )[0-9]+", r"\g<1>1000")
    return edit(told, SUMMARY, r"(percentile estimate: )[0-9]+", r"\g<1>1000")


SIX = [
    pytest.param(
        lambda f: log_value(f, DETAIL, "early_stopping_latency_ss", "1000"),
        "early_stopping_latency_ss 1000 is not between the 90th percentile and the most",
        id="edited result",
    ),
    pytest.param(invalid, "result_validity: got INVALID, wanted VALID", id="INVALID run"),
    pytest.param(
        lambda f: {**f, DETAIL: f[DETAIL] + ERROR_LINE.encode()},
        "LoadGen error: error_runtime: Attempted to complete a sample twice.",
        id="error line",
    ),
    pytest.param(
        lambda f: log_value(f, DETAIL, "effective_qsl_rng_seed", "12345"),
        "effective_qsl_rng_seed: wrong seed 12345, wanted 2085463073848966840",
        id="wrong seed",
    ),
    pytest.param(
        lambda f: without(f, ACCURACY_TXT), f"{ACCURACY_TXT}: missing file", id="missing file"
    ),
    pytest.param(lambda f: {}, ".: empty, no result at all", id="empty folder"),
]
"""The official checker of v6.1 says that all but the fourth and fifth of these look OK."""


@pytest.mark.parametrize("forged", [False, True], ids=["edited", "digests forged too"])
@pytest.mark.parametrize(("corrupt", "reason"), SIX)
def test_six_corrupted_copies_are_refused_each_with_its_reason(
    files: Files, corrupt: Callable[[Files], Files], reason: str, forged: bool
) -> None:
    spoilt = corrupt(files)
    found = reasons(forge(spoilt) if forged else spoilt)
    assert any(reason in line for line in found), found


MORE = [
    # An official check or tool once let each of these pass, or its users were misled by it.
    ("inference#1342: LoadGen's flags", lambda f: log_value(f, DETAIL, "early_stopping_met",
     "false"), "early_stopping_met: got False, wanted True"),
    ("inference#460: an error count over VALID", lambda f: log_value(f, DETAIL, "num_errors", "9"),
     "num_errors: got 9, wanted 0"),
    ("inference#1461: a log that was not cut", lambda f: {**f, ACCURACY_LOG:
     f[ACCURACY_LOG] * 3}, "cut it"),
    ("inference#2173: accuracy on part of the data", lambda f: log_value(f, ACCURACY_DETAIL,
     "effective_accuracy_sample_count", "20"), "wanted the whole data set of 43"),
    ("inference#1260: a model of no benchmark", lambda f: {**f, MAPPING: b'{"minilm": "mine"}'},
     "wanted one of resnet"),
    ("inference#493: a line LoadGen drops in silence", lambda f: edit(f, CONF,
     "min_duration = ", "min_duration="), "wanted '*.SingleStream.key = value'"),
    ("inference#1630: user.conf says something else", lambda f: edit(f, CONF,
     "min_query_count = 100", "min_query_count = 1024"), "the run had"),
    ("inference#564: an empty summary", lambda f: {**f, SUMMARY: b""}, "empty file"),
    ("policies#10: a file too many", lambda f: {**f, f"{PERFORMANCE}/mlperf_log_trace.json":
     b"[]"}, "not a file of a v6.1 OPEN submission"),
    ("a garbage first line", lambda f: {**f, DETAIL: b"hello\n" + f[DETAIL]},
     "line 1 does not start with :::MLLOG"),
    ("a torn log", lambda f: {**f, DETAIL: f[DETAIL][:-1]}, "empty or torn"),
    ("another round's LoadGen", lambda f: log_value(f, DETAIL, "loadgen_version",
     '"5.1.2 @ 0"'), "wanted 6.0.17"),
    ("a LoadGen built with changes", lambda f: log_value(f, DETAIL, "loadgen_git_status_message",
     '"M loadgen.cc"'), "built with changes"),
    ("a short run", lambda f: log_value(f, DETAIL, "effective_min_duration_ms", "60000"),
     "effective_min_duration_ms: got 60000, wanted at least 600000"),
    ("a clock that shows a shorter test", lambda f: edit(f, DETAIL,
     r'("power_end", "value": )"[^"]+"', r'\g<1>"11-30-2026 14:53:00.000"'), "by its own clock"),
    ("a faster result told everywhere", faster, "is not between the 90th percentile"),
    ("a faster mean", lambda f: log_value(f, DETAIL, "result_mean_latency_ns", "9000000"),
     "does not follow from the mean latency"),
    ("more queries in the same time", lambda f: log_value(f, DETAIL, "result_query_count",
     "9999999"), "take longer than the test"),
    ("a higher rate", lambda f: log_value(f, DETAIL, "result_qps_with_loadgen_overhead", "900"),
     "take longer than the test did"),
    ("a lower rate", lambda f: log_value(f, DETAIL, "result_qps_with_loadgen_overhead", "9"),
     "at 9 a second take longer than the test's"),
    ("a summary that boasts", lambda f: edit(f, SUMMARY, r"(Mean latency \(ns\) +: )[0-9]+",
     r"\g<1>1000"), "Mean latency (ns): got 1000, the detail log has"),
    ("a cut-off summary", lambda f: {**f, SUMMARY: f[SUMMARY][:-60]}, "does not end with"),
    ("other settings than recorded", lambda f: log_value(f, DETAIL, "effective_target_qps",
     "900"), "effective_target_qps: got 900, wanted 600"),
    ("a run filed under another scenario", lambda f: {p.replace("SingleStream", "Offline"): d
     for p, d in f.items()}, "in a folder Offline"),
    ("no scenario at all", lambda f: {p.replace("SingleStream", "Best"): d for p, d in f.items()},
     "not a scenario"),
    ("accuracy of another build", lambda f: edit(f, SOURCE, '"graph_optimization": "all"',
     '"graph_optimization": "none"'), "sut of the accuracy run is"),
    ("a book of specifications", lambda f: {**f, SOURCE: f[SOURCE] + b"\n" * 70_000},
     "longer than 65536 bytes"),
    ("no record of the runs", lambda f: {**f, SOURCE: b"# minilm\n"}, "of each run one"),
    ("no accuracy figure", lambda f: edit(f, ACCURACY_TXT, "Accuracy", "accuracy"),
     "0 lines report DICE"),
    ("two hashes", lambda f: {**f, ACCURACY_TXT: f[ACCURACY_TXT] + b"hash=" + b"0" * 64},
     "wanted one line hash="),
    ("nested deep enough to break a reader", lambda f: {**f, MAPPING: b"[" * 100_000},
     "not JSON"),
    ("a field twice", lambda f: {**f, MAPPING: b'{"minilm": "resnet", "minilm": "3d-unet-99"}'},
     "given twice"),
    ("zero as a number", lambda f: field(f, DESCRIPTION, "accelerators_per_node", 0),
     "accelerators_per_node: got 0, wanted text"),
    ("nodes in words", lambda f: field(f, DESCRIPTION, "number_of_nodes", "one"),
     "wanted digits as text"),
    ("no framework", lambda f: field(f, DESCRIPTION, "framework", ""), "framework: empty"),
    ("a field that is gone", lambda f: field(f, DESCRIPTION, "cooling", None), "cooling: missing"),
    ("a field of our own", lambda f: field(f, DESCRIPTION, "price", "1"), "price: unknown field"),
    ("another division", lambda f: field(f, DESCRIPTION, "division", "closed"),
     "division: got 'closed', wanted 'open'"),
    ("another submitter", lambda f: field(f, DESCRIPTION, "submitter", "Other"),
     "submitter: got 'Other', wanted 'Lumen'"),
    ("a made-up status", lambda f: field(f, DESCRIPTION, "status", "soon"), "available | preview"),
    ("an empty measurement", lambda f: field(f, MEASUREMENTS, "retraining", ""),
     "retraining: got '', wanted a text"),
    ("other weights", lambda f: field(f, MEASUREMENTS, "starting_weights_filename", "big.onnx"),
     "the run used paraphrase-MiniLM-L3-v2.onnx"),
    ("a second system", lambda f: {**f, **{p.replace("search-node", "other"): d
     for p, d in f.items()}}, "2 results; wanted one submitter, system and model"),
]  # fmt: skip


@pytest.mark.parametrize(("corrupt", "reason"), [row[1:] for row in MORE], ids=[r[0] for r in MORE])
def test_a_corrupted_copy_with_forged_digests_is_refused(
    files: Files, corrupt: Callable[[Files], Files], reason: str
) -> None:
    found = reasons(forge(corrupt(files)))
    assert any(reason in line for line in found), found


@pytest.mark.parametrize("digit", range(0, 12))
def test_no_file_can_change_by_a_byte_unseen(files: Files, digit: int) -> None:
    path = sorted(files)[digit]
    found = reasons({**files, path: files[path] + b"\n"})
    assert found or path.endswith(f"{RESULT}/README.md")


ODD = ("null", "[]", "{}", "[true]", "-1", '""', "1e999999", "9" * 4000, '{"a": [1]}')


def test_no_value_of_a_log_makes_the_verifier_stumble(files: Files) -> None:
    log = files[DETAIL].decode()
    keys = [json.loads(line[8:])["key"] for line in log.splitlines()]
    cases = [
        (key, value)
        for key in keys
        if key.startswith(
            ("effective", "early", "generated", "num", "power", "result", "requested")
        )
        for value in ODD
    ]
    for key, value in some(cases, 60):
        assert reasons(log_value(files, DETAIL, key, value)), (key, value)


def test_only_the_stored_runs_show_a_forgery_that_keeps_every_relation(
    files: Files, runs: Path
) -> None:
    # The result moved to the 90th percentile, in all three places that tell it.
    ninety = json.loads(
        next(line for line in files[DETAIL].decode().splitlines() if "result_90.00_" in line)[8:]
    )["value"]
    told = log_value(files, DETAIL, "early_stopping_latency_ss", str(ninety))
    told = edit(told, DETAIL, r"(90.0th percentile estimate: )[0-9]+", rf"\g<1>{ninety}")
    told = forge(edit(told, SUMMARY, r"(90.0th percentile estimate: )[0-9]+", rf"\g<1>{ninety}"))
    assert reasons(told) == []
    stored = [load_run(runs / name) for name in ("performance", "accuracy")]
    found = [str(item) for item in verify(Snapshot(told, ()), V6_1, stored).findings]
    assert found == [
        f"{DETAIL}: is not that of a stored performance run",
        f"{SUMMARY}: is not that of a stored performance run",
    ]
    assert verify(Snapshot(files, ()), V6_1, stored).holds


OK = "Results=1, NoResults=0, Power Results=0\nSUMMARY: submission looks OK\n"


@pytest.mark.parametrize(
    ("status", "words", "reason"),
    [
        (0, OK, None),
        (0, OK.replace("Results=1", "Results=0", 1), "it counted Results=0"),
        (0, "SUMMARY: submission looks OK\n", "it counted no count"),
        (1, OK, "exit status 1"),
        (1, "Traceback (most recent call last):\n  ...", "it ended in a traceback"),
        (0, OK.replace("NoResults=0", "NoResults=1"), "it counted Results=1, NoResults=1"),
    ],
)
def test_the_official_checker_is_not_taken_at_its_exit_status(
    status: int, words: str, reason: str | None
) -> None:
    answer = judge(status, words, 1)
    assert answer.passed is (reason is None)
    assert reason is None or any(reason in told for told in answer.reasons)
