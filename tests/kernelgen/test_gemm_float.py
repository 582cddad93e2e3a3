"""Float32 products: the matrix unit is as exact as multiply-adds, schedules change only the time,
and the space offers the unit only where there is one.
"""

import ctypes
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernelgen import sketches
from kernelgen.emit import flags, source
from kernelgen.machine import describe
from kernelgen.ops import GemmBias, GemmBiasGelu, GemmBiasResidualLayernorm
from kernelgen.ops.gemm_plain import Gemm
from kernelgen.package.native import Block, Native
from kernelgen.schedule import space
from kernelgen.sketches import fitted
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile import interpret

HERE = describe(measure=False)
UNIT = {"amx_bf16", "amx_tile"}
MATRIX = replace(
    HERE, isa=("amx_bf16", "amx_tile", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma")
)
AVX2 = replace(HERE, isa=("avx2", "fma"))
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
OPERATORS = {
    "bias": GemmBias(96, 96),
    "gelu": GemmBiasGelu(96, 192),
    "norm": GemmBiasResidualLayernorm(192, 96, 1e-12),
    # Neither inner length nor columns fill whole steps of the unit.
    "odd": Gemm(71, 83, "residual"),
}

HAS_UNIT = pytest.mark.skipif(
    not set(HERE.isa) >= UNIT, reason="needs a matrix unit that the system lets us use"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("gemm_float")


def chosen(operator, machine, **choices):
    found = space(operator, machine)
    schedule = found.default()
    for axis, value in choices.items():
        schedule = schedule.with_choice(axis, value)
    assert found.legal(schedule) is None
    return schedule


@cache
def built(name: str, tiles: int, rows: int, folder: Path) -> Native:
    operator = OPERATORS[name]
    schedule = chosen(operator, HERE, tiles=tiles, rows=rows)
    options = (*flags(HERE, schedule), *WARNINGS)
    outcome = compile_shared(
        source(operator, schedule), options, folder / f"{name}_{tiles}_{rows}.so"
    )
    assert outcome.path is not None, outcome.stderr
    return Native(outcome.path)


def run(native: Native, operator, arrays, rows: int) -> np.ndarray:
    packed = native.prepare([arrays[t.name] for t in operator.by_role("weight")], [rows])
    scratch = Block(native.scratch_bytes([rows]))
    # Whatever a call leaves there, the next one must not read before it writes.
    scratch.bytes[:] = 0xFF
    inputs = [np.ascontiguousarray(arrays[t.name]) for t in operator.by_role("input")]
    out = np.full((rows, operator.n), np.float32(np.nan))
    table = (ctypes.c_void_p * len(inputs))(*(array.ctypes.data for array in inputs))
    target = (ctypes.c_void_p * 1)(out.ctypes.data)
    sizes = np.array([rows], np.int64)
    code = native.kernel(
        ctypes.addressof(table),
        ctypes.addressof(target),
        sizes.ctypes.data,
        packed.address,
        scratch.address,
    )
    assert code == 0
    return out


@HAS_UNIT
@pytest.mark.parametrize(
    ("name", "block"), [("bias", 24), ("gelu", 96), ("norm", 24), ("norm", 96), ("odd", 24)]
)
def test_the_matrix_unit_is_as_exact_as_multiply_adds(name, block, folder):
    operator = OPERATORS[name]
    unit, plain = built(name, 9, block, folder), built(name, 0, 96, folder)
    rng = np.random.default_rng(0)
    regimes = ("shifted", "scaled_up", "scaled_down", "integer_exact")
    for place, rows in enumerate((8, 9, 16, 17, 31, 32, 33, 48, 49, 65, 130)):
        for regime in ("nominal", regimes[place % len(regimes)]):
            arrays = operator.sample(rng, {"m": rows}, regime)
            wanted = operator.oracle(arrays, {"m": rows})["out"]
            bound = np.maximum(operator.error_bound(arrays, {"m": rows})["out"], 1e-300)
            worst = (np.abs(run(unit, operator, arrays, rows) - wanted) / bound).max()
            other = (np.abs(run(plain, operator, arrays, rows) - wanted) / bound).max()
            assert worst <= 2.0 * other + 0.05, (rows, regime)
            assert worst <= 1.0


@HAS_UNIT
def test_a_row_is_the_same_in_any_company(folder):
    operator, unit = OPERATORS["norm"], built("norm", 9, 96, folder)
    arrays = operator.sample(np.random.default_rng(1), {"m": 70}, "nominal")
    together = run(unit, operator, arrays, 70)
    some = {**arrays, "a": arrays["a"][40:57], "residual": arrays["residual"][40:57]}
    assert np.array_equal(run(unit, operator, some, 17), together[40:57])


@pytest.mark.parametrize(
    ("operator", "choices"),
    [
        (Gemm(40, 33), {"tiles": 9, "rows": 24}),
        (GemmBiasGelu(33, 70), {"tiles": 9, "rows": 48, "mr": 8, "nr": 3}),
        (GemmBiasResidualLayernorm(64, 40, 1e-12), {"tiles": 9, "rows": 48, "mr": 8, "nr": 2}),
        (Gemm(37, 65, "bias_silu"), {"order": "rows", "tail": "last", "nr": 3, "mr": 8}),
        (GemmBias(19, 50), {"order": "rows", "prefetch": 0, "mr": 4, "nr": 3}),
    ],
    ids=str,
)
def test_programs_stay_in_bounds_and_meet_the_bound(operator, choices):
    """The interpreter watches bounds, unset values and races; the machine need not be here."""
    schedule = chosen(operator, MATRIX, **{"tiles": 0, **choices})
    kernel = fitted(sketches.find(operator.family), operator, schedule)
    for rows in (8, 37):
        arrays = operator.sample(np.random.default_rng(rows), {"m": rows}, "nominal")
        got = interpret(kernel, arrays, {"m": rows}).outputs["out"]
        error = np.abs(got - operator.oracle(arrays, {"m": rows})["out"])
        assert (error <= operator.error_bound(arrays, {"m": rows})["out"]).all(), rows


FLT_MAX = np.finfo(np.float32).max
EDGES = np.array([FLT_MAX, -FLT_MAX, 255 * 2.0**120, 3.39618e38, -3.3962e38, 3.4e38], np.float32)
NAN_BITS = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFF8000, 0x7F800001], np.uint32)


