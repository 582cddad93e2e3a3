"""Softmax over rows, with or without an additive mask.

In: rows [m, n], a mask [m, n] where there is one. Out: [m, n]. Formula: exp(z - max z) / sum of the
same over the row, z = x + mask. A row whose every z is -inf has nothing to choose from: it gives
zeros, as attention needs it (ONNX leaves NaN there). NaN or +inf in a row makes the whole row NaN.
Never here: scales, other axes.
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

SMALLEST = 4e-38
"""What a float32 kernel may lose below its normal numbers."""

FAR = -1e9
"""What models that know no infinity mask with."""


@dataclass(frozen=True)
class Softmax(Operator):
    """out[i] = softmax(x[i] + mask[i]); no mask unless `masked`."""

    n: int
    masked: bool = False

    family: ClassVar[str] = "softmax"

    @property
    def name(self) -> str:
        return f"{self.family}_masked_{self.n}" if self.masked else f"{self.family}_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        mask = (Tensor("mask", ("m", self.n), "float32", "input"),) if self.masked else ()
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            *mask,
            Tensor("out", ("m", self.n), "float32", "output"),
        )

    def _scores(self, arrays: Mapping[str, Array]) -> Array:
        x = arrays["x"].astype(np.float64)
        return x + arrays["mask"].astype(np.float64) if self.masked else x

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        z = self._scores(arrays)
        with np.errstate(invalid="ignore"):
            top = z.max(axis=-1, keepdims=True)
            e = np.exp(z - np.where(np.isneginf(top), 0.0, top))
            total = e.sum(axis=-1, keepdims=True)
        return {"out": e / np.where(total == 0.0, 1.0, total)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        m = dims["m"]
        drawn: dict[str, Array] = {"x": values(rng, (m, self.n), regime, spread=2.0)}
        if regime == "shifted":  # whole rows far from zero: exp would overflow without the maximum
            drawn["x"] += rng.choice([-3e4, -500.0, 0.0, 500.0, 3e4], (m, 1)).astype(np.float32)
        if self.masked:
            drawn["mask"] = self._mask(rng, m, regime)
        return drawn

    def _mask(self, rng: np.random.Generator, m: int, regime: str) -> Array:
        """Rows end early, blocks are cut out, some rows but the first are gone altogether."""
        away = np.float32(FAR if regime == "nominal" else -np.inf)
        mask = np.zeros((m, self.n), np.float32)
        place = np.arange(self.n)
        ends = rng.integers(1, self.n + 1, (m, 1))
        mask[place >= ends] = away
        begins = rng.integers(0, self.n, (m, 1))
        block = (place >= begins) & (place < begins + 1 + self.n // 4) & (place > 0)
        mask[block] = away
        gone = rng.random(m) < 0.2
        gone[0] = False
        mask[gone] = away
        return mask

    def flops(self, dims: Mapping[str, int]) -> int:
        return 16 * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(96), {"m": 5}),
            Example(cls(77, True), {"m": 6}),
            Example(cls(9), {"m": 3}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """A rounding of z or of z - max is a relative error of its size in exp (a factor, where z
        is so far out that it has no digits left); exp adds its own four units. The row's errors
        meet in the sum, weighted by the result.
        """
        z = self._scores(arrays)
        out = self.oracle(arrays, dims)["out"]
        live = np.isfinite(z) & (out > 0.0)
        with np.errstate(invalid="ignore"):
            gap = np.abs(np.where(live, z - np.max(z, axis=-1, keepdims=True), 0.0))
        relative = gap + 4.0
        if self.masked:
            relative = relative + np.abs(np.where(live, z, 0.0))
        each = np.minimum(UNIT_ROUNDOFF * relative, 700.0)
        both = np.log1p((out * np.expm1(each)).sum(axis=-1, keepdims=True))
        own = UNIT_ROUNDOFF * (sum_growth(self.n) + 3.0)
        return {"out": np.minimum(out * np.expm1(each + both + own), 1.0) + SMALLEST}
