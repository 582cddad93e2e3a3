"""Targets as data, their toolchains, and numbers that keep to their class."""

import itertools
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernelgen.emit import flags, source
from kernelgen.ops import GemmBias, MeanPool
from kernelgen.targets import TARGETS, default_schedule, find, toolchain
from kernelgen.targets.cost import hot_loop, missing_to_cost, static_cost
from kernelgen.targets.emulate import missing_to_run
from kernelgen.targets.figures import (
    ClassError,
    EmulatedCount,
    Figure,
    Measured,
    Modelled,
    Static,
    least,
)
from kernelgen.targets.proof import machine_of

KINDS = (Measured, EmulatedCount, Static, Modelled)
GEMM = GemmBias(96, 96)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("targets")


def built(name: str, folder: Path) -> Path:
    target = find(name)
    schedule = default_schedule(GEMM, target)
    options = flags(machine_of(target), schedule)
    outcome = toolchain.build(target, source(GEMM, schedule), options, folder / f"{name}.so")
    assert outcome.path is not None, outcome.stderr
    return outcome.path


# ---- figures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.permutations(KINDS, 2)))
def test_figures_of_two_classes_never_compare(mine, theirs):
    a, b = mine(1.0, "cycles", "x"), theirs(2.0, "cycles", "x")
    for compare in (
        lambda: a < b,
        lambda: a <= b,
        lambda: a > b,
        lambda: a >= b,
        lambda: a.over(b),
        lambda: least([a, b]),
        lambda: sorted([a, b]),
        lambda: max(a, b),
    ):
        with pytest.raises(ClassError, match=f"wanted '({a.kind}|{b.kind})'"):
            compare()
    assert a != replace(a, value=2.0)
    assert a != theirs(1.0, "cycles", "x")


@pytest.mark.parametrize("kind", KINDS)
def test_figures_compare_only_in_one_unit_and_on_one_basis(kind):
    one, two = kind(1.0, "instructions", "vlen=128"), kind(2.0, "instructions", "vlen=128")
    assert one < two
    assert two >= one
    assert two.over(one) == 2.0
    assert least([two, one]) is one
    with pytest.raises(ClassError, match="basis: got 'vlen=256', wanted 'vlen=128'"):
        one.over(kind(2.0, "instructions", "vlen=256"))
    with pytest.raises(ClassError, match="unit: got 'ns', wanted 'instructions'"):
        assert one < kind(2.0, "ns", "vlen=128")
    with pytest.raises(ClassError, match="class: got 'float'"):
        assert one < 2.0
    with pytest.raises(ClassError, match="unit"):
        sorted([one, kind(2.0, "ns", "vlen=128")])
    assert one.to_dict()["class"] == kind.kind
    assert kind.kind in one.text()


def test_a_figure_without_a_class_cannot_be_made():
    with pytest.raises(ClassError, match="class"):
        Figure(1.0, "ns", "here")
    with pytest.raises(ValueError, match="none"):
        least([])


# ---- toolchains -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_the_compiler_finds_the_instruction_that_marks_the_level(name):
    assert toolchain.missing(find(name)) == ()
    assert toolchain.probe(find(name)) is None


@pytest.mark.parametrize(
    ("level", "below"),
    [
        ("x86-64-avx512", "x86-64-avx2"),
        ("x86-64-avx512-vnni", "x86-64-avx512"),
        ("aarch64-dotprod", "aarch64-neon"),
    ],
)
def test_the_probe_refuses_the_level_below(level, below):
    weaker = replace(find(level), flags=find(below).flags)
    assert "does not use" in str(toolchain.probe(weaker))


def test_a_probe_that_does_not_compile_says_why():
    assert "error" in str(toolchain.probe(replace(find("aarch64-neon"), probe="int broken(")))


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_missing_is_named_with_its_package(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    toolchain.llvm.cache_clear()
    try:
        target = find(name)
        lacking = toolchain.missing(target)
        assert lacking
        with pytest.raises(FileNotFoundError, match=re.escape(lacking[0].package)):
            toolchain.toolchain(target)
        if target.compiler == "clang":
            assert {"clang-19", "lld-19"} <= {tool.package for tool in lacking}
        if target.processors:
            assert "qemu-user" in {tool.package for tool in missing_to_run(target)}
        if target.cores:
            assert "llvm-19" in str(missing_to_cost(target))
    finally:
        toolchain.llvm.cache_clear()


def test_an_unknown_target_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"'vax', wanted one of .*riscv64-rvv"):
        find("vax")


@pytest.mark.parametrize("name", TARGETS)
def test_names_vectors_and_processors_agree(name):
    target = find(name)
    assert name.startswith(target.architecture.replace("_", "-"))
    machine = machine_of(target)
    assert set(machine.isa) == set(target.isa)
    assert machine.architecture == target.architecture
    schedule = default_schedule(GEMM, target)
    assert schedule.number("vector") == target.vector
    # Sizes that no whole register divides keep a narrower vector instead of failing.
    assert default_schedule(MeanPool(80), target).number("vector") <= target.vector


