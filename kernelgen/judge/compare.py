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

AGREEMENT = 2e-3
"""Share of the largest answer by which a timed answer may differ from the incumbent's without
being looked at by the oracle."""


@dataclass(frozen=True)
class Comparison:
    """`reason` is None for a match, else one of `verdict.REASONS`; `error_ratio` is the worst error
    over its bound.
    """

    reason: str | None
    error_ratio: float
    detail: str


def poison_word(rng: np.random.Generator) -> int:
    """A 32-bit pattern that is a quiet NaN with a random payload: nobody can guess it or compute
    with it. The sign bit stays clear: as an integer it is then above two thousand million, where no
    sum of a test lies, and not a small negative number that an honest kernel may well answer.
    """
    return 0x7FC00000 | int(rng.integers(1, 1 << 22))


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


def still_poisoned(got: Array, poison: int) -> npt.NDArray[np.bool_]:
    """Where every byte of an element is what the judge put there. Elements below four bytes hold a
    piece of the poison that an answer may hold too, so only a whole array of them counts.
    """
    size = got.dtype.itemsize
    if size % 4 == 0:
        words = np.ascontiguousarray(got).reshape(-1).view(np.uint8).view(np.uint32)
        same = (words == np.uint32(poison)).reshape(got.size, -1).all(axis=1)
        return np.asarray(same.reshape(got.shape), dtype=np.bool_)
    whole = got.size >= 16 and bool(np.array_equal(_bits(got), _bits(_like(got, poison))))
    return np.full(got.shape, whole, dtype=np.bool_)


def _like(got: Array, poison: int) -> Array:
    return poisoned(got.shape, got.dtype.str, poison)


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def disagrees(mine: Array, other: Array, pick: slice) -> bool:
    """Whether two kernels' answers differ by more than two honest ones usually do: a small share of
    the largest answer for floats, any difference for integers.
    """
    left, right = mine[pick], other[pick]
    if mine.dtype.kind != "f":
        return not np.array_equal(left, right)
    finite = np.isfinite(left) & np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite]):  # a NaN never equals, so it is looked at
        return True
    if not finite.any():
        return False
    whole = np.abs(other[np.isfinite(other)])
    gap = np.abs(left[finite] - right[finite])
    return not float(gap.max()) <= AGREEMENT * float(whole.max())


def _compare_one(
    name: str, got: Array, want: Array, bound: Array, poison: int, exact: bool
) -> Comparison:
    if got.shape != want.shape:
        return Comparison("wrong_output", np.inf, f"{name}: shape {got.shape}, wanted {want.shape}")
    if got.size == 0:
        return Comparison(None, 0.0, "")
    left = still_poisoned(got, poison)
    if left.any():
        at = np.unravel_index(int(np.argmax(left)), got.shape)
        return Comparison(
            "not_written", np.inf, f"{name}{_index(at)} and {int(left.sum()) - 1} more not written"
        )
    if got.dtype.kind in "iub":
        return _compare_integers(name, got, want, bound)
    return _compare_floats(name, got, want, bound, exact)


def _compare_integers(name: str, got: Array, want: Array, bound: Array) -> Comparison:
    """Bit for bit, except where the operator itself states a bound of one or more: a quantised
    value whose rounding two honest kernels may see differently. Compared as integers: float64 has
    no room for all of int64.
    """
    target = np.rint(want) if want.dtype.kind == "f" else want
    faithful = want.dtype.kind != "f" or float(np.abs(target).max()) < 2.0**53
    if faithful and bool((got == target).all()):
        return Comparison(None, 0.0, "")
    wide = np.array([int(value) for value in target.reshape(-1)], object).reshape(want.shape)
    error = np.abs(got.astype(object) - wide).astype(np.float64)
    limit = np.broadcast_to(np.asarray(bound, dtype=np.float64), want.shape)
    limit = np.where(limit >= 1.0, limit, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0.0, 0.0, error / limit)
    at = np.unravel_index(int(np.argmax(ratio)), got.shape)
    worst = float(ratio[at])
    if worst <= 1.0:
        return Comparison(None, worst, "")
    wrong = int((~(ratio <= 1.0)).sum())
    return Comparison(
        "wrong_output",
        worst,
        f"{name}{_index(at)} is {got[at]}, wanted {wide[at]} within {limit[at]:g}; "
        f"{wrong} of {got.size} wrong",
    )


def _compare_floats(name: str, got: Array, want: Array, bound: Array, exact: bool) -> Comparison:
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
            f"{name}{_index(at)} is {float(mine[at])!r}, wanted {float(want[at])!r} within "
            f"{float(limit[at]):.3g}; "
            f"{wrong} of {got.size} wrong",
        )
    return Comparison(None, worst, "")


def _integral(want: Array) -> bool:
    return bool(np.all(np.abs(want) < EXACT_LIMIT) and np.all(want == np.rint(want)))


def _index(at: tuple[np.intp, ...]) -> str:
    return "[" + ",".join(str(int(i)) for i in at) + "]"
