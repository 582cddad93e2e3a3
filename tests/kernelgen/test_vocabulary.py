"""The words of generated C against NumPy in float64, at every vector width; intrinsics against
their plain twins, bit for bit.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from kernelgen.emit.vocabulary import vocabulary
from kernelgen.machine import describe, isa_flags
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile.words import WORDS

HERE = describe(measure=False)
WIDTHS = [4, *([8] if "avx2" in HERE.isa else []), *([16] if "avx512vl" in HERE.isa else [])]
ULP = 2.0**-23

UNARY = ("exp", "log", "tanh", "sigmoid", "gelu", "sqrt", "abs", "round")

_LOOP = """
EXPORT void %(word)s_all(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += %(v)d)
    store_f32x%(v)d(y + i, %(word)s_f32x%(v)d(load_f32x%(v)d(x + i)));
}
EXPORT float %(word)s_one(float x) { return %(word)s_f32(x); }
"""
_REST = """
EXPORT void dot4_both(const int32_t *acc, const uint8_t *a, const int8_t *w, int32_t *fast,
                      int32_t *plain) {
  store_i32x%(v)d(fast, dot4_x%(v)d(load_i32x%(v)d(acc), quad_of(a), load_i8x%(four)d(w)));
  store_i32x%(v)d(plain, dot4_plain_x%(v)d(load_i32x%(v)d(acc), quad_of(a), load_i8x%(four)d(w)));
}
EXPORT void dot4_halves(const int32_t *acc, const uint8_t *a, const uint8_t *w, int32_t *low,
                        int32_t *high) {
  const i32x%(v)d sum = load_i32x%(v)d(acc);
  const u8x%(four)d x = load_u8x%(four)d(w);
  store_i32x%(v)d(low, dot4_x%(v)d(sum, quad_of(a), (i8x%(four)d)halves_low_x%(v)d(x)));
  store_i32x%(v)d(high, dot4_x%(v)d(sum, quad_of(a), (i8x%(four)d)halves_high_x%(v)d(x)));
}
EXPORT void dot4_signed_both(const int32_t *acc, const uint8_t *a, const uint8_t *w, int32_t *fast,
                             int32_t *plain) {
  const i32x%(v)d sum = load_i32x%(v)d(acc);
  store_i32x%(v)d(fast, dot4_signed_x%(v)d(sum, quad_of(a), load_u8x%(four)d(w)));
  store_i32x%(v)d(plain, dot4_signed_plain_x%(v)d(sum, quad_of(a), load_u8x%(four)d(w)));
}
EXPORT void widen(const uint8_t *x, int32_t *with_sign, int32_t *without) {
  store_i32x%(v)d(with_sign, wide_i8x%(v)d(load_i8x%(v)d((const int8_t *)x)));
  store_i32x%(v)d(without, wide_u8x%(v)d(load_u8x%(v)d(x)));
}
EXPORT void orders_both(const float *x, const float *y, float *out) {
  const f32x%(v)d a = load_f32x%(v)d(x), b = load_f32x%(v)d(y);
  store_f32x%(v)d(out, max_f32x%(v)d(a, b));
  store_f32x%(v)d(out + %(v)d, max_plain_f32x%(v)d(a, b));
  store_f32x%(v)d(out + 2 * %(v)d, min_f32x%(v)d(a, b));
  store_f32x%(v)d(out + 3 * %(v)d, min_plain_f32x%(v)d(a, b));
}
EXPORT void orders_of_integers(const int32_t *x, const int32_t *y, int32_t *out) {
  const i32x%(v)d a = load_i32x%(v)d(x), b = load_i32x%(v)d(y);
  store_i32x%(v)d(out, max_i32x%(v)d(a, b));
  store_i32x%(v)d(out + %(v)d, max_plain_i32x%(v)d(a, b));
  store_i32x%(v)d(out + 2 * %(v)d, min_i32x%(v)d(a, b));
  store_i32x%(v)d(out + 3 * %(v)d, min_plain_i32x%(v)d(a, b));
}
EXPORT void part(const float *x, float *y, int64_t n) {
  store_upto_f32x%(v)d(y, n, upto_f32x%(v)d(x, n));
}
EXPORT void part_i(const int32_t *x, int32_t *y, int64_t n) {
  store_upto_i32x%(v)d(y, n, upto_i32x%(v)d(x, n));
}
EXPORT float splat_of(float x) { return splat_f32x%(v)d(x)[%(v)d - 1]; }
"""


@cache
def library(v: int) -> ctypes.CDLL:
    values = [{"word": word, "v": v} for word in UNARY]
    text = vocabulary([v], dot4=[v]) + "".join(_LOOP % one for one in values)
    text += _REST % {"v": v, "four": 4 * v}
    with TemporaryDirectory() as folder:
        flags = ("-O3", "-fno-math-errno", *isa_flags(HERE.isa, v))
        outcome = compile_shared(text, flags, Path(folder) / "words.so")
        assert outcome.path is not None, outcome.stderr
        return ctypes.CDLL(str(outcome.path))


def applied(v: int, word: str, x: np.ndarray) -> np.ndarray:
    padded = np.zeros(-(-x.size // v) * v, np.float32)
    padded[: x.size] = x
    y = np.empty_like(padded)
    function = getattr(library(v), f"{word}_all")
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (padded, y)), ctypes.c_int64(padded.size))
    one = getattr(library(v), f"{word}_one")
    one.restype, one.argtypes = ctypes.c_float, [ctypes.c_float]
    if x.size:
        assert np.float32(one(float(x[0]))) == y[0] or np.isnan(y[0])
    return y[: x.size]


RANGES = {
    "exp": (-86.9, 88.6, 4.0),
    "log": (1e-37, 3e38, 3.0),
    "tanh": (-12.0, 12.0, 6.0),
    "sigmoid": (-80.0, 80.0, 6.0),
    "sqrt": (0.0, 1e30, 0.5001),
    "abs": (-1e30, 1e30, 0.0),
    "round": (-4e6, 4e6, 0.0),
}
"""Word: from, to, and the most units in the last place it may be off."""


@pytest.mark.parametrize("v", WIDTHS)
@pytest.mark.parametrize("word", RANGES)
def test_word_is_near_its_meaning(word: str, v: int) -> None:
    low, high, ulps = RANGES[word]
    rng = np.random.default_rng(3)
    x = rng.uniform(low, high, 200_000).astype(np.float32)
    if word == "log":
        x = np.exp(rng.uniform(-85.0, 88.0, 200_000)).astype(np.float32)
    if word == "tanh":
        x[::2] = rng.uniform(-1e-3, 1e-3, x[::2].size)
    want = WORDS[word].meaning(x).astype(np.float64)
    got = applied(v, word, x).astype(np.float64)
    # Near log(1) = 0 the error is bounded by the size of 1.
    scale = np.maximum(np.abs(want), 0.5 if word == "log" else 1e-37)
    assert np.max(np.abs(got - want) / scale) <= ulps * ULP


@pytest.mark.parametrize("v", WIDTHS)
def test_gelu_is_within_four_units_of_its_argument(v: int) -> None:
    x = np.random.default_rng(4).uniform(-12.0, 12.0, 200_000).astype(np.float32)
    error = np.abs(applied(v, "gelu", x) - WORDS["gelu"].meaning(x).astype(np.float64))
    assert np.max(error / np.abs(x)) <= 4.0 * ULP


SPECIAL = [
    ("exp", np.nan, np.nan),
    ("exp", np.inf, np.inf),
    ("exp", -np.inf, 0.0),
    ("exp", 89.0, np.inf),
    ("exp", -200.0, 0.0),
    ("exp", 0.0, 1.0),
    ("log", 0.0, -np.inf),
    ("log", -1.0, np.nan),
    ("log", np.nan, np.nan),
    ("log", np.inf, np.inf),
    ("log", 1.0, 0.0),
    ("tanh", np.nan, np.nan),
    ("tanh", np.inf, 1.0),
    ("tanh", -np.inf, -1.0),
    ("tanh", -0.0, -0.0),
    ("sigmoid", np.nan, np.nan),
    ("sigmoid", np.inf, 1.0),
    ("sigmoid", -np.inf, 0.0),
    ("sigmoid", 0.0, 0.5),
    ("gelu", np.nan, np.nan),
    ("gelu", 1e4, 1e4),
    ("gelu", -1e4, 0.0),
    ("sqrt", -1.0, np.nan),
    ("round", 2.5, 2.0),
    ("round", -3.5, -4.0),
    ("abs", -0.0, 0.0),
]


@pytest.mark.parametrize("v", WIDTHS)
@pytest.mark.parametrize(("word", "x", "want"), SPECIAL)
def test_special_values(word: str, x: float, want: float, v: int) -> None:
    got = applied(v, word, np.full(3, x, np.float32))
    np.testing.assert_array_equal(got, np.full(3, want, np.float32))
    if want == 0.0 and word != "gelu":
        assert np.all(np.signbit(got) == np.signbit(np.float32(want)))


@pytest.mark.parametrize("v", WIDTHS)
def test_dot4_and_its_plain_twin_agree(v: int) -> None:
    """oneDNN#1805: pairs of u8 x s8 products saturate 16 bits; every corner is exact here."""
    rng = np.random.default_rng(5)
    corners_a = np.array([0, 1, 127, 128, 255], np.uint8)
    corners_w = np.array([-128, -127, -1, 0, 1, 127], np.int8)
    for turn in range(400):
        a = rng.choice(corners_a, 4) if turn % 2 else rng.integers(0, 256, 4).astype(np.uint8)
        w = (
            rng.choice(corners_w, 4 * v)
            if turn % 3
            else rng.integers(-128, 128, 4 * v).astype(np.int8)
        )
        acc = rng.integers(-(2**20), 2**20, v).astype(np.int32)
        fast, plain = np.empty(v, np.int32), np.empty(v, np.int32)
        library(v).dot4_both(*(ctypes.c_void_p(x.ctypes.data) for x in (acc, a, w, fast, plain)))
        want = WORDS["dot4"].meaning(acc[None, :], a[None, :], w)[0]
        np.testing.assert_array_equal(plain, want)
        np.testing.assert_array_equal(fast, want)


