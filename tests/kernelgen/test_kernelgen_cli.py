"""The command line as people and other tools meet it: JSON, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelgen.__main__ import main
from kernelgen.attacks import suite
from kernelgen.commands.tune import seconds
from kernelgen.graph.builders import build_encoder
from kernelgen.workload import save_samples

ROOT = Path(__file__).parents[2]
VOCABULARY = 120


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model, samples, and the package tuned from them with no budget."""
    folder = tmp_path_factory.mktemp("cli")
    build_encoder(
        folder / "small.onnx", layers=1, heads=2, head_size=16, ffn=64, vocabulary=VOCABULARY
    )
    rng = np.random.default_rng(4)
    save_samples(
        folder / "samples.npz",
        [rng.integers(0, VOCABULARY, size=int(n)) for n in rng.integers(3, 20, size=40)],
    )
    words = ["tune", str(folder / "small.onnx"), "--samples", str(folder / "samples.npz")]
    assert main([*words, "--out", str(folder / "package"), "--budget", "0s", "--json"]) == 0
    return folder


def _json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_help_names_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelgen", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("machine", "targets", "tune", "verify", "bench", "attacks", "run"):
        assert name in done.stdout


def test_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "--json", "--no-measure"]) == 0
    found = _json(capsys)
    assert found["peak_gflops_per_core"] is None
    assert found["fingerprint"]
    assert main(["machine", "--no-measure"]) == 0
    assert "fingerprint" in capsys.readouterr().out


def test_targets_tries_what_it_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "--json"]) == 0
    rows = _json(capsys)["targets"]
    assert isinstance(rows, list)
    cpu = next(row for row in rows if row["name"].startswith("cpu"))
    assert cpu["compile"]
    assert cpu["verify"], cpu["why_not"]
    assert cpu["measure"]
    assert all(row["why_not"] for row in rows if not row["compile"])


def test_verify_passes_then_fails_after_one_flipped_byte(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", str(place / "package"), "--model", str(place / "small.onnx"), "--json"]
    assert main(words) == 0
    found = _json(capsys)
    assert found["passed"] is True
    assert isinstance(found["checks"], list)
    assert len(found["checks"]) >= 7
    copy = tmp_path / "package"
    subprocess.run(["cp", "-r", str(place / "package"), str(copy)], check=True)
    library = copy / "lib" / "model.so"
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(bytes(data))
    assert main(["verify", str(copy)]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_verify_refuses_another_model(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = build_encoder(tmp_path / "other.onnx", layers=1, heads=2, head_size=16, ffn=64, seed=9)
    assert main(["verify", str(place / "package"), "--model", str(other)]) == 2
    assert "was made from" in capsys.readouterr().err


def test_run(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.npz"
    words = ["run", str(place / "package"), "--input", str(place / "samples.npz")]
    assert main([*words, "--output", str(out), "--batch", "7", "--json"]) == 0
    assert _json(capsys)["sequences"] == 40
    assert np.load(out)["embeddings"].shape == (40, 32)


def test_one_operator_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "--op", "gemm_bias", "--shape", "k=32", "n=64", "m=20", "--trials", "2"]
    assert main([*words, "--out", str(tmp_path / "op"), "--json"]) == 0
    found = _json(capsys)
    assert found["trials"] == 2
    assert "kernel(" in (tmp_path / "op" / "kernel.c").read_text()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tune", "--out", "p"], "MODEL.onnx or --op"),
        (["tune", "m.onnx", "--out", "p"], "--samples"),
        (["tune", "m.onnx", "--out", "p", "--budget", "soon"], "--budget"),
        (["tune", "--op", "nothing", "--out", "p"], "gemm_bias"),
        (["tune", "--op", "gemm_bias", "--shape", "k=8", "--out", "p"], "missing ['n']"),
        (["tune", "--op", "gemm_bias", "--shape", "k=8", "n=8", "--out", "p"], "wants ['m']"),
        (["tune", "--op", "gemm_bias", "--shape", "k8", "--out", "p"], "NAME=NUMBER"),
        (["verify", "/nowhere"], "/nowhere/manifest.json"),
        (["run", "/nowhere", "--input", "/nowhere.npz"], "/nowhere.npz"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(
    words: list[str],
    wanted: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert wanted in error
    assert list(tmp_path.iterdir()) == []


def test_attacks_reports_and_fails_when_a_fixture_disagrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = suite.folder()
    for name in ("cheats/no_op.c", "honest/scale_plain.c", "kernel.h"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((real / name).read_text())
    monkeypatch.setattr(suite, "folder", lambda: tmp_path)
    core = ["--core", str(min(os.sched_getaffinity(0)))]
    assert main(["attacks", "--json", *core]) == 0
    found = _json(capsys)
    wanted = {"attacks": 1, "caught": 1, "honest": 1, "accepted": 1}
    assert {name: found[name] for name in wanted} == wanted
    fixture = tmp_path / "cheats" / "no_op.c"
    fixture.write_text(fixture.read_text().replace("expect: not_written", "expect: crashed"))
    assert main(["attacks", *core]) == 1
    assert "0 of 1 attacks caught" in capsys.readouterr().out


def test_attacks_needs_a_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "__file__", str(tmp_path / "a" / "b" / "c" / "suite.py"))
    assert main(["attacks"]) == 2
    assert "checkout" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("5m", 300), ("1h", 3600), ("7", 7)])
def test_budgets(text: str, value: float) -> None:
    assert seconds(text) == value
