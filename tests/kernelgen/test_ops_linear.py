"""Products with weights: what public bug reports say goes wrong, as cases with exact bounds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kernelgen.emit import flags, source
from kernelgen.judge.compare import compare
from kernelgen.machine import describe
from kernelgen.ops import from_spec
from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.ops.gemm_plain import Gemm, silu
from kernelgen.ops.gemv import Gemv
from kernelgen.ops.gemv_int4 import GemvInt4
from kernelgen.ops.gemv_int8 import GemvInt8
from kernelgen.ops.operator import Array, Operator
from kernelgen.package.native import Block, Native
from kernelgen.schedule import Schedule, space
from kernelgen.targets.cpu import compile_shared
from tests.quick import some

HERE = describe(measure=False)
POISON = np.float32(np.nan)
FORMS = ("planes", "widened")

Arrays = dict[str, Array]
Change = Callable[[Arrays, np.random.Generator], None]


def chosen(operator: Operator, **choices: int | str) -> Schedule:
    """The default schedule with those of the choices that it has."""
    schedule = space(operator, HERE).default()
    for axis, choice in choices.items():
        if axis in schedule.as_dict:
            schedule = schedule.with_choice(axis, choice)
    return schedule


def built(operator: Operator, folder: Path, **choices: int | str) -> Native:
    """The compiled kernel under `chosen`; smaller tiles compile faster."""
    schedule = chosen(operator, **choices)
    assert space(operator, HERE).legal(schedule) is None
    outcome = compile_shared(source(operator, schedule), flags(HERE, schedule), folder / "k.so")
    assert outcome.path is not None, outcome.stderr
    return Native(outcome.path)


def outcome(native: Native, operator: Operator, arrays: Arrays, dims: dict[str, int]) -> Arrays:
    """Outputs of one call, in buffers that held NaN, between guard values that must survive."""
    sizes = np.array([dims[name] for name in operator.dims], np.int64)
    packed = native.prepare([arrays[t.name] for t in operator.by_role("weight")], sizes)
    scratch = Block(native.scratch_bytes(sizes))
    ins = [np.ascontiguousarray(arrays[t.name]) for t in operator.by_role("input")]
    (tensor,) = operator.by_role("output")
    count = int(np.prod(tensor.sizes(dims)))
    guarded = np.full(count + 128, POISON, np.float32)
    guarded[:64] = guarded[-64:] = 77.0
    out = guarded[64:-64]
    given, taken = (
        (ctypes.c_void_p * len(several))(*(array.ctypes.data for array in several))
        for several in (ins, [out])
    )
    code = native.kernel(
        *map(ctypes.addressof, (given, taken)), sizes.ctypes.data, packed.address, scratch.address
    )
    assert code == 0
    assert (guarded[:64] == 77.0).all()
    assert (guarded[-64:] == 77.0).all()
    return {tensor.name: out.reshape(tensor.sizes(dims))}


def right(
    operator: Operator, arrays: Arrays, dims: dict[str, int], got: Arrays, exact: bool
) -> None:
    want, bound = operator.oracle(arrays, dims), operator.error_bound(arrays, dims)
    found = compare(got, want, bound, poison=0x7FC00001, exact=exact)
    assert found.reason is None, found


def _ends(arrays: Arrays, rng: np.random.Generator) -> None:
    """Every byte at an end of its range, where pairs of products saturate 16 bits."""
    for name in ("a", "w"):
        kind = np.iinfo(arrays[name].dtype)
        arrays[name][...] = rng.choice([kind.min, kind.max], arrays[name].shape)
    arrays["a"][0] = np.iinfo(arrays["a"].dtype).max
    arrays["w"][:, 0] = -128


def _every_half(arrays: Arrays, rng: np.random.Generator) -> None:
    """Every byte value, so every pair of four-bit values, in every place of a step."""
    w = arrays["w"]
    w[...] = (np.arange(w.size) % 256).astype(np.uint8).reshape(w.shape)


def _nothing_left(arrays: Arrays, rng: np.random.Generator) -> None:
    """Weights equal to their zero point: every product is nothing, and so is the answer."""
    arrays["w"][...] = 0x77
    arrays["zero"][...] = 7


def _far_zero(arrays: Arrays, rng: np.random.Generator) -> None:
    """Zero points beyond four bits are numbers all the same."""
    arrays["zero"][...] = rng.choice([0, 15, 16, 255], arrays["zero"].shape)


def _garbage_after_the_end(arrays: Arrays, rng: np.random.Generator) -> None:
    """The unused half of the last byte of an odd k."""
    arrays["w"][:, -1] |= 0xF0


def _outlier(arrays: Arrays, rng: np.random.Generator) -> None:
    """One activation a thousand times the others, as trained decoders have them."""
    arrays["a"][:, 3] = 3000.0


def _small(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["a"] *= np.float32(1e-30)


def _large(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["a"] *= np.float32(1e30)


def _zero_row(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["a"][0] = 0.0


def _lowest(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["w"][...] = -128


def _nothing(arrays: Arrays, rng: np.random.Generator) -> None:
    return None


CASES: list[tuple[str, Operator, tuple[int, ...], Change]] = [
    ("pytorch/pytorch#140208: int8 weights, NaN at N=65", GemvInt8(64, 65), (1, 5), _nothing),
    ("pytorch/pytorch#140208: groups, N=65", GemvInt8(96, 65, 32), (2,), _nothing),
    ("oneDNN#1805: u8 s8 saturates", GemmInt8(72, 40), (1, 6), _ends),
    ("oneDNN#1805: s8 s8 saturates", GemmInt8(72, 40, True), (6,), _ends),
    ("oneDNN#1805: weights at one end", GemvInt8(64, 48), (3,), _lowest),
    ("oneDNN#5717: K not a multiple of 32", GemmInt8(33, 17), (4,), _nothing),
    ("oneDNN#5717: K not a multiple of 32", GemvInt8(35, 18), (2,), _nothing),
    ("oneDNN#5717: K not a multiple of 32", Gemm(33, 17), (4,), _nothing),
    ("tensorflow#61510: VNNI wrong at odd sizes", GemmInt8(1, 1), (1,), _nothing),
    ("llama.cpp#12657: every half", GemvInt4(64, 64, 32), (1, 4), _every_half),
    ("llama.cpp#876: odd sizes and groups cut short", GemvInt4(85, 33, 16), (3,), _nothing),
    ("llama.cpp#876: odd k", GemvInt4(61, 20, 32), (2,), _garbage_after_the_end),
    ("weights that are nothing", GemvInt4(64, 20, 32), (2,), _nothing_left),
    ("zero points beyond four bits", GemvInt4(256, 20, 128), (2,), _far_zero),
    ("groups too large for whole numbers", GemvInt4(512, 20, 256), (2,), _nothing),
    ("activation outliers", GemvInt8(96, 40), (3,), _outlier),
    ("activation outliers", GemvInt4(96, 40, 32), (3,), _outlier),
    ("activations near the lower end", GemvInt8(64, 24), (2,), _small),
    ("activations near the upper end", GemvInt4(64, 24, 32), (2,), _large),
    ("a row of zeros", GemvInt8(64, 24), (2,), _zero_row),
    ("OpenBLAS#171: tail lanes", Gemm(17, 5, "bias"), (1, 3), _nothing),
    ("libxsmm#51: rows longer than the tile", Gemm(9, 130, "residual"), (2, 7), _nothing),
    ("OpenBLAS#2187: AVX-512 tails", Gemv(31, 97), (), _nothing),
    ("one number", Gemv(1, 1), (), _nothing),
    ("PP-OCR head, cut", Gemm(24, 121), (40,), _nothing),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "rows", "change"),
    [pytest.param(*case[1:], id=f"{case[0]} {case[1].name}") for case in some(CASES, 14)],
)
def test_reported_cases(
    operator: Operator, rows: tuple[int, ...], change: Change, tmp_path: Path
) -> None:
    forms = [f for f in FORMS if "form" in space(operator, HERE).axes] or [""]
    for form in forms:
        choices: dict[str, int | str] = {"mr": 4 if not form else 2, "nr": 2, "form": form}
        if form == "planes" and isinstance(operator, GemvInt4) and operator.group > 128:
            refusal = space(operator, HERE).legal(chosen(operator, **choices))
            assert refusal is not None
            assert refusal.startswith("form: planes take groups of up to 128")
            continue
        native = built(operator, tmp_path, **choices)
        for m in rows or (1,):
            dims = {"m": m} if rows else {}
            for regime in ("nominal", "integer_exact"):
                rng = np.random.default_rng(m)
                arrays = operator.sample(rng, dims, regime)
                change(arrays, rng)
                got = outcome(native, operator, arrays, dims)
                right(operator, arrays, dims, got, regime == "integer_exact")


@pytest.mark.parametrize("operator", [GemvInt8(40, 20), GemvInt4(40, 20, 16)], ids=lambda o: o.name)
@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_is_not_finite_spoils_no_other_and_is_never_hidden(
    operator: Operator, form: str, tmp_path: Path
) -> None:
    """oneDNN#5717: a NaN of one row must not reach another; nor may it be lost."""
    native = built(operator, tmp_path, form=form, mr=2)
    for bad in (np.nan, np.inf, -np.inf):
        arrays = operator.sample(np.random.default_rng(1), {"m": 3}, "nominal")
        arrays["a"][1, 7] = bad
        got = outcome(native, operator, arrays, {"m": 3})["out"]
        assert np.isfinite(got[[0, 2]]).all()
        if form == "planes":
            assert np.isnan(got[1]).all()
        else:
            assert not np.isfinite(got[1]).any()


