"""The command line: exit 0 done, 1 the answer is no, 2 wrong use with one line and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering.__main__ import main
from metering.loadgen import RunSpec
from metering.plan import Seeds, short_run_plan

ROOT = Path(__file__).resolve().parents[3]


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "metering", "stacks", "--json"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert {item["name"] for item in json.loads(done.stdout)} == {
        "onnxruntime",
        "openvino",
        "torch",
        "llama.cpp",
    }


def test_one_run_from_a_file(
    make_spec: Callable[..., RunSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(make_spec().to_dict()))
    assert main(["loadgen", str(spec), "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "VALID"
    # The same folder again is wrong use, and the run in it stays.
    assert main(["loadgen", str(spec), "--out", str(tmp_path / "run")]) == 2
    assert "already holds a run" in capsys.readouterr().err
    spec.write_text(json.dumps(make_spec(min_duration_ms=5000).to_dict()))
    assert main(["loadgen", str(spec), "--out", str(tmp_path / "short")]) == 1
    assert "INVALID run" in capsys.readouterr().out


def test_uplift_prints_what_the_evidence_says(
    recorded: Path, evidence: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["uplift", str(recorded), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kept"] is True
    assert float(found["uplift"]["lower_95"]) > 0.02
    assert main(["uplift", str(recorded)]) == 0
    assert "lower 95 % bound" in capsys.readouterr().out
    log = next((evidence / "uplift/runs").iterdir()) / "mlperf_log_detail.txt"
    log.write_text(log.read_text().replace("VALID", "VALUE"))
    assert main(["uplift", str(evidence), "--json"]) == 1
    printed = capsys.readouterr()
    assert "evidence does not hold" in printed.err
    assert json.loads(printed.out)["kept"] is False


def test_a_baseline_request_that_cannot_run_is_named(
    inputs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = Seeds(1, 2, 3, 4)
    plan = short_run_plan("p", cores=(0,), zone="UTC", seeds=seeds, stacks=("torch",)).to_json()
    good = {"plan": plan, "model": str(inputs["model"]), "samples": str(inputs["samples"])}
    request = tmp_path / "request.json"
    for value, status, reason in (
        ({**good, "modle": "x"}, 2, "modle"),
        ({"plan": plan}, 2, "'model' is missing"),
        ({**good, "model": "nowhere.onnx"}, 2, "no file at"),
        ({**good, "plan": {**plan, "pairs": 1}}, 2, "plan.pairs"),
        ({**good, "as_found": {"stack": "x", "threads": 0}}, 2, "sut.threads"),
        (good, 1, "no baseline"),
    ):
        request.write_text(json.dumps(value))
        assert main(["baseline", "measure", str(request), "--out", str(tmp_path / "out")]) == status
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["loadgen", "nowhere.json", "--out", "x"], "cannot be read"),
        (["baseline", "measure", "nowhere.json", "--out", "x"], "cannot be read"),
        (["uplift", "nowhere"], "no folder at nowhere"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize("text", ["[]", "{", '{"run_id": "x"}', "\x00", '{"run_id": "x", "no": 1}'])
def test_a_spec_that_is_no_spec_is_wrong_use(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.json").write_text(text)
    assert main(["loadgen", str(tmp_path / "spec.json"), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "run").exists()
