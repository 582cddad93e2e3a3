"""From real runs to a folder on the command line: 0 done, 1 the answer is no, 2 wrong use."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering.__main__ import main
from metering.loadgen import RunSpec, SutSpec, run
from metering.loadgen.spec import Seeds
from metering.plan import MeasurementPlan, short_run_plan
from metering.plan import Seeds as PlanSeeds
from metering.submission import NoChecker, ask, read
from tests.metering.measure.conftest import write_encoder, write_samples
from tests.metering.submission_cases import extract_recorded, request, system_record

ROOT = Path(__file__).resolve().parents[3]
SEEDS = {"qsl": 11, "sample_index": 12, "schedule": 13}


@dataclasses.dataclass(frozen=True)
class Measured:
    """A folder with really measured runs, a plan and a registry record."""

    folder: Path
    plan: Path


def _spec(folder: Path, run_id: str, mode: str, **fields: Any) -> RunSpec:
    sut = SutSpec(**{"stack": "onnxruntime", "arrangement": "single", **fields.pop("sut", {})})
    values: dict[str, Any] = {
        "run_id": run_id,
        "scenario": "SingleStream",
        "mode": mode,
        "model": str(folder / "encoder.onnx"),
        "samples": str(folder / "samples.npz"),
        "min_duration_ms": 250,
        # Twice as many queries are made ready, so that none is missing while the machine is fast.
        "target_qps": 20_000.0,
        "min_query_count": 100,
        "warmup_ms": 20,
        "wall_limit_s": 60.0,
        "stall_limit_s": 60.0,
        "seeds": Seeds(**SEEDS),
        **fields,
    }
    return RunSpec(sut=sut, **values)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("measured")
    write_encoder(folder / "encoder.onnx")
    write_samples(folder / "samples.npz")
    specs = [
        _spec(folder, "timed", "performance"),
        _spec(folder, "outputs", "accuracy"),
        _spec(folder, "reference", "accuracy", sut={"graph_optimization": "none"}),
    ]
    for spec in specs:
        result = run(spec, folder / spec.run_id)
        assert result.valid, result.reasons
    # Offline needs five seconds of work and gets a blink: LoadGen itself says INVALID.
    short = _spec(folder, "invalid", "performance", scenario="Offline", min_duration_ms=5000,
                  target_qps=1.0)  # fmt: skip
    assert run(short, folder / "invalid").state == "INVALID"
    null = _spec(folder, "null", "performance", sut={"stack": "null"}, min_duration_ms=1)
    run(null, folder / "null")
    whole = _plan(folder / "plan.json")
    assert whole.seeds.qsl == SEEDS["qsl"]
    (folder / "system.json").write_text(json.dumps(system_record()))
    return Measured(folder, folder / "plan.json")


def _plan(path: Path, **fields: Any) -> MeasurementPlan:
    plan = short_run_plan(
        "P-1", cores=[0], zone="UTC", seeds=PlanSeeds(order=1, **SEEDS), run_seconds=1
    )
    plan = dataclasses.replace(plan, **{"scenario": "SingleStream", **fields})
    path.write_text(json.dumps(plan.to_json()))
    return plan


def _request(measured: Measured, tmp_path: Path, **fields: Any) -> Path:
    """A rehearsal's request in ``tmp_path``; ``runs`` replaces sources of its one result."""
    sources = {
        "performance": str(measured.folder / "timed"),
        "accuracy": str(measured.folder / "outputs"),
        "reference": str(measured.folder / "reference"),
        **{name: str(measured.folder / run) for name, run in fields.pop("runs", {}).items()},
    }
    values = {
        "model": "encoder",
        "benchmark": "unlisted",
        "rehearsal_plan": str(measured.plan),
        "results": [sources],
    }
    return request(tmp_path, **{**values, **fields})


