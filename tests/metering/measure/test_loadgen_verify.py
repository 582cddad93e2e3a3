"""A stored run is believed only as far as its logs go: every edit is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering import loadgen
from metering.loadgen import EvidenceError, RunResult, RunSpec, SutSpec
from metering.loadgen.files import sha256_bytes
from tests.metering.measure.conftest import ONE_CORE

DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"


@pytest.fixture(scope="module")
def original(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = RunSpec(
        run_id="run",
        scenario="Offline",
        mode="performance",
        sut=SutSpec("onnxruntime", batch=16),
        model=str(inputs["model"]),
        samples=str(inputs["samples"]),
        min_duration_ms=1,
        target_qps=1.0,
        min_query_count=300,
        warmup_ms=0,
        cores=ONE_CORE,
    )
    out = tmp_path_factory.mktemp("runs") / "run"
    assert loadgen.run(spec, out).state == "VALID"
    return out


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def edit_result(out: Path, **fields: object) -> None:
    path = out / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def edit_log(out: Path, old: str, new: str, *, hide: bool) -> None:
    """Change a log; with ``hide`` the digest in the result is made to fit, as a forger would."""
    path = out / DETAIL
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if hide:
        files = json.loads((out / "result.json").read_text())["files"]
        edit_result(out, files={**files, DETAIL: sha256_bytes(path.read_bytes())})


def logged_rate(out: Path) -> str:
    return str(loadgen.load_run(out).samples_per_second)


def test_an_untouched_run_loads_and_round_trips(copy: Path) -> None:
    result = loadgen.load_run(copy)
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert result.samples_per_second is not None
    assert result.samples_per_second > 0
    assert result.sample_count == 300
    assert set(result.files) == {DETAIL, SUMMARY, "spec.json"}
    # No absolute path of this machine is left in the evidence.
    assert str(copy.parent) not in (copy / "spec.json").read_text()
    assert loadgen.load_spec(copy).model == "encoder.onnx"


def test_an_edited_detail_log_is_refused(copy: Path) -> None:
    rate = logged_rate(copy)
    edit_log(copy, f'"value": {rate}', '"value": 99999', hide=False)
    with pytest.raises(EvidenceError, match="SHA-256"):
        loadgen.load_run(copy)


def test_a_forged_rate_does_not_follow_from_the_log_itself(copy: Path) -> None:
    rate = logged_rate(copy)
    edit_log(copy, f'"value": {rate}', '"value": 99999', hide=True)
    edit_result(copy, samples_per_second="99999")
    with pytest.raises(EvidenceError, match="does not follow"):
        loadgen.load_run(copy)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"samples_per_second": "99999"}, "samples_per_second is 99999, the logs say"),
        ({"latency": None}, "latency is None"),
        ({"sample_count": 1}, "sample_count is 1"),
        ({"run_id": "another"}, "run_id"),
        ({"mode": "accuracy"}, "mode"),
        ({"state": "INVALID"}, "a figure on a run that is INVALID"),
        ({"spec_sha256": "0" * 64}, "spec_sha256"),
        ({"effective": {}}, "effective is {}"),
        ({"files": {}}, "not those the result lists"),
        ({"surplus": 1}, "not a run result"),
    ],
)
def test_an_edited_result_is_refused(copy: Path, fields: dict[str, object], reason: str) -> None:
    edit_result(copy, **fields)
    with pytest.raises(EvidenceError, match=reason):
        loadgen.load_run(copy)


def forged(key: str, old: str, new: str) -> tuple[str, str]:
    return f'"{key}", "value": {old}', f'"{key}", "value": {new}'


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ((":::MLLOG {", "noise\n:::MLLOG {"), "line 1 does not start"),
        (forged("result_validity", '"VALID"', '"INVALID"'), "otherwise"),
        (forged("num_errors", "0", "3"), "num_errors"),
        (('"is_error": false', '"is_error": true'), "LoadGen error"),
        (forged("effective_min_duration_ms", "1,", "2,"), "effective_min_duration_ms"),
        (forged("effective_test_mode", '"PerformanceOnly"', '"X"'), "effective_test_mode"),
        (('"key": "effective_max_async_queries"', '"key": "effective_new"'), "nothing was asked"),
        (('"key": "power_end"', '"key": "power_gone"'), "did not come to its end"),
    ],
    ids=["noise", "verdict", "error-count", "error-line", "duration", "mode", "unknown", "end"],
)
def test_a_log_that_says_otherwise_is_refused_even_with_a_fitting_digest(
    copy: Path, edit: tuple[str, str], reason: str
) -> None:
    edit_log(copy, *edit, hide=True)
    with pytest.raises(EvidenceError, match=reason):
        loadgen.load_run(copy)


def test_a_missing_a_surplus_and_a_linked_file_are_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "note.txt").write_text("hello")
    with pytest.raises(EvidenceError, match=r"note\.txt"):
        loadgen.load_run(copy)
    (copy / "note.txt").unlink()
    (copy / SUMMARY).rename(tmp_path / "elsewhere")
    with pytest.raises(EvidenceError, match="missing"):
        loadgen.load_run(copy)
    (copy / SUMMARY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EvidenceError, match="not a plain file"):
        loadgen.load_run(copy)


def test_a_torn_log_is_refused(copy: Path) -> None:
    data = (copy / DETAIL).read_bytes()
    (copy / DETAIL).write_bytes(data[:-20])
    files = json.loads((copy / "result.json").read_text())["files"]
    edit_result(copy, files={**files, DETAIL: sha256_bytes(data[:-20])})
    with pytest.raises(EvidenceError, match="torn"):
        loadgen.load_run(copy)


def test_a_run_folder_is_used_once_and_foreign_files_are_left_alone(
    copy: Path, make_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    with pytest.raises(loadgen.RunRefused, match="already holds a run"):
        loadgen.run(make_spec(), copy)
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(loadgen.RunRefused, match=r"thesis\.txt"):
        loadgen.run(make_spec(), other)
    assert (other / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "/nonexistent.onnx"}, "model: no file"),
        ({"samples": "/nonexistent.npz"}, "samples: no file"),
        ({"model_sha256": "0" * 64}, "model_sha256: the file has"),
        ({"cores": (4095,)}, "cores: this process may not use"),
    ],
)
def test_inputs_that_are_not_as_stated_are_refused_before_anything_starts(
    make_spec: Callable[..., RunSpec], tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(loadgen.RunRefused, match=reason):
        loadgen.run(make_spec(**fields), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_rate_keeps_the_digits_of_the_log(copy: Path) -> None:
    rate = loadgen.load_run(copy).samples_per_second
    assert isinstance(rate, Decimal)
    assert f'"result_samples_per_second", "value": {rate},' in (copy / DETAIL).read_text()
