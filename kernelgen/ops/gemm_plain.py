"""Matrix products in float32 with an epilogue of one line.

In: row-major activations [m, k], weights [k, n], and what the epilogue needs. Out: [m, n].
Formulas: y = x W (+ b); GELU(y) = y (1 + erf(y / sqrt 2)) / 2 (Hendrycks and Gimpel 2016);
SiLU(y) = y / (1 + exp(-y)) (Elfwing et al. 2017); y + residual.
Never here: how a product is tiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from kernelgen.ops.gemm import GELU_SLOPE, gelu
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

EPILOGUES = ("none", "bias", "bias_gelu", "bias_silu", "residual")
SILU_SLOPE = 1.1
"""Largest slope of SiLU: it passes an error of its argument on by no more than this."""


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)) in float64, without overflow."""
    wide = x.astype(np.float64)
    decay = np.exp(-np.abs(wide))
    result: Array = wide * np.where(wide >= 0, 1.0, decay) / (1.0 + decay)
    return result


def at_least(family: str, **sizes: int) -> None:
    """Raises `ValueError` naming the first of `sizes` that is no whole number of 1 or more."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{family}.{name}: got {size!r}, wanted a whole number of 1 or more")


def product_bound(a: Array, w: Array, k: int, *added: Array) -> Array:
    """Rounding of float32 dot products of length k, and of what is added to them."""
    size: Array = np.abs(a.astype(np.float64)) @ np.abs(w.astype(np.float64))
    for one in added:
        size = size + np.abs(one.astype(np.float64))
    bound: Array = UNIT_ROUNDOFF * sum_growth(k) * size
    return bound


@dataclass(frozen=True)
class Gemm(Operator):
    """out[m, n] = epilogue(a[m, k] w[k, n]); `epilogue` is one of `EPILOGUES`."""

    k: int
    n: int
    epilogue: str = "none"

    family: ClassVar[str] = "gemm"

    def __post_init__(self) -> None:
        at_least(self.family, k=self.k, n=self.n)
        if self.epilogue not in EPILOGUES:
            raise ValueError(
                f"{self.family}.epilogue: got {self.epilogue!r}, wanted one of {EPILOGUES}"
            )

    @property
    def name(self) -> str:
        after = "" if self.epilogue == "none" else f"_{self.epilogue}"
        return f"{self.family}_{self.k}x{self.n}{after}"

    @property
    def has_bias(self) -> bool:
        return self.epilogue.startswith("bias")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        found = [Tensor("a", ("m", self.k), "float32", "input")]
        if self.epilogue == "residual":
            found.append(Tensor("residual", ("m", self.n), "float32", "input"))
        found.append(Tensor("w", (self.k, self.n), "float32", "weight"))
        if self.has_bias:
            found.append(Tensor("bias", (self.n,), "float32", "weight"))
        return (*found, Tensor("out", ("m", self.n), "float32", "output"))

    def _before(self, arrays: Mapping[str, Array]) -> Array:
        """The product with what is added to it."""
        made: Array = arrays["a"].astype(np.float64) @ arrays["w"].astype(np.float64)
        for name in ("bias", "residual"):
            if name in arrays:
                made = made + arrays[name].astype(np.float64)
        return made

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        made = self._before(arrays)
        if self.epilogue == "bias_gelu":
            made = gelu(made)
        if self.epilogue == "bias_silu":
            made = silu(made)
        return {"out": made}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        plain = "integer_exact" if regime == "integer_exact" else "nominal"
        drawn: dict[str, Array] = {
            "a": values(rng, (dims["m"], self.k), regime),
            "w": values(rng, (self.k, self.n), plain, spread=1.0 / sqrt(self.k)),
        }
        if self.has_bias:
            drawn["bias"] = values(rng, (self.n,), plain, spread=0.5)
        if self.epilogue == "residual":
            drawn["residual"] = values(rng, (dims["m"], self.n), regime)
        return drawn

    def flops(self, dims: Mapping[str, int]) -> int:
        after = {"none": 0, "bias": 1, "residual": 1, "bias_gelu": 21, "bias_silu": 21}
        return dims["m"] * self.n * (2 * self.k + after[self.epilogue])

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(48, 64), {"m": 13}),
            Example(cls(37, 65, "bias_silu"), {"m": 5}),
            Example(cls(19, 33, "residual"), {"m": 9}),
            Example(cls(16, 24, "bias_gelu"), {"m": 1}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        added = [arrays[name] for name in ("bias", "residual") if name in arrays]
        bound = product_bound(arrays["a"], arrays["w"], self.k, *added)
        if self.epilogue not in ("bias_gelu", "bias_silu"):
            return {"out": bound}
        slope = GELU_SLOPE if self.epilogue == "bias_gelu" else SILU_SLOPE
        # erf and exp in float32 are good to a few units of their own scale, one; x multiplies it.
        own = 8.0 * UNIT_ROUNDOFF * np.abs(self._before(arrays))
        return {"out": slope * bound + own}
