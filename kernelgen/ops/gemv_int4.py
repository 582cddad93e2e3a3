"""Products with weights of four bits: float32 activations, a scale and a zero point per group.

In: rows [m, k]; weights [n, k / 2] as bytes, the earlier of two inner places in the low half;
scales [n, groups] and zero points [n, groups]. Out: [m, n] in float32. Formula: y[i, j] = sum over
k of a[i, k] (q[j, k] - zero[j, g]) scale[j, g] with g = k / group (the asymmetric form of GPTQ,
Frantar et al. 2022, and AWQ, Lin et al. 2023). The high half of the last byte of an odd k counts
for nothing. Never here: other bit widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.gemm_plain import at_least, product_bound
from kernelgen.ops.gemv_int8 import check_inner, scales, spread_over
from kernelgen.ops.operator import Array, Example, Operator, Tensor, bytes_of, values

LARGEST_GROUP = 1 << 12
"""Sums over a group, times any zero point, stay inside int32."""


@dataclass(frozen=True)
class GemvInt4(Operator):
    """out[m, n] = a[m, k] ((q[n, k] - zero[n, k / group]) scale[n, k / group])^T."""

    k: int
    n: int
    group: int = 32

    family: ClassVar[str] = "gemv_int4"

    def __post_init__(self) -> None:
        at_least(self.family, k=self.k, n=self.n, group=self.group)
        check_inner(self.family, self.k, self.group)
        if self.group > LARGEST_GROUP:
            raise ValueError(f"{self.family}.group: got {self.group}, wanted <= {LARGEST_GROUP}")

    @property
    def name(self) -> str:
        return f"{self.family}_{self.k}x{self.n}_g{self.group}"

    @property
    def groups(self) -> int:
        return -(-self.k // self.group)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("a", ("m", self.k), "float32", "input"),
            Tensor("w", (self.n, (self.k + 1) // 2), "uint8", "weight"),
            Tensor("scale", (self.n, self.groups), "float32", "weight"),
            Tensor("zero", (self.n, self.groups), "uint8", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def weights(self, arrays: Mapping[str, Array]) -> Array:
        """The weights' values [k, n] in float64."""
        w = arrays["w"]
        halves = np.stack([w & 15, w >> 4], axis=-1).reshape(self.n, -1)[:, : self.k]
        scale, zero = (
            spread_over(arrays[name].astype(np.float64), self.group, self.k)
            for name in ("scale", "zero")
        )
        wide: Array = ((halves.astype(np.float64) - zero) * scale).T
        return wide

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["a"].astype(np.float64) @ self.weights(arrays)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        sizes = (self.n, self.groups)
        return {
            "a": values(rng, (dims["m"], self.k), regime),
            "w": rng.integers(0, 256, (self.n, (self.k + 1) // 2)).astype(np.uint8),
            "scale": scales(rng, sizes, regime, 1.0 / (5.0 * self.k**0.5)),
            "zero": rng.integers(0, 16, sizes).astype(np.uint8),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 2 * dims["m"] * self.k * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(64, 48, 32), {"m": 1}),
            Example(cls(61, 65, 16), {"m": 3}),
            Example(cls(96, 33, 64), {"m": 2}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": product_bound(arrays["a"], self.weights(arrays), self.k)}