@pytest.mark.parametrize("v", WIDTHS)
def test_dot4_with_the_signs_changed_agrees_with_its_plain_twin(v: int) -> None:
    """oneDNN#1805 again, for signed bytes of a and unsigned ones of w."""
    rng = np.random.default_rng(6)
    for turn in range(200):
        ends = turn % 2 == 0
        a = rng.choice([-128, -1, 127], 4) if ends else rng.integers(-128, 128, 4)
        w = rng.choice([0, 15, 255], 4 * v) if ends else rng.integers(0, 256, 4 * v)
        a, w = a.astype(np.int8), w.astype(np.uint8)
        acc = rng.integers(-(2**20), 2**20, v).astype(np.int32)
        fast, plain = np.empty(v, np.int32), np.empty(v, np.int32)
        places = (ctypes.c_void_p(x.ctypes.data) for x in (acc, a, w, fast, plain))
        library(v).dot4_signed_both(*places)
        want = WORDS["dot4"].meaning(acc[None, :], a[None, :], w)[0]
        np.testing.assert_array_equal(plain, want)
        np.testing.assert_array_equal(fast, want)


@pytest.mark.parametrize("v", WIDTHS)
def test_every_byte_is_widened_with_and_without_its_sign(v: int) -> None:
    for first in range(0, 256, v):
        x = np.arange(first, first + v).astype(np.uint8)
        got = np.empty((2, v), np.int32)
        places = (ctypes.c_void_p(y.ctypes.data) for y in (x, got[0], got[1]))
        library(v).widen(*places)
        np.testing.assert_array_equal(got[0], x.view(np.int8))
        np.testing.assert_array_equal(got[1], x)


