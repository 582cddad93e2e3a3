"""Products of small matrices as a matrix unit makes them, to the last bit.

In: three tiles. Out: the first plus the product of the other two. Never here: C.

The unit is that of TDPBF16PS, TDPBSSD and TDPBUSD in Intel's Software Developer's Manual, volume 2.

    dot_bf16  acc f32 (rows, 16), a i32 (rows, k), w i32 (k, 16). Every i32 holds two bfloat16, the
              first in its low half. Per row and column two float32 sums run over k by fused
              multiply-add from zero, one of the low halves and one of the high ones; then low +
              high; then acc + that. Round to nearest even; denormals are read and written as zero.
    dot_i8    acc i32 (rows, 16), a u8 or i8 (rows, 4 k), w i8 (k, 64): column j of step s meets
              places 4 j to 4 j + 3 of row s of w. Exact in int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIDE = 16
"""Rows of a tile, and its columns of 32 bits."""

Tile = tuple[str, tuple[int, ...]]
"""Dtype and shape."""

_TINY = 2.0**-126
_ROUNDS_TO_ZERO = _TINY - 2.0**-151
"""What lies below it in magnitude rounds, with 24 bits, to less than the smallest normal number."""


def dot_bf16(acc: Array, a: Array, w: Array) -> Array:
    # float64 holds a product of two bfloat16 exactly, and its sum with a float32 so that rounding
    # once more to float32 is the same as rounding once (Figueroa 1995: 53 >= 2 * 24 + 2).
    with np.errstate(all="ignore"):
        halves = []
        for low in (True, False):
            rows, columns = _half(a, low), _half(w, low)
            total = np.zeros(acc.shape, np.float32)
            for k in range(a.shape[1]):
                product = rows[:, k, None] * columns[None, k, :]
                total = _rounded(product + total.astype(np.float64))
            halves.append(total.astype(np.float64))
        both = _rounded(halves[0] + halves[1])
        return _rounded(_flushed(acc).astype(np.float64) + both.astype(np.float64))


def _half(pairs: Array, low: bool) -> Array:
    whole = np.ascontiguousarray(pairs).view(np.uint32)
    bits = whole << np.uint32(16) if low else whole & np.uint32(0xFFFF0000)
    return _flushed(bits.view(np.float32)).astype(np.float64)


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.float32(_TINY), np.copysign(np.float32(0.0), x), x)


def _rounded(x: Array) -> Array:
    """float64 to float32; too small a result is a zero of the same sign."""
    small = np.abs(x) < _ROUNDS_TO_ZERO
    return np.where(small, np.copysign(0.0, x), x).astype(np.float32)


def dot_i8(acc: Array, a: Array, w: Array) -> Array:
    k = w.shape[0]
    # (k, columns, 4) with the four next to k, so that one product of matrices does it.
    columns = w.astype(np.int64).reshape(k, SIDE, 4).transpose(0, 2, 1).reshape(4 * k, SIDE)
    return (acc.astype(np.int64) + a.astype(np.int64) @ columns).astype(np.int32)


def misfit(word: str, acc: Tile, a: Tile, w: Tile) -> str | None:
    """What `word` wants where these tiles are not it; None where they fit."""
    four, sums, either, weights = (
        (4, "i32", ("u8", "i8"), "i8") if word == "dot_i8" else (1, "f32", ("i32",), "i32")
    )
    rows = acc[1][0] if acc[1] else 0
    k = w[1][0] if w[1] else 0
    if (
        acc == (sums, (rows, SIDE))
        and a[0] in either
        and a[1] == (rows, four * k)
        and w == (weights, (k, four * SIDE))
        and max(rows, k) <= SIDE
    ):
        return None
    return (
        f"wanted {sums}[rows, {SIDE}], {' or '.join(either)}[rows, {'4 k' if four == 4 else 'k'}], "
        f"{weights}[k, {four * SIDE}], at most {SIDE} rows and k"
    )