def test_the_output_is_never_read(tmp_path: Path) -> None:
    """flame/blis#552: with beta = 0 what lies in C must not matter; it is NaN in every test here,
    and here it is infinite too.
    """
    operator = Gemm(20, 40, "bias_silu")
    native = built(operator, tmp_path, mr=4)
    arrays = operator.sample(np.random.default_rng(2), {"m": 6}, "nominal")
    right(operator, arrays, {"m": 6}, outcome(native, operator, arrays, {"m": 6}), exact=False)


def test_every_number_of_rows_meets_the_right_tiles(tmp_path: Path) -> None:
    operator = Gemm(12, 34, "residual")
    native = built(operator, tmp_path, mr=12, rows=24)
    for m in (*range(1, 14), 23, 24, 25, 37, 49):
        arrays = operator.sample(np.random.default_rng(m), {"m": m}, "integer_exact")
        got = outcome(native, operator, arrays, {"m": m})
        right(operator, arrays, {"m": m}, got, exact=True)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"family": "gemm", "k": 4, "n": 4, "epilogue": "relu"}, r"gemm\.epilogue: got 'relu'"),
        ({"family": "gemm", "k": 0, "n": 4}, r"gemm\.k: got 0, wanted"),
        ({"family": "gemv", "k": 4, "n": True}, r"gemv\.n: got True"),
        (
            {"family": "gemv_int8", "k": 1 << 17, "n": 4},
            r"gemv_int8\.k: got 131072, wanted at most",
        ),
        ({"family": "gemv_int8", "k": 64, "n": 4, "group": 24}, r"gemv_int8\.group: got 24"),
        ({"family": "gemv_int4", "k": 64, "n": 4, "group": 8192}, r"gemv_int4\.group: got 8192"),
        ({"family": "gemm_int8", "k": 64, "n": 4, "signed": 1}, r"gemm_int8\.signed: got 1"),
    ],
)
def test_wrong_sizes_are_named(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_spec(spec)


def test_silu_stays_finite_far_out() -> None:
    x = np.array([-1e4, -90.0, -1.0, 0.0, 1.0, 90.0, 1e4])
    with np.errstate(over="raise", invalid="raise"):
        got = silu(x)
    np.testing.assert_allclose(got, [0.0, -90 * np.exp(-90.0), -0.2689414213699951, 0.0,
                                     0.7310585786300049, 90.0, 1e4], atol=1e-300)  # fmt: skip


def test_too_many_sums_are_refused_by_name() -> None:
    operator = GemvInt8(64, 64)
    found = space(operator, HERE)
    crowded = found.default().with_choice("mr", 8).with_choice("nr", 4)
    crowded = crowded.with_choice("form", "planes")
    reason = found.legal(crowded)
    assert reason is not None
    assert reason.startswith("mr: 8 x 4 x 4 sums")
