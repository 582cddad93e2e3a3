"""Activations, element by element: GELU (erf form), SiLU, SwiGLU.

In: rows [m, n]; SwiGLU takes gate and up side by side, [m, 2 n]. Out: [m, n]. Formulas: GELU x
Phi(x) (Hendrycks and Gimpel 2016), SiLU x / (1 + exp(-x)), SwiGLU SiLU(gate) * up (Shazeer 2020).
Never here: the tanh form of GELU, the product before or after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.gemm import gelu
from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Example,
    Operator,
    Tensor,
    bytes_of,
    values,
)

OWN_UNITS = 8.0
"""erf and the logistic function in float32 are good to a few units of their own scale, one; the
activation multiplies that by x."""

SMALLEST = 1e-37


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)) in float64."""
    wide = x.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        result: Array = wide / (1.0 + np.exp(-wide))
    return result


@dataclass(frozen=True)
class Gelu(Operator):
    """out = x (1 + erf(x / sqrt 2)) / 2."""

    n: int

    family: ClassVar[str] = "gelu"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": gelu(arrays["x"].astype(np.float64))}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"x": values(rng, (dims["m"], self.n), regime, spread=2.0)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return 20 * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96), {"m": 5}), Example(cls(19), {"m": 3}))

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        size = np.abs(arrays["x"].astype(np.float64))
        return {"out": OWN_UNITS * UNIT_ROUNDOFF * size + SMALLEST}


@dataclass(frozen=True)
class Silu(Gelu):
    """out = x / (1 + exp(-x))."""

    family: ClassVar[str] = "silu"

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": silu(arrays["x"])}


@dataclass(frozen=True)
class Swiglu(Operator):
    """out = SiLU(gate) * up; gate is the first half of each row, up the second."""

    n: int

    family: ClassVar[str] = "swiglu"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("gate_up", ("m", 2 * self.n), "float32", "input"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        both = arrays["gate_up"]
        return {"out": silu(both[:, : self.n]) * both[:, self.n :].astype(np.float64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"gate_up": values(rng, (dims["m"], 2 * self.n), regime, spread=2.0)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return 21 * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96), {"m": 5}), Example(cls(19), {"m": 3}))

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        wide = np.abs(arrays["gate_up"].astype(np.float64))
        return {"out": OWN_UNITS * UNIT_ROUNDOFF * wide[:, : self.n] * wide[:, self.n :] + SMALLEST}
