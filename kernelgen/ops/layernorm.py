"""Layer normalisation of rows, alone and after a residual sum.

In: rows [m, n], for the residual form two of them; scale and shift [n]. Out: normalised rows, and
the sum where there is one. Formula: Ba, Kiros, Hinton 2016, see `kernelgen.ops.norm`. Never here:
the product before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    values,
)


@dataclass(frozen=True)
class Layernorm(Operator):
    """out[i] = (x[i] - mean) / sqrt(variance + epsilon) * gamma + beta."""

    n: int
    epsilon: float

    family: ClassVar[str] = "layernorm"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            Tensor("gamma", (self.n,), "float32", "weight"),
            Tensor("beta", (self.n,), "float32", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"epsilon": self.epsilon}

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": layernorm(arrays["x"], arrays["gamma"], arrays["beta"], self.epsilon)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {
            "x": values(rng, (dims["m"], self.n), regime),
            "gamma": 1.0 + values(rng, (self.n,), "nominal", spread=0.2),
            "beta": values(rng, (self.n,), "nominal", spread=0.2),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 8 * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96, 1e-12), {"m": 7}), Example(cls(77, 1e-5), {"m": 3}))

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = arrays["x"]
        bound = layernorm_bound(x, np.zeros(x.shape), arrays["gamma"], arrays["beta"], self.epsilon)
        return {"out": bound}


@dataclass(frozen=True)
class ResidualLayernorm(Layernorm):
    """total = x + residual; out = LayerNorm(total) * gamma + beta."""

    family: ClassVar[str] = "residual_layernorm"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            Tensor("residual", ("m", self.n), "float32", "input"),
            Tensor("gamma", (self.n,), "float32", "weight"),
            Tensor("beta", (self.n,), "float32", "weight"),
            Tensor("total", ("m", self.n), "float32", "output"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        total = arrays["x"].astype(np.float64) + arrays["residual"].astype(np.float64)
        out = layernorm(total, arrays["gamma"], arrays["beta"], self.epsilon)
        return {"total": total, "out": out}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        drawn = super().sample(rng, dims, regime)
        return {**drawn, "residual": values(rng, (dims["m"], self.n), regime)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return 9 * dims["m"] * self.n

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        total = self.oracle(arrays, dims)["total"]
        rounding = UNIT_ROUNDOFF * np.abs(total)
        out = layernorm_bound(total, rounding, arrays["gamma"], arrays["beta"], self.epsilon)
        return {"total": rounding, "out": out}
