"""Every schedule's C is compiled and run against the float64 oracle, on sizes with every kind of
tail.
"""

import ctypes
import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernelgen.emit import ERRORS, flags, source
from kernelgen.emit.part import fill
from kernelgen.machine import describe
from kernelgen.ops import (
    Attention,
    EmbedLayernorm,
    GemmBias,
    GemmBiasGelu,
    GemmBiasResidualLayernorm,
    MeanPool,
)
from kernelgen.package.native import Block, Native
from kernelgen.schedule import Schedule, ScheduleError, space
from kernelgen.targets.cpu import compile_shared
from tests.quick import some

HERE = describe(measure=False)
MACHINES = {8: replace(HERE, isa=("avx2", "bmi2", "f16c", "fma"))}
if "avx512vl" in HERE.isa:
    MACHINES[16] = HERE
OPERATORS = {
    op.family: op
    for op in (
        GemmBias(96, 96),
        GemmBiasGelu(96, 192),
        GemmBiasResidualLayernorm(192, 96, 1e-12),
        Attention(3, 32, 32**-0.5),
        MeanPool(96),
        EmbedLayernorm(60, 140, 96, 1e-12),
    )
}
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")

pytestmark = pytest.mark.skipif("avx2" not in HERE.isa, reason="needs AVX2")