@pytest.mark.parametrize("v", WIDTHS)
def test_dot4_takes_either_half_of_every_byte(v: int) -> None:
    """llama.cpp#12657: some values of a packed half went wrong; every byte value is tried."""
    acc, a = np.arange(v, dtype=np.int32), np.array([255, 1, 0, 128], np.uint8)
    for first in range(0, 256, 4 * v):
        w = (first + np.arange(4 * v)).astype(np.uint8)
        low, high = np.empty(v, np.int32), np.empty(v, np.int32)
        library(v).dot4_halves(*(ctypes.c_void_p(x.ctypes.data) for x in (acc, a, w, low, high)))
        for got, word in ((low, "dot4_low"), (high, "dot4_high")):
            want = WORDS[word].meaning(acc[None, :], a[None, :], w)[0]
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("v", WIDTHS)
@pytest.mark.parametrize("kind", ["f32", "i32"])
def test_partial_loads_touch_only_their_lanes(v: int, kind: str) -> None:
    dtype = np.float32 if kind == "f32" else np.int32
    function = library(v).part if kind == "f32" else library(v).part_i
    x = np.arange(1, v + 1).astype(dtype)
    for n in (-3, 0, 1, v - 1, v, v + 7):
        y = np.full(v, -7, dtype)
        function(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), ctypes.c_int64(n))
        count = min(max(n, 0), v)
        np.testing.assert_array_equal(y[:count], x[:count])
        np.testing.assert_array_equal(y[count:], -7)


@pytest.mark.parametrize("v", WIDTHS)
def test_a_spread_negative_zero_stays_negative(v: int) -> None:
    function = library(v).splat_of
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    assert np.signbit(np.float32(function(-0.0)))


@pytest.mark.parametrize("v", WIDTHS)
def test_orders_agree_with_their_plain_twins_on_zeros_and_nan(v: int) -> None:
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-45], np.float32)
    rng = np.random.default_rng(3)
    for _ in range(60):
        x, y = rng.choice(special, v), rng.choice(special, v)
        out = np.empty((4, v), np.float32)
        library(v).orders_both(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, out)))
        bits = out.view(np.int32)
        np.testing.assert_array_equal(bits[0], np.where(x > y, x, y).view(np.int32))
        np.testing.assert_array_equal(bits[0], bits[1])
        np.testing.assert_array_equal(bits[2], np.where(x < y, x, y).view(np.int32))
        np.testing.assert_array_equal(bits[2], bits[3])


@pytest.mark.parametrize("v", WIDTHS)
def test_the_order_of_integers_is_one_instruction_that_equals_its_plain_twin(v: int) -> None:
    rng = np.random.default_rng(9)
    edges = np.array([-(2**31), -1, 0, 2**31 - 1], np.int32)
    for _ in range(50):
        x, y = (
            np.where(
                rng.random(v) < 0.4, rng.choice(edges, v), rng.integers(-(2**31), 2**31, v)
            ).astype(np.int32)
            for _ in range(2)
        )
        out = np.empty((4, v), np.int32)
        library(v).orders_of_integers(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, out)))
        for row in (0, 1):
            np.testing.assert_array_equal(out[row], np.maximum(x, y))
        for row in (2, 3):
            np.testing.assert_array_equal(out[row], np.minimum(x, y))
