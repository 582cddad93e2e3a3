"""Root-mean-square normalisation of rows, alone and after a residual sum.

In: rows [m, n], for the residual form two of them, and a scale [n]. Out: [m, n], and the sum where
there is one. Formula: x / sqrt(mean(x^2) + epsilon) * gamma (Zhang and Sennrich 2019). Never here:
how rows are walked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import UNIT_ROUNDOFF, Array, Example, sum_growth
from kernelgen.ops.rows import RowNorm


@dataclass(frozen=True)
class Rmsnorm(RowNorm):
    """out[i] = x[i] / sqrt(mean(x[i]^2) + epsilon) * gamma."""

    family: ClassVar[str] = "rmsnorm"
    weights: ClassVar[tuple[str, ...]] = ("gamma",)
    each_flops: ClassVar[int] = 4

    def normalised(self, rows: Array, arrays: Mapping[str, Array]) -> Array:
        wide = rows.astype(np.float64)
        root = np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + self.epsilon)
        result: Array = wide / root * arrays["gamma"].astype(np.float64)
        return result

    def bound(self, rows: Array, rounding: Array, arrays: Mapping[str, Array]) -> Array:
        """Squares are positive, so the sum's relative error is that of its roundings; the root
        halves it. An error in the rows counts twice: in the row and, at most so, in the root.
        """
        own = UNIT_ROUNDOFF * (0.5 * sum_growth(self.n) + 6.0)
        root = np.sqrt((rows * rows).mean(axis=-1, keepdims=True) + self.epsilon)
        entering = 2.0 * rounding / root * np.abs(arrays["gamma"].astype(np.float64))
        result: Array = own * np.abs(self.normalised(rows, arrays)) + entering + 1e-37
        return result

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96, 1e-6), {"m": 5}), Example(cls(77, 1e-5), {"m": 3}))


@dataclass(frozen=True)
class ResidualRmsnorm(Rmsnorm):
    """total = x + residual; out = total / sqrt(mean(total^2) + epsilon) * gamma."""

    family: ClassVar[str] = "residual_rmsnorm"
    residual: ClassVar[bool] = True
