"""Matrix products with what follows them: bias, GELU, or residual and LayerNorm.

In: row-major activations [m, k] and weights [k, n]. Out: [m, n]. Formulas: y = x W + b; GELU(y) = y
(1 + erf(y / sqrt 2)) / 2 (Hendrycks and Gimpel 2016); LayerNorm over the last axis (Ba et al.
2016).
Never here: how a product is tiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import erf, sqrt
from typing import ClassVar

import numpy as np

from kernelgen.ops.norm import layernorm, layernorm_bound
from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Example,
    Operator,
    Tensor,
    bytes_of,
    sum_growth,
    values,
)
from kernelgen.ops.rows import far_rows

_ERF = np.frompyfunc(erf, 1, 1)

GELU_SLOPE = 1.13
"""Largest slope of GELU: it passes an error of its argument on by no more than this."""


def gelu(x: Array) -> Array:
    """Exact (erf) GELU in float64."""
    wide = x.astype(np.float64)
    result: Array = 0.5 * wide * (1.0 + np.asarray(_ERF(wide / sqrt(2.0)), np.float64))
    return result


@dataclass(frozen=True)
class GemmBias(Operator):
    """out[m, n] = a[m, k] w[k, n] + bias[n]."""

    k: int
    n: int

    family: ClassVar[str] = "gemm_bias"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.k}x{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("a", ("m", self.k), "float32", "input"),
            Tensor("w", (self.k, self.n), "float32", "weight"),
            Tensor("bias", (self.n,), "float32", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def product(self, arrays: Mapping[str, Array]) -> Array:
        wide: Array = arrays["a"].astype(np.float64) @ arrays["w"].astype(np.float64)
        return wide + arrays["bias"].astype(np.float64)

    def product_bound(self, arrays: Mapping[str, Array]) -> Array:
        """Rounding of one float32 dot product of length k, and of adding the bias."""
        size: Array = np.abs(arrays["a"].astype(np.float64)) @ np.abs(
            arrays["w"].astype(np.float64)
        )
        bound: Array = (
            UNIT_ROUNDOFF * sum_growth(self.k) * (size + np.abs(arrays["bias"].astype(np.float64)))
        )
        return bound

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self.product(arrays)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        plain = "integer_exact" if regime == "integer_exact" else "nominal"
        return {
            "a": values(rng, (dims["m"], self.k), regime),
            "w": values(rng, (self.k, self.n), plain, spread=1.0 / sqrt(self.k)),
            "bias": values(rng, (self.n,), plain, spread=0.5),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return dims["m"] * self.n * (2 * self.k + 1)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96, 96), {"m": 13}),)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self.product_bound(arrays)}


@dataclass(frozen=True)
class GemmBiasGelu(GemmBias):
    """out[m, n] = GELU(a[m, k] w[k, n] + bias[n]), the erf form."""

    family: ClassVar[str] = "gemm_bias_gelu"

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": gelu(self.product(arrays))}

    def flops(self, dims: Mapping[str, int]) -> int:
        return super().flops(dims) + 20 * dims["m"] * self.n

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = self.product(arrays)
        # erf in float32 is good to a few units of its own scale, one; GELU multiplies that by x.
        own = 8.0 * UNIT_ROUNDOFF * np.abs(x)
        return {"out": GELU_SLOPE * self.product_bound(arrays) + own}


@dataclass(frozen=True)
class GemmBiasResidualLayernorm(GemmBias):
    """out[m, n] = LayerNorm(a[m, k] w[k, n] + bias[n] + residual[m, n]) * gamma[n] + beta[n]."""

    epsilon: float

    family: ClassVar[str] = "gemm_bias_residual_layernorm"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("a", ("m", self.k), "float32", "input"),
            Tensor("residual", ("m", self.n), "float32", "input"),
            Tensor("w", (self.k, self.n), "float32", "weight"),
            Tensor("bias", (self.n,), "float32", "weight"),
            Tensor("gamma", (self.n,), "float32", "weight"),
            Tensor("beta", (self.n,), "float32", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"epsilon": self.epsilon}

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        rows = self.product(arrays) + arrays["residual"].astype(np.float64)
        return {"out": layernorm(rows, arrays["gamma"], arrays["beta"], self.epsilon)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        drawn = super().sample(rng, dims, regime)
        drawn["residual"] = far_rows(rng, (dims["m"], self.n), regime)
        drawn["gamma"] = 1.0 + values(rng, (self.n,), "nominal", spread=0.2)
        drawn["beta"] = values(rng, (self.n,), "nominal", spread=0.2)
        return drawn

    def flops(self, dims: Mapping[str, int]) -> int:
        return super().flops(dims) + 9 * dims["m"] * self.n

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96, 96, 1e-12), {"m": 13}),)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        residual = np.abs(arrays["residual"].astype(np.float64))
        rows = self.product(arrays) + arrays["residual"].astype(np.float64)
        rounding = self.product_bound(arrays) + 2.0 * UNIT_ROUNDOFF * (residual + np.abs(rows))
        return {
            "out": layernorm_bound(rows, rounding, arrays["gamma"], arrays["beta"], self.epsilon)
        }
