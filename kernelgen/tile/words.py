"""The words a tile program may use on values: their types and what they mean in NumPy.

In: nothing. Out: `WORDS`. Never here: C; `kernelgen.emit.vocabulary` spells the same words there.

A word works lane by lane unless its kind says otherwise:

    lanes     any number of arguments, shapes broadcast
    compare   as lanes, gives bool
    cast      one argument, gives the dtype of its name
    reduce    along the lanes: (rows, n) -> (rows, 1), (n,) -> ()
    shuffle   moves lanes: even, odd: (2n,) -> (n,); zip: (n,), (n,) -> (2n,); swap: the two
              of every pair change places
    bits      the same 32 bits: bits: f32 -> i32; from_bits: i32 -> f32
    turn      row_sums: (rows, n) -> (rows,), side by side; transpose: (rows, n) -> (n, rows)
    dot4      i32 (rows, n), u8 (rows, 4), i8 (4n,): adds sums of four products, exact in int32;
              dot4_low, dot4_high: w is u8, and the low or the high half of each byte counts; a
              may be i8 too
    matrix    (rows, 16), (rows, k), (k, 16), at most 16 rows and k: adds a product of small
              matrices; see `kernelgen.tile.matrix` for what an element holds
    lane      `lane(n)`: i32 (n,) holding 0 .. n - 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kernelgen.tile.matrix import dot_bf16, dot_i8

Array = npt.NDArray[Any]
Kind = Literal[
    "lanes", "compare", "cast", "reduce", "shuffle", "turn", "bits", "dot4", "matrix", "lane"
]

FLOATS = ("f32",)
INTEGERS = ("i32", "i64", "i8", "u8")
NUMBERS = FLOATS + INTEGERS

_ERF = np.frompyfunc(erf, 1, 1)


@dataclass(frozen=True)
class Word:
    """`dtypes`: what the arguments may be. `meaning`: on arrays of one dtype, already broadcast."""

    name: str
    kind: Kind
    arity: int
    dtypes: tuple[str, ...]
    meaning: Callable[..., Array]


def _wide(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A float function evaluated in float64 and rounded once: the meaning, not an
    implementation.
    """

    def rounded(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(np.asarray(x, np.float64)), np.float64).astype(np.float32)

    return rounded


def _fma(a: Array, b: Array, c: Array) -> Array:
    # The product of two float32 is exact in float64, so only the last rounding is doubled.
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return wide.astype(np.float32)


def _dot4(acc: Array, a: Array, w: Array) -> Array:
    wide = a.astype(np.int64) @ w.astype(np.int64).reshape(-1, 4).T
    return (acc.astype(np.int64) + wide).astype(np.int32)


def _dot4_low(acc: Array, a: Array, w: Array) -> Array:
    return _dot4(acc, a, w & 15)


def _dot4_high(acc: Array, a: Array, w: Array) -> Array:
    return _dot4(acc, a, w >> 4)


def _larger(x: Array, y: Array) -> Array:
    return np.asarray(np.where(x > y, x, y))


def _smaller(x: Array, y: Array) -> Array:
    return np.asarray(np.where(x < y, x, y))


def _zip(a: Array, b: Array) -> Array:
    return np.stack([a, b], axis=-1).reshape(*a.shape[:-1], -1)


def _swap(a: Array) -> Array:
    return a.reshape(*a.shape[:-1], -1, 2)[..., ::-1].reshape(a.shape)


def _plain(name: str, arity: int, dtypes: tuple[str, ...], meaning: Callable[..., Array]) -> Word:
    return Word(name, "lanes", arity, dtypes, meaning)


def _cast(dtype: str, numpy_dtype: type) -> Word:
    return Word(dtype, "cast", 1, (*NUMBERS, "bool"), lambda x: np.asarray(x).astype(numpy_dtype))


