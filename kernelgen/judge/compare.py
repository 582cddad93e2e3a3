"""Outputs against the oracle, element by element, with no ratio of forgiven elements.

In: what a kernel wrote, the float64 oracle, the bound per element, the poison that lay in the
buffers before.
Out: a `Comparison`. Never here: running anything, choosing a tolerance (the operator states its own
bound).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelgen.ops.operator import Array

EXACT_LIMIT = float(2**24)
"""Largest integer magnitude up to which every float32 sum of integers is exact."""


@dataclass(frozen=True)
class Comparison:
    """`reason` is None for a match, else one of `verdict.REASONS`; `error_ratio` is the worst error
    over its bound.
    """

    reason: str | None
    error_ratio: float
    detail: str


def poison_word(rng: np.random.Generator) -> int:
    """A 32-bit pattern that is a quiet NaN with random payload and sign: nobody can guess it or
    compute with it.
    """
    return 0x7FC00000 | (int(rng.integers(2)) << 31) | int(rng.integers(1, 1 << 22))


def poisoned(shape: tuple[int, ...], dtype: str, word: int) -> Array:
    """An array whose every byte comes from the poison word."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    words = np.full(-(-size // 4), word, dtype=np.uint32)
    return words.view(np.uint8)[:size].copy().view(dtype).reshape(shape)


def compare(
    got: Mapping[str, Array],
    want: Mapping[str, Array],
    bound: Mapping[str, Array],
    *,
    poison: int,
    exact: bool = False,
) -> Comparison:
    """Full match of every output. NaN equals nothing; infinity only equals the same infinity of the
    oracle.

    With `exact` the bound shrinks to zero wherever the whole oracle output is an integer below
    2**24: sums and products of small integers lose nothing in float32, so any honest kernel gets
    them bit for bit.
    """
    worst = 0.0
    for name, expected in want.items():
        result = _compare_one(name, got[name], np.asarray(expected), bound[name], poison, exact)
        if result.reason is not None:
            return result
        worst = max(worst, result.error_ratio)
    return Comparison(None, worst, "")


def _compare_one(
    name: str, got: Array, want: Array, bound: Array, poison: int, exact: bool
) -> Comparison:
    if got.shape != want.shape:
        return Comparison("wrong_output", np.inf, f"{name}: shape {got.shape}, wanted {want.shape}")
    if got.size == 0:
        return Comparison(None, 0.0, "")
    left = _still_poisoned(got, poison)
    if left.any():
        at = np.unravel_index(int(np.argmax(left)), got.shape)
        return Comparison(
            "not_written", np.inf, f"{name}{_index(at)} and {int(left.sum()) - 1} more not written"
        )
    mine = got.astype(np.float64)
    odd = ~np.isfinite(mine) & ~(np.isinf(want) & (mine == want))
    if odd.any():
        at = np.unravel_index(int(np.argmax(odd)), got.shape)
        return Comparison(
            "not_finite", np.inf, f"{name}{_index(at)} is {mine[at]}, wanted {want[at]}"
        )
    finite = np.isfinite(want)
    error = np.where(finite, np.abs(mine - np.where(finite, want, 0.0)), 0.0)
    if not finite.all():
        error = np.where(finite | (mine == want), error, np.inf)
    limit = np.broadcast_to(np.asarray(bound, dtype=np.float64), want.shape)
    if exact and _integral(want):
        limit = np.zeros_like(limit)
    # 0/0 is a match without slack, x/0 an error without limit.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0.0, 0.0, error / limit)
    at = np.unravel_index(int(np.argmax(ratio)), got.shape)
    worst = float(ratio[at])
    if not worst <= 1.0:
        wrong = int((~(ratio <= 1.0)).sum())
        return Comparison(
            "wrong_output",
            worst,
            f"{name}{_index(at)} is {mine[at]!r}, wanted {float(want[at])!r} within "
            f"{float(limit[at]):.3g}; "
            f"{wrong} of {got.size} wrong",
        )
    return Comparison(None, worst, "")


def _still_poisoned(got: Array, poison: int) -> npt.NDArray[np.bool_]:
    words = np.ascontiguousarray(got).reshape(-1).view(np.uint8)
    if got.dtype.itemsize % 4:
        return np.zeros(got.shape, dtype=np.bool_)
    same = (words.view(np.uint32) == np.uint32(poison)).reshape(got.size, -1)
    return np.asarray(same.all(axis=1).reshape(got.shape), dtype=np.bool_)


def _integral(want: Array) -> bool:
    return bool(np.all(np.abs(want) < EXACT_LIMIT) and np.all(want == np.rint(want)))


def _index(at: tuple[np.intp, ...]) -> str:
    return "[" + ",".join(str(int(i)) for i in at) + "]"