@cache
def built(family: str, width: int, seed: int | None, folder: Path) -> Native:
    operator, machine = OPERATORS[family], MACHINES[width]
    found = space(operator, machine)
    schedule = found.default() if seed is None else found.sample(np.random.default_rng(seed))
    options = (*flags(machine, schedule), *WARNINGS)
    out = folder / f"{family}_{width}_{seed}.so"
    outcome = compile_shared(source(operator, schedule), options, out)
    assert outcome.path is not None, outcome.stderr
    return Native(outcome.path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("emit")


def run(native: Native, operator, arrays, dims) -> tuple[int, np.ndarray]:
    values = [dims[name] for name in operator.dims]
    packed = native.prepare([arrays[t.name] for t in operator.by_role("weight")], values)
    scratch = Block(native.scratch_bytes(values))
    inputs = [np.ascontiguousarray(arrays[t.name]) for t in operator.by_role("input")]
    (tensor,) = operator.by_role("output")
    shape = tensor.sizes(dims)
    # Guard words on both sides show a store outside the result.
    room = np.full(int(np.prod(shape)) + 64, np.float32(np.nan))
    out = room[32:-32]
    table = (ctypes.c_void_p * len(inputs))(*(array.ctypes.data for array in inputs))
    target = (ctypes.c_void_p * 1)(out.ctypes.data)
    sizes = np.array(values, np.int64)
    rc = native.kernel(
        ctypes.addressof(table),
        ctypes.addressof(target),
        sizes.ctypes.data,
        packed.address,
        scratch.address,
    )
    assert np.isnan(room[:32]).all()
    assert np.isnan(room[-32:]).all()
    return rc, out.reshape(shape).copy()


def dims_of(operator) -> list[dict[str, int]]:
    if operator.dims == ("m",):
        return [{"m": m} for m in (*range(1, 18), 25, 40, 201)]
    return [
        {"n": n, "tokens": t}
        for n, t in [(1, 1), (1, 2), (1, 3), (2, 9), (1, 16), (3, 17), (1, 33), (4, 100), (1, 128)]
    ]


CASES = [
    pytest.param(family, width, id=f"{family}-{width}")
    for family in OPERATORS
    for width in MACHINES
]


@pytest.mark.parametrize(("family", "width"), CASES)
def test_default_schedule_meets_the_bound_in_every_regime_and_size(family, width, folder):
    operator, native = OPERATORS[family], built(family, width, None, folder)
    rng = np.random.default_rng(0)
    from kernelgen.ops import REGIMES

    for place, dims in enumerate(dims_of(operator)):
        for regime in (REGIMES[place % len(REGIMES)], "nominal"):
            arrays = operator.sample(rng, dims, regime)
            rc, got = run(native, operator, arrays, dims)
            assert rc == 0
            error = np.abs(got - operator.oracle(arrays, dims)["out"])
            assert (error <= operator.error_bound(arrays, dims)["out"]).all(), (dims, regime)


@pytest.mark.parametrize(("family", "width"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_schedules_meet_the_bound(family, width, seed, folder):
    operator, native = OPERATORS[family], built(family, width, seed, folder)
    rng = np.random.default_rng(seed)
    for dims in dims_of(operator)[::2]:
        arrays = operator.sample(rng, dims, "ragged")
        rc, got = run(native, operator, arrays, dims)
        assert rc == 0
        error = np.abs(got - operator.oracle(arrays, dims)["out"])
        assert (error <= operator.error_bound(arrays, dims)["out"]).all(), dims


@pytest.mark.slow
@pytest.mark.parametrize(("family", "width"), CASES)
def test_many_drawn_schedules_meet_the_bound(family, width, folder):
    for seed in some(range(10, 30), 4):
        test_drawn_schedules_meet_the_bound(family, width, seed, folder)


@pytest.mark.parametrize("width", MACHINES)
def test_integers_come_out_exact(width, folder):
    operator, native = OPERATORS["gemm_bias"], built("gemm_bias", width, None, folder)
    dims = {"m": 13}
    arrays = operator.sample(np.random.default_rng(0), dims, "integer_exact")
    rc, got = run(native, operator, arrays, dims)
    assert rc == 0
    assert np.array_equal(got, operator.oracle(arrays, dims)["out"])


@pytest.mark.parametrize(("family", "width"), CASES)
def test_results_repeat_bit_for_bit(family, width, folder):
    operator, native = OPERATORS[family], built(family, width, None, folder)
    dims = {"m": 29} if operator.dims == ("m",) else {"n": 3, "tokens": 50}
    arrays = operator.sample(np.random.default_rng(0), dims, "nominal")
    first = run(native, operator, arrays, dims)[1]
    assert np.array_equal(first, run(native, operator, arrays, dims)[1])


@pytest.mark.parametrize("width", MACHINES)
def test_a_sequence_is_the_same_alone_and_in_company(width, folder):
    operator, native = OPERATORS["attention"], built("attention", width, None, folder)
    arrays = operator.sample(np.random.default_rng(0), {"n": 3, "tokens": 60}, "nominal")
    together = run(native, operator, arrays, {"n": 3, "tokens": 60})[1]
    begin, end = arrays["offsets"][1:3]
    alone = {"qkv": arrays["qkv"][begin:end], "offsets": np.array([0, end - begin])}
    dims = {"n": 1, "tokens": int(end - begin)}
    assert np.array_equal(run(native, operator, alone, dims)[1], together[begin:end])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ids": np.array([0, 1, 60])}, 3),
        ({"ids": np.array([0, -1, 2])}, 3),
        ({"offsets": np.array([0, 4])}, 5),
        ({"offsets": np.array([1, 3])}, 5),
    ],
)
def test_bad_inputs_are_refused_with_a_code(change, code, folder):
    operator, native = OPERATORS["embed_layernorm"], built("embed_layernorm", 8, None, folder)
    dims = {"n": 1, "tokens": 3}
    arrays = operator.sample(np.random.default_rng(0), dims, "nominal") | change
    assert run(native, operator, arrays, dims)[0] == code
    assert code in ERRORS


def test_a_sequence_longer_than_the_positions_is_refused(folder):
    operator, native = OPERATORS["embed_layernorm"], built("embed_layernorm", 8, None, folder)
    dims = {"n": 1, "tokens": 141}
    arrays = operator.sample(np.random.default_rng(0), {"n": 2, "tokens": 141}, "structured")
    arrays["offsets"] = np.array([0, 141])
    assert run(native, operator, arrays, dims)[0] == 4


@pytest.mark.parametrize("family", OPERATORS)
def test_libraries_ask_for_nothing_unusual(family, folder):
    built(family, 8, None, folder)
    table = subprocess.run(
        ["nm", "-D", str(folder / f"{family}_8_None.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = {line.split()[-1].split("@")[0] for line in table.splitlines() if " U " in line}
    assert wanted <= {"memcpy", "memset", "memmove"}
    made = {line.split()[-1] for line in table.splitlines() if " T " in line}
    assert made == {"packed_bytes", "prepare", "scratch_bytes", "kernel"}


@pytest.mark.parametrize("family", OPERATORS)
def test_sources_are_readable(family):
    operator = OPERATORS[family]
    schedule = space(operator, MACHINES[8]).default()
    text = source(operator, schedule)
    assert operator.name in text
    assert schedule.text() in text
    assert "${" not in text
    assert text.isascii()
    assert not re.search(r"immintrin|_mm\d*_", text)
    assert max(len(line) for line in text.splitlines()) <= 150
    assert text == source(operator, schedule)


def test_flags_are_those_of_all_schedules_of_a_file():
    words = ("amx_bf16", "amx_int8", "amx_tile", "avx2", "avx512f", "avx512vl")
    machine = replace(HERE, isa=words)
    narrow = Schedule.of("one", {"vector": 8})
    wide = Schedule.of("two", {"vector": 16, "tiles": 0})
    unit = Schedule.of("three", {"vector": 16, "tiles": 9})
    assert flags(machine, narrow, wide) == flags(machine, wide)
    assert flags(machine, wide, narrow, unit) == flags(machine, unit)
    assert "-mamx-bf16" in flags(machine, narrow, unit)
    assert "-mamx-bf16" not in flags(machine, narrow, wide)


def test_a_schedule_for_another_operator_is_refused():
    schedule = space(MeanPool(96), HERE).default()
    with pytest.raises(ScheduleError, match="wanted 'mean_pool_64'"):
        source(MeanPool(64), schedule)


def test_templates_cannot_be_half_filled():
    with pytest.raises(KeyError):
        fill("${here} ${missing}", {"here": 1})


def test_the_compiler_says_why(tmp_path):
    outcome = compile_shared("int broken(", (), tmp_path / "x.so")
    assert outcome.path is None
    assert "error" in outcome.stderr
    assert not (tmp_path / "x.so").exists()


def test_the_compiler_runs_out_of_time(tmp_path):
    outcome = compile_shared("int fine(void) { return 1; }", (), tmp_path / "x.so", limit_s=0.0005)
    assert outcome.path is None
    assert "time limit" in outcome.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["x.c"]
