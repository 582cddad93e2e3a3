"""Products of bytes: quantised activations with a zero point, signed weights with a scale per
output.

In: rows [m, k] of uint8 (or int8), their scale [1] and zero point [1], weights [k, n] of int8 and
their scales [n]. Out: [m, n] in float32. Formula: y[i, j] = a_scale w_scale[j] sum over k of
(a[i, k] - a_zero) w[k, j] (Jacob et al. 2018; ONNX MatMulInteger and what follows it). The sum is
exact in int32. Never here: how the activations were quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.gemm_plain import at_least
from kernelgen.ops.gemv_int8 import check_inner, scales
from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Example,
    Operator,
    Tensor,
    bytes_of,
    check_regime,
)


@dataclass(frozen=True)
class GemmInt8(Operator):
    """out[m, n] = a_scale w_scale[n] (a[m, k] - a_zero) w[k, n]; `signed` activations are int8."""

    k: int
    n: int
    signed: bool = False

    family: ClassVar[str] = "gemm_int8"

    def __post_init__(self) -> None:
        at_least(self.family, k=self.k, n=self.n)
        check_inner(self.family, self.k, 0)
        if not isinstance(self.signed, bool):
            raise ValueError(f"{self.family}.signed: got {self.signed!r}, wanted true or false")

    @property
    def name(self) -> str:
        return f"{self.family}_{self.k}x{self.n}" + ("_signed" if self.signed else "")

    @property
    def dtype(self) -> str:
        return "int8" if self.signed else "uint8"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("a", ("m", self.k), self.dtype, "input"),
            Tensor("a_scale", (1,), "float32", "input"),
            Tensor("a_zero", (1,), self.dtype, "input"),
            Tensor("w", (self.k, self.n), "int8", "weight"),
            Tensor("w_scale", (self.n,), "float32", "weight"),
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        a = arrays["a"].astype(np.float64) - arrays["a_zero"].astype(np.float64)
        total = a @ arrays["w"].astype(np.float64)
        scale = arrays["a_scale"].astype(np.float64) * arrays["w_scale"].astype(np.float64)
        return {"out": total * scale}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        """Regimes move the scale of the activations, their zero point, and how full they are."""
        check_regime(regime)
        low = -128 if self.signed else 0
        bytes_of_a = rng.integers(low, low + 256, (dims["m"], self.k))
        zero = int(rng.integers(low + 96, low + 160))
        size = {"scaled_down": 1e-5, "scaled_up": 10.0}.get(regime, 0.01)
        if regime == "shifted":
            zero = int(rng.choice([low, low + 255]))
        if regime == "structured":
            bytes_of_a[rng.random(bytes_of_a.shape) < 0.5] = low + 255
        if regime == "ragged":
            bytes_of_a[rng.random(bytes_of_a.shape) < 0.7] = zero
        dtype = np.int8 if self.signed else np.uint8
        w = rng.integers(-128, 128, (self.k, self.n)).astype(np.int8)
        if regime == "structured":  # whole columns at an end of the range: where pairs saturate
            w[:, ::3] = -128
            w[:, 1::3] = 127
        return {
            "a": bytes_of_a.astype(dtype),
            "a_scale": scales(rng, (1,), regime, size),
            "a_zero": np.array([zero], dtype),
            "w": w,
            "w_scale": scales(rng, (self.n,), regime, 1.0 / (74.0 * self.k**0.5)),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        """Floating-point operations alone: the conversion and two scales per output. Products of
        bytes are none; a roof in float32 says nothing about them.
        """
        return 3 * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(64, 48), {"m": 5}),
            Example(cls(37, 65), {"m": 3}),
            Example(cls(50, 33, True), {"m": 7}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """The sum is exact; its conversion, two scales and their product round."""
        return {"out": 4.0 * UNIT_ROUNDOFF * np.abs(self.oracle(arrays, dims)["out"])}
