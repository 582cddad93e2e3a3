"""The matrix unit in tile programs: the unit, its plain twin in C and the interpreter agree to the
last bit; what cannot live in the unit is refused with a reason.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from kernelgen.emit.c import Writer
from kernelgen.emit.matrix import flags_of, matrix_words
from kernelgen.emit.vocabulary import vocabulary
from kernelgen.judge import claims
from kernelgen.machine import describe, isa_flags
from kernelgen.ops import GemmBias
from kernelgen.schedule import ScheduleError
from kernelgen.targets import default_schedule, find, prove
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile import Build, Fault, TileError, check, interpret, parse, text
from kernelgen.tile.build import fill, span, word
from kernelgen.tile.ir import Dtype, Kernel
from kernelgen.tile.words import WORDS
from tests.quick import some

HERE = describe(measure=False)
LEVEL = isa_flags(HERE.isa, 16)
UNIT = flags_of(HERE.isa)
WAYS = {"plain": LEVEL, "oldest": (), **({"unit": (*LEVEL, *UNIT)} if UNIT else {})}
"""The same C with no vectors, with the widest ones, and with the unit where there is one."""

ENTRY = """
EXPORT int run_%(n)d(const void *const *in, void *const *out) {
  (void)p%(n)d_packed_floats, (void)p%(n)d_scratch_floats, (void)p%(n)d_pack;
  return p%(n)d_run(in, out, 0, 0, 0);
}
"""
TYPES: dict[str, tuple[Dtype, Dtype, Dtype]] = {
    "bf16": ("f32", "i32", "i32"),
    "u8": ("i32", "u8", "i8"),
    "i8": ("i32", "i8", "i8"),
}


@cache
def product(kind: str, rows: int, k: int, steps: int = 1) -> Kernel:
    """y = acc + a w, in `steps` words."""
    sums, left, right = TYPES[kind]
    four = 1 if kind == "bf16" else 4
    b = Build("product", ())
    acc = b.buffer("acc", sums, (rows, 16), "input")
    a = b.buffer("a", left, (rows, steps * four * k), "input")
    w = b.buffer("w", right, (steps * k, four * 16), "input")
    y = b.buffer("y", sums, (rows, 16), "output")
    with b.run():
        total = b.let("total", acc[span(0, rows), span(0, 16)])
        with b.loop("s", 0, steps) as s:
            x = b.let("x", a[span(0, rows), span(s * four * k, four * k)])
            v = b.let("v", w[span(s * k, k), span(0, four * 16)])
            name = "dot_bf16" if kind == "bf16" else "dot_i8"
            total = b.let("total", word(name, total, x, v))
        y[span(0, rows), span(0, 16)] = total
    return b.kernel()


SHAPES = [(16, 16, 1), (5, 7, 2), (1, 1, 1), (16, 2, 3)]
SIZES = [(kind, *shape) for kind in TYPES for shape in SHAPES] + [("bf16", 1, 2, 1)]


@cache
def library(way: str) -> ctypes.CDLL:
    """All products in one file: `run_0`, `run_1`, ... in the order of `SIZES`."""
    lanes, used, bodies = set[int](), set[str](), ""
    for number, size in enumerate(SIZES):
        writer = Writer(product(*size), 16)
        bodies += writer.text(f"p{number}") + ENTRY % {"n": number}
        lanes |= writer.lanes
        used |= writer.matrix
    with TemporaryDirectory() as folder:
        options = ("-O2", "-Wall", "-Wextra", "-Werror", *WAYS[way])
        source = vocabulary(lanes) + matrix_words(used) + bodies
        outcome = compile_shared(source, options, Path(folder) / "matrix.so")
        assert outcome.path is not None, outcome.stderr
        # A unit that is not used would agree with its twin for a poor reason.
        unit = {"amx_tile", "amx_bf16", "amx_int8"} & claims.used(outcome.path)
        assert unit == (
            set(HERE.isa) & {"amx_tile", "amx_bf16", "amx_int8"} if way == "unit" else set()
        )
        return ctypes.CDLL(str(outcome.path))


def computed(way: str, size: tuple[str, int, int, int], arrays: list[np.ndarray]) -> np.ndarray:
    y = np.full((size[1], 16), 7, arrays[0].dtype)
    ins = (ctypes.c_void_p * len(arrays))(*(one.ctypes.data for one in arrays))
    outs = (ctypes.c_void_p * 1)(y.ctypes.data)
    assert getattr(library(way), f"run_{SIZES.index(size)}")(ins, outs) == 0
    return y


def bits_of(x: np.ndarray) -> np.ndarray:
    """As integers, every NaN the same: which one comes out is the processor's choice."""
    if x.dtype != np.float32:
        return x
    return np.where(np.isnan(x), np.int32(0x7FC00000), x.view(np.int32))


