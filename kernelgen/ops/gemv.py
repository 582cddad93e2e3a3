"""One row times a matrix in float32: the product of a decoder that makes one token at a time.

In: a row [k] and weights [k, n]. Out: [n]. Formula: y = x W. Never here: several rows at once,
which are `kernelgen.ops.gemm_plain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from kernelgen.ops.gemm_plain import at_least, product_bound
from kernelgen.ops.operator import Array, Example, Operator, Tensor, bytes_of, values


@dataclass(frozen=True)
class Gemv(Operator):
    """out[n] = x[k] w[k, n]."""

    k: int
    n: int

    family: ClassVar[str] = "gemv"

    def __post_init__(self) -> None:
        at_least(self.family, k=self.k, n=self.n)

    @property
    def name(self) -> str:
        return f"{self.family}_{self.k}x{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", (self.k,), "float32", "input"),
            Tensor("w", (self.k, self.n), "float32", "weight"),
            Tensor("out", (self.n,), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        plain = "integer_exact" if regime == "integer_exact" else "nominal"
        return {
            "x": values(rng, (self.k,), regime),
            "w": values(rng, (self.k, self.n), plain, spread=1.0 / sqrt(self.k)),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 2 * self.k * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(96, 128), {}),
            Example(cls(61, 65), {}),
            Example(cls(1, 3), {}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": product_bound(arrays["x"], arrays["w"], self.k)}