_ALL = (
    _plain("add", 2, NUMBERS, np.add),
    _plain("sub", 2, NUMBERS, np.subtract),
    _plain("mul", 2, NUMBERS, np.multiply),
    _plain("div", 2, FLOATS, np.divide),
    # On integers that are not negative only: the interpreter refuses others.
    _plain("floordiv", 2, INTEGERS, np.floor_divide),
    _plain("mod", 2, INTEGERS, np.mod),
    # As x > y ? x : y, the one-instruction form: a NaN in x is dropped, one in y stays.
    _plain("maximum", 2, NUMBERS, _larger),
    _plain("minimum", 2, NUMBERS, _smaller),
    _plain("fma", 3, FLOATS, _fma),
    _plain("neg", 1, NUMBERS, np.negative),
    _plain("abs", 1, FLOATS, np.abs),
    _plain("sqrt", 1, FLOATS, np.sqrt),
    _plain("exp", 1, FLOATS, _wide(np.exp)),
    # For x at most 88, or NaN: half the work of exp.
    _plain("exp_below", 1, FLOATS, _wide(np.exp)),
    _plain("log", 1, FLOATS, _wide(np.log)),
    _plain("tanh", 1, FLOATS, _wide(np.tanh)),
    _plain("sigmoid", 1, FLOATS, _wide(lambda x: 1.0 / (1.0 + np.exp(-x)))),
    _plain("gelu", 1, FLOATS, _wide(lambda x: 0.5 * x * (1.0 + _ERF(x / 2.0**0.5)))),
    # To the nearest integer, ties to even; for |x| < 2^22.
    _plain("round", 1, FLOATS, np.rint),
    _plain("bit_and", 2, ("i32", "i8", "u8", "bool"), np.bitwise_and),
    _plain("bit_or", 2, ("i32", "i8", "u8", "bool"), np.bitwise_or),
    _plain("bit_xor", 2, ("i32", "i8", "u8"), np.bitwise_xor),
    _plain("shl", 2, ("i32", "u8"), np.left_shift),
    _plain("shr", 2, ("i32", "u8"), np.right_shift),
    Word("lt", "compare", 2, NUMBERS, np.less),
    Word("le", "compare", 2, NUMBERS, np.less_equal),
    Word("eq", "compare", 2, NUMBERS, np.equal),
    # select(test, yes, no): the test is bool, the other two share a dtype.
    _plain("select", 3, NUMBERS, np.where),
    _cast("f32", np.float32),
    _cast("i32", np.int32),
    _cast("i64", np.int64),
    _cast("i8", np.int8),
    _cast("u8", np.uint8),
    Word("sum", "reduce", 1, ("f32", "i32"), lambda x: np.sum(x, -1, dtype=x.dtype)),
    Word("max", "reduce", 1, ("f32", "i32"), lambda x: np.max(x, -1)),
    Word("min", "reduce", 1, ("f32", "i32"), lambda x: np.min(x, -1)),
    Word("row_sums", "turn", 1, ("f32", "i32"), lambda x: np.sum(x, -1, dtype=x.dtype)),
    Word("transpose", "turn", 1, ("f32", "i32"), np.transpose),
    Word("even", "shuffle", 1, ("f32", "i32"), lambda x: x[..., 0::2]),
    Word("odd", "shuffle", 1, ("f32", "i32"), lambda x: x[..., 1::2]),
    Word("zip", "shuffle", 2, ("f32", "i32"), _zip),
    Word("swap", "shuffle", 1, ("f32", "i32"), _swap),
    Word("bits", "bits", 1, FLOATS, lambda x: np.asarray(x).view(np.int32)[()]),
    Word("from_bits", "bits", 1, ("i32",), lambda x: np.asarray(x).view(np.float32)[()]),
    Word("dot4", "dot4", 3, ("i32", "u8", "i8"), _dot4),
    Word("dot4_low", "dot4", 3, ("i32", "u8", "u8"), _dot4_low),
    Word("dot4_high", "dot4", 3, ("i32", "u8", "u8"), _dot4_high),
    Word("dot_bf16", "matrix", 3, ("f32", "i32", "i32"), dot_bf16),
    Word("dot_i8", "matrix", 3, ("i32", "u8", "i8"), dot_i8),
    Word("lane", "lane", 1, ("i64",), lambda n: np.arange(int(n), dtype=np.int32)),
)

WORDS: Mapping[str, Word] = {word.name: word for word in _ALL}

SYMBOLS: Mapping[str, str] = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shl": "<<",
    "shr": ">>",
    "lt": "<",
    "le": "<=",
    "eq": "==",
}
"""Words the text form writes between their arguments."""