def edge_cases() -> tuple[Gemm, dict[str, np.ndarray]]:
    """Every row holds one number from the edge of float32, or none at all."""
    operator = Gemm(64, 32)
    numbers = np.concatenate([EDGES, NAN_BITS.view(np.float32), [np.float32(np.inf)]])
    a = np.zeros((len(numbers) + 2, operator.k), np.float32)
    a[np.arange(len(numbers)), np.arange(len(numbers)) * 5] = numbers
    rng = np.random.default_rng(6)
    weights = {
        t.name: rng.uniform(0.1, 0.9, t.sizes({"m": 1})).astype(np.float32)
        for t in operator.by_role("weight")
    }
    return operator, {"a": a, **weights}


def check_edge_cases(operator: Gemm, arrays: dict[str, np.ndarray], got: np.ndarray) -> None:
    whole = len(EDGES)
    want = operator.oracle({**arrays, "a": arrays["a"][:whole]}, {"m": whole})["out"]
    np.testing.assert_allclose(got[:whole], want, rtol=2.0**-21)
    assert np.isnan(got[whole : whole + len(NAN_BITS)]).all()
    assert not np.isfinite(got[-3]).any()
    assert np.isfinite(got[-2:]).all()


def test_the_largest_floats_and_nan_come_through_the_matrix_unit():
    operator, arrays = edge_cases()
    schedule = chosen(operator, MATRIX, tiles=9, rows=24)
    kernel = fitted(sketches.find(operator.family), operator, schedule)
    got = interpret(kernel, arrays, {"m": len(arrays["a"])}).outputs["out"]
    check_edge_cases(operator, arrays, got)


@HAS_UNIT
def test_the_largest_floats_and_nan_come_through_the_instructions(folder):
    operator, arrays = edge_cases()
    schedule = chosen(operator, HERE, tiles=9, rows=24)
    outcome = compile_shared(source(operator, schedule), flags(HERE, schedule), folder / "edge.so")
    assert outcome.path is not None, outcome.stderr
    check_edge_cases(
        operator, arrays, run(Native(outcome.path), operator, arrays, len(arrays["a"]))
    )


def test_the_matrix_unit_is_offered_only_where_there_is_one():
    operator = GemmBias(256, 96)
    assert space(operator, AVX2).axes["tiles"] == (0,)
    assert space(operator, AVX2).default().number("tiles") == 0
    with_unit = space(operator, MATRIX)
    assert with_unit.default().number("tiles") > 0
    assert [one.number("tiles") for one in with_unit.stock().values()] == [0]


@pytest.mark.parametrize(("k", "n"), [(224, 96), (256, 16)])
def test_the_matrix_unit_is_left_alone_where_products_are_too_small_for_it(k, n):
    assert space(GemmBias(k, n), MATRIX).default().number("tiles") == 0


def test_the_matrix_unit_wants_vectors_of_its_own_width():
    found = space(GemmBias(256, 96), MATRIX)
    reason = found.legal(found.default().with_choice("mr", 4).with_choice("vector", 8))
    assert reason is not None
    assert reason == "tiles: the matrix unit takes vectors of 16, got vector=8"
