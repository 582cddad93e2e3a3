"""Products with weights kept as signed bytes: float32 activations, one scale per output or per
group of inner places.

In: rows [m, k], weights [n, k] as int8 and scales [n, groups]. Out: [m, n] in float32. Formula:
y[i, j] = sum over k of a[i, k] w[j, k] scale[j, k / group] (the symmetric weight-only form of
LLM.int8's successors, and of GGUF's Q8_0 with float32 scales). Never here: activations in bytes,
which are `kernelgen.ops.gemm_int8`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.gemm_plain import at_least, product_bound
from kernelgen.ops.operator import Array, Example, Operator, Tensor, bytes_of, values

LARGEST_K = 1 << 16
"""Sums of this many products of bytes stay inside int32: 255 * 128 * 2^16 < 2^31."""

GROUP_STEP = 16
"""Groups are whole multiples of it, as every format in use has them."""


def check_inner(family: str, k: int, group: int) -> None:
    """Raises `ValueError` for an inner length or a group that no kernel takes."""
    if k > LARGEST_K:
        raise ValueError(f"{family}.k: got {k}, wanted at most {LARGEST_K}: sums are int32")
    if not isinstance(group, int) or group < 0 or group % GROUP_STEP:
        raise ValueError(
            f"{family}.group: got {group!r}, wanted 0 for one scale per output, "
            f"or a multiple of {GROUP_STEP}"
        )


def scales(rng: np.random.Generator, shape: tuple[int, ...], regime: str, size: float) -> Array:
    """Positive scales around `size`; powers of two where answers must be integers."""
    if regime == "integer_exact":
        return np.exp2(rng.integers(0, 3, shape)).astype(np.float32)
    return (size * rng.uniform(0.5, 1.5, shape)).astype(np.float32)


def spread_over(per_group: Array, group: int, k: int) -> Array:
    """Columns [n, groups] repeated to [n, k]."""
    wide: Array = np.repeat(per_group, group or k, axis=1)[:, :k]
    return wide


@dataclass(frozen=True)
class GemvInt8(Operator):
    """out[m, n] = a[m, k] (w[n, k] scale[n, k / group])^T; `group` 0 is one scale per output."""

    k: int
    n: int
    group: int = 0

    family: ClassVar[str] = "gemv_int8"

    def __post_init__(self) -> None:
        at_least(self.family, k=self.k, n=self.n)
        check_inner(self.family, self.k, self.group)

    @property
    def name(self) -> str:
        return f"{self.family}_{self.k}x{self.n}" + (f"_g{self.group}" if self.group else "")

    @property
    def groups(self) -> int:
        return -(-self.k // self.group) if self.group else 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("a", ("m", self.k), "float32", "input"),
            Tensor("w", (self.n, self.k), "int8", "weight"),
            Tensor("scale", (self.n, self.groups), "float32", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def weights(self, arrays: Mapping[str, Array]) -> Array:
        """The weights' values [k, n] in float64."""
        scale = spread_over(arrays["scale"].astype(np.float64), self.group, self.k)
        wide: Array = (arrays["w"].astype(np.float64) * scale).T
        return wide

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["a"].astype(np.float64) @ self.weights(arrays)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        drawn = rng.integers(-128, 128, (self.n, self.k)).astype(np.int8)
        return {
            "a": values(rng, (dims["m"], self.k), regime),
            "w": drawn,
            "scale": scales(rng, (self.n, self.groups), regime, 1.0 / (74.0 * self.k**0.5)),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 2 * dims["m"] * self.k * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(64, 48), {"m": 1}),
            Example(cls(61, 65), {"m": 3}),
            Example(cls(83, 37, 32), {"m": 2}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": product_bound(arrays["a"], self.weights(arrays), self.k)}
