"""What `kernelgen targets` claims, with and without the tools, and the proofs it makes."""

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kernelgen.__main__ import main
from kernelgen.judge import sandbox
from kernelgen.judge.session import Region
from kernelgen.ops import MeanPool
from kernelgen.targets import TARGETS, find, toolchain
from kernelgen.targets.ability import NAMES, abilities
from kernelgen.targets.emulate import EmulatedSession
from kernelgen.targets.proof import runs_here

FOREIGN = [name for name, target in TARGETS.items() if target.processors]


def output(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_every_target_has_a_row_and_every_no_a_reason(capsys):
    assert main(["targets", "--json"]) == 0
    rows = {row["name"]: row for row in output(capsys)["targets"]}
    assert set(TARGETS) < set(rows)
    for row in rows.values():
        for name in NAMES:
            assert row[name] is (name not in row["why_not"])
        for found in row["why_not"].values():
            assert found["reason"]
            assert isinstance(found["packages"], list)
    for name in FOREIGN:
        row = rows[name]
        assert row["compile"]
        assert row["run"]
        assert row["verify"], row["why_not"]
        # Only a device measures, whatever tools there are.
        assert row["measure"] is runs_here(find(name))
        assert row["static_cost"] is bool(find(name).cores)


def test_the_table_is_for_people(capsys):
    assert main(["targets"]) == 0
    text = capsys.readouterr().out
    for name in TARGETS:
        assert text.count(f"\n{name} ") == 1
    assert "emulation" in text
    assert "vlen=256" in text


def tools(folder: Path, without: set[str]) -> Path:
    """A PATH of links to this machine's programs, but for those in `without`."""
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name not in without and not link.is_symlink():
                link.symlink_to(program)
    return folder


@pytest.mark.parametrize(
    ("name", "without", "lost", "package"),
    [
        ("aarch64-neon", "qemu-aarch64", {"run", "verify"}, "qemu-user"),
        ("riscv64-rvv", "qemu-riscv64", {"run", "verify"}, "qemu-user"),
        ("riscv64-rvv", "prlimit", {"run", "verify"}, "util-linux"),
        ("aarch64-neon", "llvm-mca-19", {"static_cost"}, "llvm-19"),
        ("riscv64-rvv", "llvm-mca-19", {"static_cost"}, "llvm-19"),
        ("aarch64-neon", "aarch64-linux-gnu-gcc", set(NAMES), "gcc-aarch64-linux-gnu"),
        ("riscv64-rvv", "clang-19", set(NAMES), "clang-19"),
        ("riscv64-rvv", "ld.lld-19", set(NAMES), "lld-19"),
        ("riscv64-rvv", "riscv64-linux-gnu-gcc", set(NAMES), "gcc-riscv64-linux-gnu"),
    ],
)
def test_a_missing_tool_takes_only_what_needs_it(
    name, without, lost, package, monkeypatch, tmp_path
):
    # Known before PATH changes: it is asked as a user who may not look into this folder.
    assert sandbox.bubblewrap()
    monkeypatch.setenv("PATH", str(tools(tmp_path, {without})))
    toolchain.llvm.cache_clear()
    try:
        assert shutil.which(without) is None
        found = abilities(find(name))
    finally:
        toolchain.llvm.cache_clear()
    assert {word for word in NAMES if not found.able(word)} == lost | {"measure"}
    for word in lost - {"measure"}:
        assert package in found.each[word].why_not or package in found.each[word].packages


def test_emulated_code_never_runs_without_walls(monkeypatch):
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    found = abilities(find("riscv64-rvv"))
    assert found.able("compile")
    assert found.able("static_cost")
    assert not found.able("run")
    assert "bubblewrap" in found.each["run"].packages
    operator = MeanPool(64)
    with pytest.raises(FileNotFoundError, match="bwrap"), closing(Region(64)) as room:
        EmulatedSession(
            Path("kernel.so"),
            operator,
            room,
            room,
            target=find("riscv64-rvv"),
            processor="vlen=128",
            limit_s=1.0,
        )


def test_prove_prints_what_it_found(capsys):
    words = ["targets", "--prove", "gemm_bias", "--target", "riscv64-rvv"]
    assert main([*words, "--shape", "k=64", "n=32", "m=9", "--json"]) == 0
    (proof,) = output(capsys)["proofs"]
    assert proof["accepted"]
    assert proof["operator"] == "gemm_bias_64x32"
    assert proof["dims"] == {"m": 9}
    assert proof["processors"] == ["vlen=128", "vlen=256"]
    assert {figure["class"] for figure in proof["figures"]} == {"static", "emulated count"}
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "vfmacc.vf" in text
    assert "emulated count, qemu-riscv64" in text


def test_prove_takes_a_schedule(capsys):
    words = ["targets", "--prove", "mean_pool", "--target", "aarch64-neon", "--json"]
    assert main([*words, "--schedule", "group=2 vector=8"]) == 0
    assert output(capsys)["proofs"][0]["schedule"] == "mean_pool_96: group=2 vector=8"


def test_a_static_proof_holds_only_when_asked_for(capsys):
    words = ["targets", "--prove", "mean_pool", "--target", "x86-64-avx512", "--json"]
    assert main([*words, "--static"]) == 0
    (proof,) = output(capsys)["proofs"]
    assert proof["reason"] == "static_only"
    assert not proof["accepted"]
    assert main(words) == (0 if runs_here(find("x86-64-avx512")) else 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--prove", "gemm_bias"], "--target: wanted one of x86-64-avx2"),
        (["--prove", "nothing", "--target", "aarch64-neon"], "--prove: got 'nothing'"),
        (["--target", "aarch64-neon"], "--target: wanted together with --prove"),
        (["--static"], "--static: wanted together with --prove"),
        (
            ["--prove", "gemm_bias", "--target", "aarch64-neon", "--shape", "k=x"],
            "--shape: got 'k=x', wanted NAME=NUMBER",
        ),
        (
            ["--prove", "gemm_bias", "--target", "aarch64-neon", "--shape", "k=8", "n=8"],
            "gemm_bias wants ['m'] besides ['k', 'n']",
        ),
        (
            ["--prove", "gemm_bias", "--target", "aarch64-neon", "--schedule", "mr=4"],
            "no axis",
        ),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(words, told, capsys):
    assert main(["targets", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
