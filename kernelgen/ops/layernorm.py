"""Layer normalisation of rows, alone and after a residual sum.

In: rows [m, n], for the residual form two of them; scale and shift [n]. Out: normalised rows, and
the sum where there is one. Formula: Ba, Kiros, Hinton 2016, see `kernelgen.ops.norm`. Never here:
the product before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kernelgen.ops.norm import layernorm, layernorm_bound
from kernelgen.ops.operator import Array, Example
from kernelgen.ops.rows import RowNorm


@dataclass(frozen=True)
class Layernorm(RowNorm):
    """out[i] = (x[i] - mean) / sqrt(variance + epsilon) * gamma + beta."""

    family: ClassVar[str] = "layernorm"
    weights: ClassVar[tuple[str, ...]] = ("gamma", "beta")
    each_flops: ClassVar[int] = 8

    def normalised(self, rows: Array, arrays: Mapping[str, Array]) -> Array:
        return layernorm(rows, arrays["gamma"], arrays["beta"], self.epsilon)

    def bound(self, rows: Array, rounding: Array, arrays: Mapping[str, Array]) -> Array:
        return layernorm_bound(rows, rounding, arrays["gamma"], arrays["beta"], self.epsilon)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96, 1e-12), {"m": 7}), Example(cls(77, 1e-5), {"m": 3}))


@dataclass(frozen=True)
class ResidualLayernorm(Layernorm):
    """total = x + residual; out = LayerNorm(total) * gamma + beta."""

    family: ClassVar[str] = "residual_layernorm"
    residual: ClassVar[bool] = True
