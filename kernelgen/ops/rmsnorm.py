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


@dataclass(frozen=True)
class Rmsnorm(Operator):
    """out[i] = x[i] / sqrt(mean(x[i]^2) + epsilon) * gamma."""

    n: int
    epsilon: float

    family: ClassVar[str] = "rmsnorm"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            Tensor("gamma", (self.n,), "float32", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"epsilon": self.epsilon}

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = arrays["x"].astype(np.float64)
        root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        return {"out": x / root * arrays["gamma"].astype(np.float64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {
            "x": values(rng, (dims["m"], self.n), regime),
            "gamma": 1.0 + values(rng, (self.n,), "nominal", spread=0.2),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 4 * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96, 1e-6), {"m": 5}), Example(cls(77, 1e-5), {"m": 3}))

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """Squares are positive, so the sum's relative error is that of its roundings; the root
        halves it.
        """
        out = np.abs(self.oracle(arrays, dims)["out"])
        return {"out": UNIT_ROUNDOFF * (0.5 * sum_growth(self.n) + 6.0) * out + 1e-37}


@dataclass(frozen=True)
class ResidualRmsnorm(Rmsnorm):
    """total = x + residual; out = total / sqrt(mean(total^2) + epsilon) * gamma."""

    family: ClassVar[str] = "residual_rmsnorm"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            Tensor("residual", ("m", self.n), "float32", "input"),
            Tensor("gamma", (self.n,), "float32", "weight"),
            Tensor("total", ("m", self.n), "float32", "output"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        total = arrays["x"].astype(np.float64) + arrays["residual"].astype(np.float64)
        root = np.sqrt((total * total).mean(axis=-1, keepdims=True) + self.epsilon)
        return {"total": total, "out": total / root * arrays["gamma"].astype(np.float64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        drawn = super().sample(rng, dims, regime)
        return {**drawn, "residual": values(rng, (dims["m"], self.n), regime)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return 5 * dims["m"] * self.n

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """The sum's one rounding is relative to itself, so it adds two units to the plain bound."""
        made = self.oracle(arrays, dims)
        relative = UNIT_ROUNDOFF * (0.5 * sum_growth(self.n) + 8.0)
        return {
            "total": UNIT_ROUNDOFF * np.abs(made["total"]),
            "out": relative * np.abs(made["out"]) + 1e-37,
        }