def agree(kind: str, rows: int, k: int, steps: int, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """What all ways of computing give."""
    kernel = product(kind, rows, k, steps)
    want = interpret(kernel, arrays, {}).outputs["y"]
    for way in WAYS:
        got = computed(way, (kind, rows, k, steps), [arrays[name] for name in ("acc", "a", "w")])
        np.testing.assert_array_equal(bits_of(got), bits_of(want), err_msg=way)
    return want


def pairs(halves: np.ndarray) -> np.ndarray:
    """float (..., 2) cut to bfloat16, in one i32 each."""
    parts = np.ascontiguousarray(halves, np.float32).view(np.uint32) >> 16
    return (parts[..., 0] | parts[..., 1] << 16).astype(np.uint32).view(np.int32)


SCALES = {
    "ordinary": (0, 1, 1.0),
    "wide": (-66, 66, 2.0**20),
    "tiny": (-80, -58, 2.0**-126),
    "huge": (60, 68, 2.0**125),
}
"""Powers of two that the factors get, and the size of what they are added to."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [*SCALES, "any bits"])
def test_bfloat16_products_agree_to_the_last_bit(shape: tuple[int, int, int], scale: str) -> None:
    rows, k, steps = shape
    rng = np.random.default_rng(k)
    for turn in range(8):
        a, w = (
            rng.integers(-(2**31), 2**31, size).astype(np.int32)
            for size in ((rows, steps * k), (steps * k, 16))
        )
        acc = rng.integers(-(2**31), 2**31, (rows, 16)).astype(np.int32).view(np.float32)
        if scale != "any bits":
            low, high, size = SCALES[scale]
            a, w = (
                pairs(
                    rng.standard_normal((*x.shape, 2))
                    * 2.0 ** rng.integers(low, high, (*x.shape, 2))
                )
                for x in (a, w)
            )
            acc = (rng.standard_normal(acc.shape) * size * (turn % 2)).astype(np.float32)
        agree("bf16", rows, k, steps, {"acc": acc, "a": a, "w": w})


TINY = 2.0**-126
EDGES: list[tuple[str, float, list[tuple[float, float]], float]] = [
    ("a denormal factor is zero", 0.0, [(2.0**-130, 2.0**100)], 0.0),
    ("a zero keeps its sign", -0.0, [(-1.0, 0.0)], 0.0),
    ("a denormal sum is written as zero", 0.0, [(2.0**-63, 2.0**-64)], 0.0),
    ("a denormal in the first sum is gone in the second", 2.0**-126, [(2.0**-63, 2.0**-64)], TINY),
    ("a denormal to add to is read as zero", 2.0**-127, [(1.0, 1.0)], 1.0),
    (
        "rounded up to a normal number it stays",
        0.0,
        [(2.0**-63, 2.0**-63), (-(2.0**-76), 2.0**-76)],
        TINY,
    ),
    (
        "rounded to less than one it is gone",
        0.0,
        [(2.0**-63, 2.0**-63), (-(2.0**-75), 2.0**-75)],
        0.0,
    ),
    ("half a unit goes to the even neighbour", 0.0, [(1.0, 1.0), (2.0**-12, 2.0**-12)], 1.0),
    (
        "a little more than half goes up",
        0.0,
        [(1.0, 1.0), (2.0**-12, 2.0**-12 * 1.0078125)],
        1 + 2.0**-23,
    ),
    ("too much is infinite", 0.0, [(2.0**100, 2.0**28)], np.inf),
    (
        "a product too large alone is not, fused",
        0.0,
        [(-(2.0**127), 1.0), (2.0**64, 2.0**64)],
        2.0**127,
    ),
    ("infinity less infinity", 0.0, [(np.inf, 1.0), (-np.inf, 1.0)], np.nan),
    ("infinity times nothing", 0.0, [(np.inf, 0.0)], np.nan),
    ("infinity times a denormal", 0.0, [(np.inf, 2.0**-130)], np.nan),
]


@pytest.mark.parametrize(("name", "acc", "factors", "want"), EDGES, ids=[row[0] for row in EDGES])
@pytest.mark.parametrize("half", [0, 1])
def test_edges_of_bfloat16_products(
    name: str, acc: float, factors: list[tuple[float, float]], want: float, half: int
) -> None:
    a, w = np.zeros((1, 2, 2)), np.zeros((2, 16, 2))
    for k, (x, y) in enumerate(factors):
        a[0, k, half], w[k, :, half] = x, y
    arrays = {"acc": np.full((1, 16), acc, np.float32), "a": pairs(a), "w": pairs(w)}
    got = agree("bf16", 1, 2, 1, arrays)[0, 0]
    np.testing.assert_array_equal(got, np.float32(want))


def test_low_and_high_halves_are_summed_apart() -> None:
    """2^24 + 1 - 2^24: in one sum the 1 would be lost."""
    a = pairs(np.array([[[2.0**24, 1.0], [-(2.0**24), 0.0]]]))
    w = pairs(np.ones((2, 16, 2)))
    arrays = {"acc": np.zeros((1, 16), np.float32), "a": a, "w": w}
    np.testing.assert_array_equal(agree("bf16", 1, 2, 1, arrays), 1.0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_products_of_bytes_are_exact(kind: str, shape: tuple[int, int, int]) -> None:
    """oneDNN#1805: pairs of u8 x s8 products saturate 16 bits elsewhere; every corner is tried."""
    rows, k, steps = shape
    rng = np.random.default_rng(k)
    low = 0 if kind == "u8" else -128
    for turn in range(6):
        a = rng.integers(low, low + 256, (rows, 4 * steps * k))
        w = rng.integers(-128, 128, (steps * k, 64))
        if turn % 2:
            a, w = rng.choice([low, 0, low + 255], a.shape), rng.choice([-128, 127], w.shape)
        arrays = {
            "acc": rng.integers(-(2**20), 2**20, (rows, 16)).astype(np.int32),
            "a": a.astype(np.uint8 if kind == "u8" else np.int8),
            "w": w.astype(np.int8),
        }
        got = agree(kind, rows, k, steps, arrays)
        columns = w.reshape(steps * k, 16, 4).transpose(0, 2, 1).reshape(-1, 16)
        np.testing.assert_array_equal(got, arrays["acc"] + a @ columns)


def test_the_interpreter_sees_a_sum_of_bytes_that_does_not_fit() -> None:
    """C says nothing of it, and the unit wraps around."""
    arrays = {
        "acc": np.full((1, 16), 2**31 - 4 * 127 * 127, np.int32),
        "a": np.full((1, 4), 127, np.int8),
        "w": np.full((1, 64), 127, np.int8),
    }
    with pytest.raises(Fault, match="overflow: dot_i8"):
        interpret(product("i8", 1, 1), arrays, {})
    arrays["acc"] -= 1
    agree("i8", 1, 1, 1, arrays)


def test_from_bits_is_the_way_back() -> None:
    x = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, 1e-45], np.float32)
    back = WORDS["from_bits"].meaning(WORDS["bits"].meaning(x))
    np.testing.assert_array_equal(back.view(np.int32), x.view(np.int32))