# ---- the generated text -----------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_the_text_is_the_same_c_everywhere(name):
    target = find(name)
    if target.isa and "amx_tile" in target.isa:
        return  # the matrix unit's schedules carry its assembly, and only they do
    text = source(GEMM, default_schedule(GEMM, target))
    assert not re.search(r"immintrin|arm_neon|riscv_vector|__asm__|_mm\d*_|vfmaq_", text)


@pytest.mark.parametrize("name", [name for name in TARGETS if find(name).architecture != "x86_64"])
def test_foreign_binaries_hold_vector_arithmetic(name, folder):
    target = find(name)
    path = built(name, folder)
    found = toolchain.evidence(target, path)
    wanted = {"aarch64": "fmla", "riscv64": "vfmacc.vf"}[target.architecture]
    assert found[wanted] >= 12, found
    loads = {"aarch64": "ldr", "riscv64": "vle32.v"}[target.architecture]
    assert sum(found.get(word, 0) for word in (loads, "ldp")) >= 2, found
    head = subprocess.run(["readelf", "-h", path], capture_output=True, text=True, check=True)
    machine = {"aarch64": "AArch64", "riscv64": "RISC-V"}[target.architecture]
    assert machine in head.stdout


# ---- disassembly and static cost --------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_the_hot_loop_of_a_product_is_its_multiply_adds(name, folder):
    target = find(name)
    loop = hot_loop(target, built(name, folder))
    assert loop is not None
    schedule = default_schedule(GEMM, target)
    high, wide, turns = (schedule.number(axis) for axis in ("mr", "nr", "ku"))
    assert loop.multiply_adds == high * wide * turns
    assert loop.lines[-1].goes_to == loop.lines[0].address


# Two multiply-adds a cycle at best on all but the in-order cortex-a55 and neoverse-v2's four.
BEST = {"neoverse-v2": 0.25, "cortex-a55": 1.0}


@pytest.mark.parametrize("name", [name for name in TARGETS if find(name).cores])
def test_static_cost_is_near_what_the_core_can_do(name, folder):
    target = find(name)
    figures = static_cost(target, built(name, folder))
    assert [figure.basis.split()[-1] for figure in figures] == list(target.cores)
    for figure in figures:
        best = BEST.get(figure.basis.split()[-1], 0.5)
        assert best <= figure.value <= 3.1 * best, figure
        assert figure.kind == "static"


def test_the_model_says_what_it_cannot_read(folder):
    target = replace(find("aarch64-neon"), cores=("no-such-core",))
    with pytest.raises(RuntimeError, match="llvm-mca no-such-core"):
        static_cost(target, built("aarch64-neon", folder))


def test_code_without_a_loop_has_no_cost(tmp_path):
    target = find("aarch64-neon")
    outcome = toolchain.build(target, "float one(void) { return 1; }", (), tmp_path / "x.so")
    assert outcome.path is not None
    assert static_cost(target, outcome.path) == ()
    assert toolchain.evidence(target, outcome.path) == {}


def test_clang_gets_the_shuffles_of_gcc(tmp_path):
    text = (
        "typedef float f4 __attribute__((vector_size(16)));\n"
        "typedef int i4 __attribute__((vector_size(16)));\n"
        "f4 turn(f4 x, f4 y) { return __builtin_shuffle(x, y, (i4){6, 1, 4, 3}); }\n"
    )
    target = find("riscv64-rvv")
    outcome = toolchain.build(target, text, ("-O2", "-Wall", "-Werror"), tmp_path / "x.so")
    assert outcome.path is not None, outcome.stderr
    code = toolchain.disassemble(target, outcome.path)["turn"]
    # Constant positions become shuffle instructions, never a lane-by-lane walk through memory.
    assert len(code) <= 20, code
    assert any("vrgather" in line.text or "vslide" in line.text for line in code)


# ---- packages ---------------------------------------------------------------------------------

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "system_packages.sh"


def test_the_cross_group_brings_what_targets_miss():
    text = SCRIPT.read_text(encoding="utf-8")
    group = text.split('cross_tools="')[1].split('"')[0]
    packages = {row.split("|")[1] for row in group.split()}
    programs = {row.split("|")[0] for row in group.split()}
    assert {"qemu-aarch64", "qemu-riscv64", "llvm-mca-19", "ld.lld-19"} <= programs
    for target in TARGETS.values():
        if target.architecture != "x86_64":
            assert f"{target.architecture}-linux-gnu-gcc" in programs
            assert str(toolchain.sysroot(target) / "include" / "stdlib.h") in programs
    assert {"qemu-user", "clang-19", "lld-19", "llvm-19"} <= packages


def test_the_cross_group_is_quiet_when_all_is_there():
    done = subprocess.run([SCRIPT, "cross"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_group_is_refused():
    done = subprocess.run([SCRIPT, "nope"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "wanted demo, test, services or cross" in done.stderr
