"""Row-wise operators on the inputs that public bug reports name: each row of `CASES` says which.

Every case goes through compiled C at two widths; short ones and those with NaN or masks through the
interpreter too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from kernelgen.emit import flags, source
from kernelgen.emit.c import Writer
from kernelgen.emit.part import BAD_ID, BAD_LENGTH
from kernelgen.emit.vocabulary import vocabulary
from kernelgen.judge import Candidate
from kernelgen.judge.contest import Point
from kernelgen.judge.trial import judge_points
from kernelgen.machine import Machine, describe, isa_flags
from kernelgen.ops import Operator
from kernelgen.ops.activation import Gelu, Silu, Swiglu
from kernelgen.ops.embedding import Embedding
from kernelgen.ops.layernorm import Layernorm, ResidualLayernorm
from kernelgen.ops.operator import Array
from kernelgen.ops.rmsnorm import ResidualRmsnorm, Rmsnorm
from kernelgen.ops.rope import Rope
from kernelgen.ops.softmax import Softmax
from kernelgen.ops.topk import TopK
from kernelgen.package.native import Block, Native
from kernelgen.schedule import Schedule, space
from kernelgen.sketches import fitted, sketches
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile import Build, Kernel, interpret
from kernelgen.tile.build import span, word
from tests.quick import some

HERE = describe(measure=False)
MACHINES: dict[int, Machine] = {4: replace(HERE, isa=())}
if "avx2" in HERE.isa:
    MACHINES[8] = replace(HERE, isa=("avx2", "bmi2", "f16c", "fma"))
if "avx512vl" in HERE.isa:
    MACHINES[16] = HERE

F32 = np.float32
Made = dict[str, Array]


@cache
def built(operator: Operator, schedule: Schedule, width: int) -> Path:
    path = Path(mkdtemp(prefix="rows-")) / "kernel.so"
    made = compile_shared(source(operator, schedule), flags(MACHINES[width], schedule), path)
    assert made.path is not None, made.stderr
    return made.path


def run(
    operator: Operator, dims: Mapping[str, int], arrays: Made, width: int, **choices: int
) -> tuple[int, Made]:
    """Return code and outputs of the compiled kernel; the default schedule but for `choices`."""
    schedule = space(operator, MACHINES[width]).default()
    for axis, value in choices.items():
        schedule = schedule.with_choice(axis, value)
    native = Native(built(operator, schedule, width))
    sizes = np.array([dims[name] for name in operator.dims], np.int64)
    packed = native.prepare([arrays[t.name] for t in operator.by_role("weight")], sizes)
    scratch = Block(native.scratch_bytes(sizes))
    ins = [np.ascontiguousarray(arrays[t.name]) for t in operator.by_role("input")]
    outs = {t.name: np.full(t.sizes(dims), 77, t.dtype) for t in operator.by_role("output")}
    pointers = [
        (ctypes.c_void_p * len(several))(*(array.ctypes.data for array in several))
        for several in (ins, list(outs.values()))
    ]
    code = native.kernel(
        *map(ctypes.addressof, pointers), sizes.ctypes.data, packed.address, scratch.address
    )
    return code, outs


def right(operator: Operator, dims: Mapping[str, int], arrays: Made, got: Made) -> None:
    """Within the bound, infinities and NaN exactly where the oracle has them."""
    wanted = operator.oracle(arrays, dims)
    with np.errstate(all="ignore"):
        bound = operator.error_bound(arrays, dims)
    for name, want in wanted.items():
        mine = got[name].astype(np.float64)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(mine[~finite], want[~finite])
        error = np.abs(np.where(finite, mine, 0.0) - np.where(finite, want, 0.0))
        assert np.all(error[finite] <= np.broadcast_to(bound[name], want.shape)[finite]), name


def drawn(operator: Operator, dims: Mapping[str, int], seed: int = 3) -> Made:
    return operator.sample(np.random.default_rng(seed), dims, "nominal")


def normal(*shape: int, seed: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


@dataclass(frozen=True)
class Case:
    """`report` names the public report or rule the input comes from. `widest`: at the machine's
    full width alone, for what takes a compiler seconds at the others.
    """

    report: str
    operator: Operator
    dims: Mapping[str, int]
    change: Callable[[Made], Made]
    widest: bool = False

    @property
    def arrays(self) -> Made:
        return self.change(drawn(self.operator, self.dims))


def put(name: str, value: object, *at: object) -> Callable[[Made], Made]:
    """Sets `name`, or the places `at` of it, to `value`."""

    def change(arrays: Made) -> Made:
        array = np.array(arrays[name])
        if at:
            array[at[0] if len(at) == 1 else at] = value  # type: ignore[index]
        else:
            array = np.broadcast_to(np.asarray(value, array.dtype), array.shape).copy()
        return {**arrays, name: array}

    return change


def plus(name: str, value: float) -> Callable[[Made], Made]:
    return lambda arrays: {**arrays, name: arrays[name] + F32(value)}


def times(name: str, value: float) -> Callable[[Made], Made]:
    return lambda arrays: {**arrays, name: arrays[name] * F32(value)}


FAR_LEFT = np.s_[:, 70:]
INF = np.inf
CASES = [
    Case("buddy-mlir#837 masked block", Softmax(150, True), {"m": 3}, put("mask", -INF, FAR_LEFT)),
    Case("buddy-mlir#837 all masked", Softmax(150, True), {"m": 3}, put("mask", -INF)),
    Case("buddy-mlir#837 all -inf", Softmax(33), {"m": 2}, put("x", -INF, 1)),
    Case("lowest finite mask", Softmax(40, True), {"m": 3}, put("mask", np.finfo(F32).min)),
    Case("softmax offset 1e4", Softmax(200), {"m": 3}, plus("x", 1e4)),
    Case("softmax offset -1e30", Softmax(50), {"m": 3}, put("x", -1e30)),
    Case("softmax infinite score", Softmax(50), {"m": 3}, put("x", INF, 1, 7)),
    Case("softmax NaN score", Softmax(50), {"m": 5}, put("x", np.nan, 1, 49)),
    Case("softmax equal scores", Softmax(6625), {"m": 2}, put("x", 3.25)),
    Case("E03 answers near zero", Softmax(49152), {"m": 1}, times("x", 1e-3)),
    Case("E03 answers below 1e-8", Layernorm(384, 1e-5), {"m": 3}, times("x", 1e-8)),
    Case("E06 LayerNorm(x) ~ x", Layernorm(384, 1e-12), {"m": 3}, put("beta", 0.0)),
    Case("LayerNorm mean 1e4", Layernorm(384, 1e-12), {"m": 5}, plus("x", 1e4)),
    Case("LayerNorm constant row", Layernorm(576, 1e-5), {"m": 3}, put("x", 7.5, 1)),
    Case("LayerNorm huge row", Layernorm(49152, 1e-5), {"m": 1}, plus("x", 100.0)),
    Case("LayerNorm NaN stays in its row", Layernorm(77, 1e-5), {"m": 5}, put("x", np.nan, 2, 76)),
    Case("RMSNorm zeros, epsilon alone", Rmsnorm(576, 1e-5), {"m": 3}, put("x", 0.0, 1)),
    Case("RMSNorm epsilon dominates", Rmsnorm(96, 1e-2), {"m": 3}, times("x", 1e-3)),
    Case("RMSNorm huge row", Rmsnorm(49152, 1e-6), {"m": 1}, times("x", 3.0)),
    Case("RMSNorm NaN", Rmsnorm(77, 1e-5), {"m": 3}, put("x", np.nan, 0, 0)),
    Case(
        "residual that cancels",
        ResidualRmsnorm(96, 1e-5),
        {"m": 3},
        lambda a: {**a, "residual": -a["x"] + F32(1e-3) * normal(3, 96)},
    ),
    Case("residual mean far", ResidualLayernorm(384, 1e-12), {"m": 3}, plus("residual", 3e3)),
    Case("GELU +-1e4", Gelu(40), {"m": 2}, put("x", [-1e4, 1e4] * 20)),
    Case("GELU around its edges", Gelu(400), {"m": 1}, put("x", np.linspace(-6, 6, 400))),
    Case("GELU NaN", Gelu(40), {"m": 2}, put("x", np.nan, 1, 39)),
    Case("GELU near zero (KernelBench#165)", Gelu(64), {"m": 2}, times("x", 1e-6)),
    Case("SiLU +-1e4", Silu(40), {"m": 2}, put("x", [-1e4, 1e4] * 20)),
    Case("SiLU across exp's range", Silu(800), {"m": 1}, put("x", np.linspace(-110, 110, 800))),
    Case("SiLU NaN", Silu(40), {"m": 2}, put("x", np.nan, 0, 3)),
    Case("SiLU near zero (KernelBench#165)", Silu(64), {"m": 2}, times("x", 1e-6)),
    Case("SwiGLU gate -1e4", Swiglu(40), {"m": 2}, put("gate_up", -1e4, np.s_[:, :40])),
    Case("SwiGLU NaN up", Swiglu(40), {"m": 2}, put("gate_up", np.nan, 1, 79)),
    Case("rope last position", Rope(3, 64, 8192), {"tokens": 4}, put("positions", 8191)),
    Case("rope position 0", Rope(3, 64, 32, True), {"tokens": 4}, put("positions", 0)),
    Case("rope odd sizes", Rope(1, 6, 16), {"tokens": 9}, lambda a: a),
    Case("rope odd sizes, neighbours", Rope(5, 10, 16, True), {"tokens": 3}, lambda a: a),
    Case("embedding first and last id", Embedding(7, 33), {"tokens": 4}, put("ids", [0, 6, 6, 0])),
    Case("top-k all equal: lowest places", TopK(700, 20), {"m": 2}, put("x", 1.5)),
    Case("top-k 0 and -0 are equal", TopK(90, 9), {"m": 1}, put("x", [-0.0, 0.0] * 45)),
    Case("top-k clustered maxima", TopK(1000, 17), {"m": 2}, put("x", 9.0, np.s_[:, 511:540])),
    Case("top-k rising", TopK(900, 64), {"m": 1}, put("x", np.arange(900))),
    Case("top-k falling", TopK(900, 64), {"m": 1}, put("x", -np.arange(900))),
    Case("top-k mostly masked", TopK(300, 30), {"m": 2}, put("x", -INF, np.s_[:, 5:])),
    Case("top-k with infinity", TopK(300, 3), {"m": 2}, put("x", INF, 1, 255)),
    Case("top-k NaN comes first", TopK(300, 4), {"m": 2}, put("x", [np.nan, -np.nan], 1, [7, 299])),
    Case("top-k of everything", TopK(37, 37), {"m": 3}, lambda a: a),
    Case("top-k vocabulary", TopK(49152, 40), {"m": 1}, lambda a: a, True),
    Case("top-k beyond 65536", TopK(70001, 5), {"m": 1}, lambda a: a, True),
    *(Case(f"tail {n}", Softmax(n), {"m": 5}, lambda a: a) for n in range(1, 18)),
    *(Case(f"tail {n}", Layernorm(n + 31, 1e-5), {"m": 3}, lambda a: a) for n in (1, 7, 15, 17)),
    *(Case(f"tail {n}", Rmsnorm(n, 1e-5), {"m": 3}, lambda a: a) for n in (1, 5, 15, 16, 17)),
    *(Case(f"tail {n}", Swiglu(n), {"m": 3}, lambda a: a) for n in (1, 3, 15, 17)),
    *(Case(f"tail {n}", TopK(n, 1), {"m": 3}, lambda a: a) for n in (1, 2, 15, 17)),
]
NAMES = [f"{case.operator.name}: {case.report}" for case in CASES]


@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_compiled_kernels_get_reported_inputs_right(number: int) -> None:
    """At full width and, turn about, at one of the others."""
    case, (*others, widest) = CASES[number], sorted(MACHINES)
    arrays = case.arrays
    also = [] if case.widest or not others else [others[number % len(others)]]
    for width in (widest, *also):
        code, got = run(case.operator, case.dims, arrays, width)
        assert code == 0
        right(case.operator, case.dims, arrays, got)


SMALL = [(name, case) for name, case in zip(NAMES, CASES, strict=True) if "tail" in name]
SMALL += [one for one in zip(NAMES, CASES, strict=True) if "NaN" in one[0] or "mask" in one[0]]


@pytest.mark.parametrize("case", [case for _, case in SMALL], ids=[name for name, _ in SMALL])
def test_interpreter_gets_reported_inputs_right(case: Case) -> None:
    schedule = space(case.operator, HERE).default()
    kernel = fitted(sketches()[case.operator.family], case.operator, schedule)
    arrays = case.arrays
    result = interpret(kernel, arrays, case.dims)
    assert result.code == 0
    right(case.operator, case.dims, arrays, result.outputs)


CHUNKED = [
    Case("long row", Softmax(2500), {"m": 2}, times("x", 3.0)),
    Case("long row, rising", Softmax(2500), {"m": 1}, put("x", np.arange(2500) / 10)),
    Case("long row, first chunk masked", Softmax(2500, True), {"m": 2}, put("mask", -INF)),
    Case("long row, NaN at its end", Softmax(2500), {"m": 2}, put("x", np.nan, 0, 2499)),
    Case("long row, infinity first", Softmax(2500), {"m": 2}, put("x", INF, 0, 0)),
]


@pytest.mark.parametrize("case", CHUNKED, ids=[case.report for case in CHUNKED])
def test_rows_in_chunks_are_whole_rows(case: Case) -> None:
    arrays = case.arrays
    for width in MACHINES:
        code, got = run(case.operator, case.dims, arrays, width, chunk=1024, hold=0, rows=1)
        assert code == 0
        right(case.operator, case.dims, arrays, got)


def test_a_masked_row_is_zeros_and_its_neighbours_are_not() -> None:
    operator, dims = Softmax(50, True), {"m": 3}
    arrays = put("mask", -INF, 1)(put("mask", 0.0)(drawn(operator, dims)))
    for width in MACHINES:
        _, got = run(operator, dims, arrays, width)
        assert np.array_equal(got["out"][1], np.zeros(50, F32))
        np.testing.assert_allclose(got["out"][[0, 2]].sum(-1), 1.0, rtol=1e-6)


def test_one_pass_variance_would_not_pass() -> None:
    operator, dims = Layernorm(384, 1e-12), {"m": 3}
    arrays = plus("x", 1e3)(drawn(operator, dims))
    x = arrays["x"]
    mean = x.mean(-1, keepdims=True)
    variance = np.maximum((x * x).mean(-1, keepdims=True) - mean * mean, F32(0))
    naive = (x - mean) / np.sqrt(variance + F32(1e-12)) * arrays["gamma"] + arrays["beta"]
    with pytest.raises(AssertionError):
        right(operator, dims, arrays, {"out": naive})


BAD = [
    (Embedding(40, 96), {"tokens": 3}, "ids", BAD_ID, (-1, 40, 2**62, -(2**62))),
    (Rope(2, 16, 50), {"tokens": 3}, "positions", BAD_LENGTH, (-1, 50, 2**62)),
    (Rope(2, 16, 50, True), {"tokens": 3}, "positions", BAD_LENGTH, (-1, 50, 2**62)),
]


@pytest.mark.parametrize(("operator", "dims", "name", "want", "places"), BAD)
def test_places_outside_a_table_are_refused(
    operator: Operator, dims: Mapping[str, int], name: str, want: int, places: tuple[int, ...]
) -> None:
    for place in places:
        for at in (0, 2):
            arrays = put(name, place, at)(drawn(operator, dims))
            for width in MACHINES:
                assert run(operator, dims, arrays, width)[0] == want
            schedule = space(operator, HERE).default()
            kernel = fitted(sketches()[operator.family], operator, schedule)
            assert interpret(kernel, arrays, dims).code == want


def test_top_k_refuses_a_k_it_has_no_room_for() -> None:
    for n, k in ((100, 0), (100, 65), (5, 6)):
        with pytest.raises(ValueError, match=r"top_k: k: got .* wanted 1 to"):
            TopK(n, k)


def test_rope_refuses_odd_heads() -> None:
    with pytest.raises(ValueError, match="wanted an even number"):
        Rope(2, 15, 8)


def _words() -> Kernel:
    """Every new word on a row of 16, beside its like in plain Python numbers."""
    b = Build("words", ("m",))
    x = b.buffer("x", "f32", ("m", 16), "input")
    names = ("exp_below", "swap", "bits", "maximum", "minimum")
    outs = {
        name: b.buffer(name + "_of_x", "i32" if name == "bits" else "f32", ("m", 16), "output")
        for name in names
    }
    with b.run(), b.parallel("i", 0, "m") as i:
        v = b.let("v", x[i, span(0, 16)])
        turned = b.let("turned", word("swap", v))
        for name in ("exp_below", "swap", "bits"):
            outs[name][i, span(0, 16)] = word(name, v)
        for name in ("maximum", "minimum"):
            outs[name][i, span(0, 16)] = word(name, v, turned)
    return b.kernel()


def test_words_mean_the_same_in_c_and_in_numpy() -> None:
    """Bit for bit but for exp, which may err by four units; NaN stays NaN, -inf gives 0."""
    row = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.nan,
        2.0,
        3.0,
        np.nan,
        INF,
        -INF,
        -86.9,
        -87.1,
        5e-39,
        80,
        -3,
        7,
    ]
    x = np.array([row, row[::-1]], F32)
    kernel = _words()
    want = interpret(kernel, {"x": x}, {"m": 2}).outputs
    for width, machine in MACHINES.items():
        got = _run_words(kernel, x, width, machine)
        for name, array in want.items():
            if name != "exp_below_of_x":
                np.testing.assert_array_equal(got[name].view(np.int32), array.view(np.int32))
                continue
            mine, right_one = got[name].astype(np.float64), array.astype(np.float64)
            small = x < -87
            assert np.all(mine[small] == 0.0)
            usual = ~small & (x < 88)
            assert np.all(np.abs(mine - right_one)[usual] <= 4 * 2.0**-24 * right_one[usual])
            assert np.isnan(mine[np.isnan(x)]).all()


def _run_words(kernel: Kernel, x: Array, width: int, machine: Machine) -> Made:
    writer = Writer(kernel, width)
    body = writer.text("words")
    entry = (
        "EXPORT int run(const void *const *in, void *const *out, const int64_t *dim) {\n"
        "  words_pack(0, 0);\n"
        "  return (int)(words_packed_floats() + words_scratch_floats(dim))"
        " + words_run(in, out, dim, 0, 0);\n}\n"
    )
    path = Path(mkdtemp(prefix="words-")) / "words.so"
    made = compile_shared(
        vocabulary(writer.lanes) + body + entry, ("-O2", *isa_flags(machine.isa, width)), path
    )
    assert made.path is not None, made.stderr
    outs = {
        b.name: np.empty(x.shape, np.int32 if b.dtype == "i32" else F32)
        for b in kernel.by_role("output")
    }
    sizes = np.array([len(x)], np.int64)
    ins = (ctypes.c_void_p * 1)(x.ctypes.data)
    targets = (ctypes.c_void_p * len(outs))(*(array.ctypes.data for array in outs.values()))
    library = ctypes.CDLL(str(made.path))
    assert library.run(ins, targets, ctypes.c_void_p(sizes.ctypes.data)) == 0
    return outs


JUDGED = (
    (Softmax(128, True), {"m": 24}),
    (Layernorm(384, 1e-12), {"m": 8}),
    (ResidualRmsnorm(576, 1e-5), {"m": 4}),
    (Swiglu(1536), {"m": 2}),
    (Silu(96), {"m": 8}),
    (Gelu(1536), {"m": 2}),
    (Rope(9, 64, 256), {"tokens": 8}),
    (Rope(9, 64, 256, True), {"tokens": 8}),
    (Embedding(500, 96), {"tokens": 16}),
    (TopK(6625, 40), {"m": 2}),
    (Softmax(6625), {"m": 3}),
    (ResidualLayernorm(384, 1e-12), {"m": 4}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "dims"), some(JUDGED, 4))
def test_the_judge_accepts_the_default_schedules(
    operator: Operator, dims: Mapping[str, int], tmp_path: Path
) -> None:
    schedule = space(operator, HERE).default()
    text, options = source(operator, schedule), flags(HERE, schedule)
    made = compile_shared(text, options, tmp_path / "kernel.so")
    assert made.path is not None, made.stderr
    verdict = judge_points(
        Candidate(operator.name, made.path, (text,), options),
        operator,
        (Point(dims),),
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=HERE,
        core=min(os.sched_getaffinity(0)),
        timed=False,
    )
    assert verdict.accepted, f"{verdict.reason}: {verdict.detail}"