# ---- what is written, what is refused ----------------------------------------------------------

HEAD = """kernel = "small"
m = dim
a: i32[m, 16] = input
w: i32[16, 16] = input
q: f32[m, 16] = local
y: f32[m, 16] = output

def run():
"""
DOT = """
acc = fill(0.0, f32, 4, 16)
x = a[0:4, 0:16]
v = w[0:16, 0:16]
acc = dot_bf16(acc, x, v)
y[0:4, 0:16] = acc
"""


def program(body: str) -> Kernel:
    return parse(HEAD + "".join(f"    {line}\n" for line in body.strip("\n").split("\n")))


def written(body: str) -> str:
    kernel = program(body)
    check(kernel)
    assert parse(text(kernel)) == kernel
    return Writer(kernel, 16).text("p")


def test_the_unit_is_configured_once_outside_the_loop() -> None:
    inside = "".join(f"    {line}\n" for line in DOT.strip("\n").split("\n"))
    code = written(f"for i in range(0, m, 4):\n{inside}")
    assert code.index("MATRIX_CONFIGURE") < code.index("for (") < code.index("MATRIX_RELEASE")
    assert code.count("MATRIX_CONFIGURE") == code.count("MATRIX_RELEASE") == 1
    assert "{64, 64, 64}, {4, 4, 16}" in code


def test_a_branch_that_does_not_use_the_unit_does_not_pay_for_it() -> None:
    inside = "".join(f"    {line}\n" for line in DOT.strip("\n").split("\n"))
    code = written(f"if 3 < m:\n{inside}else:\n    y[0:1, 0:16] = fill(0.0, f32, 1, 16)")
    assert code.index("if (") < code.index("MATRIX_CONFIGURE") < code.index("else")


def test_a_check_inside_releases_the_unit() -> None:
    assert "{ MATRIX_RELEASE(); return 7; }" in written(DOT.replace("y[0", "check(3 < m, 7)\ny[0"))
    assert "{ MATRIX_RELEASE()" not in written(f"check(3 < m, 7)\n{DOT}")