def test_runs_made_now_become_a_rehearsal_that_never_passes_as_a_submission(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = _request(measured, tmp_path), tmp_path / "folder"
    assert main(["submission", "build", str(path), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rehearsal"] is True
    assert told["note"] == "MLPerf LoadGen based, not verified by MLCommons"
    stored = [f"--run={measured.folder / name}" for name in ("timed", "outputs")]
    check = ["submission", "check", str(out)]
    assert main([*check, "--plan", str(measured.plan), *stored]) == 0
    assert "a rehearsal, no submission; MLPerf LoadGen based" in capsys.readouterr().out
    assert "REHEARSAL" in next(out.rglob("SingleStream/README.md")).read_text()
    assert main(check) == 1
    refused = capsys.readouterr().out
    for reason in ("got 'unlisted'", "wrong seed 11", "got 250, wanted at least 600000"):
        assert reason in refused
    # Another run than those stored is not what the folder claims to hold.
    assert main([*check, "--plan", str(measured.plan), f"--run={measured.folder / 'reference'}"])
    assert "is not that of a stored performance run" in capsys.readouterr().out
    with tarfile.open(tmp_path / "folder.tar.gz", "w:gz") as archive:
        archive.add(out / "open", "open")
    assert main(["submission", "check", str(tmp_path / "folder.tar.gz"), "--plan",
                 str(measured.plan)]) == 0  # fmt: skip


def test_another_plan_refuses_the_same_folder(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder"
    assert main(["submission", "build", str(_request(measured, tmp_path)), "--out", str(out)]) == 0
    for fields, reason in (
        ({"run_seconds": 4}, "effective_min_duration_ms: got 250, wanted at least 1000"),
        ({"seeds": PlanSeeds(1, 2, 3, 4)}, "wrong seed 11, wanted 2"),
        ({"scenario": "Offline"}, "a scenario that the plan does not measure"),
    ):
        _plan(tmp_path / "other.json", **fields)
        arguments = ["submission", "check", str(out), "--plan", str(tmp_path / "other.json")]
        assert main(arguments) == 1
        assert reason in capsys.readouterr().out


def test_the_program_checks_a_folder_of_the_round(tmp_path: Path) -> None:
    extract_recorded(tmp_path)
    out = str(tmp_path / "folder")
    assert main(["submission", "build", str(request(tmp_path)), "--out", out]) == 0
    stored = [f"--run={tmp_path / name}" for name in ("performance", "accuracy")]
    done = subprocess.run(
        [sys.executable, "-m", "metering", "submission", "check", out, *stored],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "holds (MLPerf Inference v6.1, open division)" in done.stdout


NO = [
    ({"performance": "invalid"}, "run invalid: INVALID, wanted VALID: result_min_duration_met"),
    ({"performance": "null"}, "the null stack computes nothing"),
    ({"performance": "outputs"}, "made in accuracy mode, wanted performance"),
    ({"accuracy": "timed"}, "made in performance mode, wanted accuracy"),
    ({"accuracy": "reference"}, "sut: the performance run has"),
    ({"reference": "timed"}, "reference: mode is performance"),
    ({"accuracy": "nowhere"}, "cannot be read"),
]


@pytest.mark.parametrize(("runs", "reason"), NO, ids=[row[1] for row in NO])
def test_runs_that_make_no_submission_are_refused_and_leave_nothing(
    measured: Measured,
    tmp_path: Path,
    runs: dict[str, str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = _request(measured, tmp_path, runs=runs)
    before = set(tmp_path.iterdir())
    out = tmp_path / "folder"
    assert main(["submission", "build", str(path), "--out", str(out), "--json"]) == 1
    told = capsys.readouterr()
    assert reason in told.err
    assert json.loads(told.out)["holds"] is False
    assert set(tmp_path.iterdir()) == before


def test_short_runs_of_other_seeds_are_no_submission_of_the_round(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [{"performance": str(measured.folder / "timed"),
                "accuracy": str(measured.folder / "outputs"),
                "accuracy_report": "accuracy.txt"}]  # fmt: skip
    path = _request(
        measured, tmp_path, benchmark="3d-unet-99", rehearsal_plan=None, results=sources
    )
    assert main(["submission", "build", str(path), "--out", str(tmp_path / "folder")]) == 1
    told = capsys.readouterr().err
    for reason in ("wrong seed 11", "wanted at least 600000", "wanted the whole data set of 43"):
        assert reason in told
    assert not (tmp_path / "folder").exists()


def test_a_stored_run_that_was_edited_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extract_recorded(tmp_path)
    log = tmp_path / "performance" / "mlperf_log_detail.txt"
    log.write_bytes(
        log.read_bytes().replace(b'"num_errors", "value": 0', b'"num_errors", "value": 1')
    )
    path = request(tmp_path)
    assert main(["submission", "build", str(path), "--out", str(tmp_path / "folder")]) == 1
    assert "its SHA-256 is not the recorded one" in capsys.readouterr().err


def _other_machine(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "machine": {**record["machine"], "cpu_model": "Faster CPU"}}


WRONG: list[tuple[dict[str, Any], Callable[[dict[str, Any]], Any] | None, str]] = [
    ({"submitter": "../Lumen"}, None, "submission.submitter: got '../Lumen'"),
    ({"model": "a/b"}, None, "submission.model: got 'a/b'"),
    ({"round": "v5.1"}, None, "submission.round: got 'v5.1'"),
    ({"benchmark": "llama2-70b-99.9"}, None, "submission.benchmark"),
    ({"benchmark": "3d-unet-99"}, None, "submission.benchmark"),
    ({"rehearsal_plan": None}, None, "submission.benchmark"),
    ({"status": "soon"}, None, "submission.status: got 'soon'"),
    ({"retraining": ""}, None, "submission.retraining"),
    ({"retrainning": "no"}, None, "a field this version does not know"),
    ({"results": []}, None, "submission.results: got an empty list"),
    ({"results": [{"performance": "a", "accuracy": "b"}]}, None, "either accuracy_report or"),
    ({"rehearsal_plan": "nowhere.json"}, None, "nowhere.json: No such file"),
    ({"system_details": {"cooling": ""}}, None, "system_details.cooling"),
    ({"system_details": {"price": "1"}}, None, "system_details.price"),
    ({"system_details": {"host_memory_capacity": "1 TB"}}, None, "the registry and the runs"),
    ({}, _other_machine, "system.machine.fingerprint"),
    ({}, lambda record: {"name": "x", "revision": 1, "machine": 5}, "system.machine"),
    ({}, lambda record: [], "wanted a JSON object"),
]


@pytest.mark.parametrize(("fields", "system", "reason"), WRONG)
def test_a_request_that_cannot_be_used(
    measured: Measured,
    tmp_path: Path,
    fields: dict[str, Any],
    system: Callable[[dict[str, Any]], Any] | None,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = _request(measured, tmp_path, **fields)
    if system is not None:
        (tmp_path / "system.json").write_text(json.dumps(system(system_record())))
    assert main(["submission", "build", str(path), "--out", str(tmp_path / "folder")]) == 2
    told = capsys.readouterr().err
    assert reason in told
    assert told.count("\n") == 1


def test_wrong_places_are_wrong_use_and_nothing_is_overwritten(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = _request(measured, tmp_path), tmp_path / "folder"
    out.mkdir()
    (out / "mine").write_text("kept")
    gone = str(tmp_path / "nowhere")
    for arguments in (
        ["build", str(path), "--out", str(out)],
        ["build", gone, "--out", str(tmp_path / "new")],
        ["check", gone],
        ["check", str(out), "--plan", gone],
        ["check", str(out), "--plan", str(path)],
        ["check", str(out), "--run", gone],
        ["check", str(out), "--official", str(out)],
    ):
        assert main(["submission", *arguments]) == 2, arguments
        assert capsys.readouterr().err.count("\n") == 1
    assert [item.name for item in out.iterdir()] == ["mine"]
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "elsewhere")
    assert main(["submission", "build", str(path), "--out", str(dangling)]) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_a_checker_that_says_ok_of_nothing_is_not_believed(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout, out = tmp_path / "checkout", tmp_path / "folder"
    with pytest.raises(NoChecker, match=r"no submission_checker/main\.py"):
        ask(checkout, {}, 1)
    assert main(["submission", "build", str(_request(measured, tmp_path)), "--out", str(out)]) == 0
    package = checkout / "submission_checker"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    # Counts what lies in the folder it was given, or always says 0, as its last argument tells.
    (package / "main.py").write_text(
        "import pathlib, sys\n"
        "root = pathlib.Path(sys.argv[sys.argv.index('--input') + 1])\n"
        "assert sys.argv[sys.argv.index('--version') + 1] == 'v6.1'\n"
        "found = len(list(root.glob('open/*/results/*/*/*/performance/run_1')))\n"
        "blind = pathlib.Path('blind').exists()\n"
        "print(f'Results={0 if blind else found}, NoResults=0')\n"
        "print('SUMMARY: submission looks OK')\n"
    )
    assert ask(checkout, read(out).files, 1).passed
    assert not ask(checkout, {}, 1).passed
    (checkout / "blind").touch()
    arguments = ["submission", "check", str(out), "--plan", str(measured.plan)]
    assert main([*arguments, "--official", str(checkout)]) == 1
    assert "it counted Results=0, NoResults=0, wanted Results=1" in capsys.readouterr().out
