"""`tune --op` for every family, its options, and a search played again from its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernelgen.__main__ import main
from kernelgen.agent.sizes import operator_of, read_sizes
from kernelgen.ops import FAMILIES
from tests.kernelgen.test_agent_endpoint import Server, says
from tests.quick import some

CORE = str(min(os.sched_getaffinity(0)))
GEMM = ["--op", "gemm_bias:k=64,n=128", "--shape", "m=48"]


def test_sizes_may_stand_with_the_name_or_the_shape() -> None:
    first = operator_of("gemm_bias:k=64,n=128", ["m=48"])
    assert first == operator_of("gemm_bias", ["k=64", "n=128", "m=48"])
    assert first[1] == {"m": 48}
    assert read_sizes(["a=1", "b=0.5", "c=word", "d=true"]) == {
        "a": 1,
        "b": 0.5,
        "c": "word",
        "d": True,
    }


@pytest.mark.parametrize(
    ("named", "shape", "wanted"),
    [
        ("nothing", [], "wanted one of"),
        ("gemm_bias", ["k=64"], "missing"),
        ("gemm_bias:k=64,n=abc", ["m=1"], "n=abc: wanted int"),
        ("gemm_bias:k=64,n=128", ["m=0"], "1 or more"),
        ("gemm_bias:k=64,n=128", ["m=2", "m=3"], "twice"),
        ("gemm_bias:k=64,n=128", ["rows=3"], r"wants \['m'\]"),
        ("gemm_bias:k=64,n", ["m=1"], "NAME=NUMBER"),
    ],
)
def test_wrong_sizes_are_named(named: str, shape: list[str], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        operator_of(named, shape)


def test_help_documents_the_syntax_and_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    shown = capsys.readouterr().out
    assert "--op gemm_bias:k=384,n=1152 --shape m=32" in shown
    assert "IGNITION_LLM_KEY" in shown
    for family in FAMILIES:
        assert family in shown


def test_a_search_is_played_again_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    server.scripts = [says("no block"), says("```schedule\nmr=3\n```")]
    monkeypatch.setenv("IGNITION_LLM_URL", server.url)
    monkeypatch.setenv("IGNITION_LLM_MODEL", "tiny")
    monkeypatch.setenv("IGNITION_LLM_KEY", "sk-secret-0123456789")
    out = tmp_path / "out"
    words = [*GEMM, "--core", CORE, "--trials", "8", "--seed", "5", "--customer", "acme"]
    prices = ["--price-per-core-hour", "0.36", "--price-per-mtok-in", "2"]
    assert main(["tune", *words, *prices, "--out", str(out), "--json"]) == 0
    live = json.loads(capsys.readouterr().out)
    server.close()
    assert live["ended"] == "trials"
    assert live["rejected"]["malformed_answer"] == 1
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"sk-secret" not in written
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler, no sandbox
    assert main(["tune", "--replay", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == live


def test_knowledge_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*GEMM, "--knowledge", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    assert main(["tune", *words]) == 2
    assert "knowledge" in capsys.readouterr().err
    assert main(["tune", "--replay", "--out", str(tmp_path / "out")]) == 2
    assert "wanted the folder of a finished search" in capsys.readouterr().err


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_any_family_says_which_sizes_it_wants(family: str) -> None:
    with pytest.raises(ValueError, match=r"wants|missing"):
        operator_of(family, ["no_such_size=1"])


SIZES = {
    "attention": "heads=2,head_size=16,scale=0.25",
    "gemm_bias": "k=64,n=128",
    "gemm_bias_gelu": "k=64,n=128",
    "gemm_bias_residual_layernorm": "k=64,n=128,epsilon=1e-12",
    "mean_pool": "hidden=64",
}


@pytest.mark.parametrize("family", some([name for name in SIZES if name in FAMILIES], 2))
def test_operators_of_every_kind_are_tuned(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = operator_of(
        f"{family}:{SIZES[family]}", [f"{d}={v}" for d, v in _dims(family).items()]
    )[0]
    shape = [f"{name}={size}" for name, size in _dims(family).items()]
    words = ["--op", f"{family}:{SIZES[family]}", "--shape", *shape, "--trials", "1"]
    out = tmp_path / "out"
    code = main(["tune", *words, "--core", CORE, "--out", str(out), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    assert found["operator"] == operator.name
    assert "kernel(" in (out / "kernel.c").read_text()


def _dims(family: str) -> dict[str, int]:
    return {"n": 8, "tokens": 400} if family in ("attention", "mean_pool") else {"m": 48}