def test_branches_with_too_many_tiles_together_are_configured_apart() -> None:
    lines = []
    for r in range(1, 7):
        lines += [f"if m == {r}:"]
        lines += [
            f"    {line}"
            for line in DOT.replace(":4,", f":{r},")
            .replace("4, 16", f"{r}, 16")
            .strip()
            .split("\n")
        ]
    code = written("\n".join(lines))
    assert code.count("MATRIX_CONFIGURE") == code.count("MATRIX_RELEASE") == 6
    assert "{64, 64, 64}, {6, 6, 16}" in code


MANY = "\n".join(
    DOT.replace("acc", f"acc{i}")
    .replace("x", f"x{i}")
    .replace("v ", f"v{i} ")
    .replace("v)", f"v{i})")
    for i in range(3)
)
REFUSED = [
    ("acc is in the matrix unit: store it first", DOT.replace("= acc\n", "= acc + 1.0\n")),
    ("x is in the matrix unit: store it first", DOT + "s = x + x"),
    ("acc is in the matrix unit: got acc", DOT.replace("y[0", "acc = acc\ny[0")),
    ("wanted a load, a fill of 0", DOT.replace("fill(0.0", "fill(1.0")),
    ("wanted a load, a fill of 0", DOT.replace("fill(0.0", "fill(-0.0")),
    ("wanted a load, a fill of 0", DOT.replace("a[0:4, 0:16]", "a[0:4, 0:16] | 1")),
    ("two names", DOT.replace("acc, x, v", "acc, a[0:4, 0:16], v")),
    ("other = ", DOT.replace("acc = dot", "other = dot").replace("= acc\n", "= other\n")),
    ("whole rows", DOT.replace("w[0:16, 0:16]", "w[0:16, 0:16:8]")),
    ("whole rows", DOT.replace("= acc\n", "= acc\n").replace("y[0:4, 0:16]", "y[0:4, 0:16:m]")),
    (r"9 tiles in one block: acc0 \(4 x 64 bytes\).*holds 8", MANY),
]


@pytest.mark.parametrize(("reason", "body"), REFUSED)
def test_what_cannot_live_in_the_unit_is_refused(reason: str, body: str) -> None:
    if reason == "other = ":
        reason = "matrix word on other itself"
    with pytest.raises(ScheduleError, match=reason):
        written(body)


MEANINGLESS = [
    ("needs a name of its own", DOT.replace("= acc\n", "= dot_bf16(acc, x, v)\n")),
    (r"wanted f32\[rows, 16\], i32\[rows, k\]", DOT.replace("x, v)", "v, v)")),
    (r"wanted f32\[rows, 16\], i32\[rows, k\]", DOT.replace("x, v)", "acc, v)")),
    (r"wanted i32\[rows, 16\], u8 or i8", DOT.replace("dot_bf16", "dot_i8")),
    ("at most 16 rows and k", DOT.replace(":4,", ":17,").replace("4, 16", "17, 16")),
    (r"i32\[k, 16\]", DOT.replace("w[0:16, 0:16]", "w[0:8, 0:16]")),
    (r"i32\[k, 16\]", DOT.replace("w[0:16, 0:16]", "w[0:16, 0:8]")),
    ("wanted 3 arguments", DOT.replace("acc, x, v", "acc, x")),
]


@pytest.mark.parametrize(("reason", "body"), MEANINGLESS)
def test_types_that_do_not_fit_are_refused(reason: str, body: str) -> None:
    with pytest.raises(TileError, match=reason):
        written(body)


def test_flags_tell_of_the_unit_where_there_is_one() -> None:
    assert flags_of(("avx2", "avx512f")) == ()
    assert flags_of(("amx_bf16", "amx_tile")) == ("-mamx-tile", "-mamx-bf16")
    assert flags_of(("amx_bf16", "amx_int8", "amx_tile"))[1:] == ("-mamx-bf16", "-mamx-int8")


def test_a_sum_starts_at_zero_or_at_what_is_in_memory() -> None:
    code = written(DOT + DOT.replace("fill(0.0, f32, 4, 16)", "y[0:4, 0:16]"))
    assert code.count("MATRIX_ZERO(0);") == 1
    assert code.count("MATRIX_LOAD(0, y, (16) * 4);") == 1
    assert fill(0.0, "f32", 4, 16).expr == program(DOT).run[0].value  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["aarch64-neon", "riscv64-rvv"], 1))
def test_a_float_product_made_for_the_unit_is_proven_abroad(name: str) -> None:
    """The same text, on processors that have no such unit."""
    operator = GemmBias(256, 32)
    schedule = default_schedule(operator, find("x86-64-amx")).with_choice("mr", 1)
    assert schedule.number("tiles")
    dims = {"m": schedule.number("tiles") + 1}
    proof = prove(operator, schedule, find(name), dims, seed_bytes=b"abroad")
    assert proof.accepted, proof.detail
