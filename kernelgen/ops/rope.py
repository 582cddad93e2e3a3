"""Rotary position embedding: every pair of a head's elements turned by an angle of its position.

In: heads [tokens, heads, size], int64 positions [tokens], the cosines and sines of every position
[positions, size / 2] as weights. Out: as the heads. Formula: (a, b) -> (a cos - b sin, b cos + a
sin) (Su et al. 2021). Pairs are (i, i + size / 2), or neighbours (2 i, 2 i + 1) when `interleaved`.
Never here: how angles come about (bases, scalings: they are in the tables), partial heads.
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
    values,
)


@dataclass(frozen=True)
class Rope(Operator):
    """out[t, head] = x[t, head] turned by the angles of position positions[t]."""

    heads: int
    size: int
    positions: int
    interleaved: bool = False

    family: ClassVar[str] = "rope"

    def __post_init__(self) -> None:
        if self.size % 2:
            raise ValueError(f"rope: size: got {self.size}, wanted an even number")

    @property
    def name(self) -> str:
        kind = "_interleaved" if self.interleaved else ""
        return f"{self.family}{kind}_{self.heads}x{self.size}_{self.positions}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("tokens", self.heads, self.size), "float32", "input"),
            Tensor("positions", ("tokens",), "int64", "input"),
            Tensor("cosines", (self.positions, self.size // 2), "float32", "weight"),
            Tensor("sines", (self.positions, self.size // 2), "float32", "weight"),
            Tensor("out", ("tokens", self.heads, self.size), "float32", "output"),
        )

    def _turned(self, x: Array, cosine: Array, sine: Array, sign: float) -> Array:
        """Pairs (a, b) -> (a cosine + sign b sine, b cosine + a sine), in float64."""
        half = self.size // 2
        first, second = slice(0, half), slice(half, None)
        if self.interleaved:
            first, second = slice(0, None, 2), slice(1, None, 2)
        a, b = (x[..., part].astype(np.float64) for part in (first, second))
        out = np.empty(x.shape)
        out[..., first] = a * cosine + sign * b * sine
        out[..., second] = b * cosine + a * sine
        return out

    def _angles(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        at = arrays["positions"]
        cosine, sine = (arrays[name][at].astype(np.float64) for name in ("cosines", "sines"))
        return cosine[:, None, :], sine[:, None, :]

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self._turned(arrays["x"], *self._angles(arrays), -1.0)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        half, tokens = self.size // 2, dims["tokens"]
        if regime == "integer_exact":
            cosines = values(rng, (self.positions, half), regime)
            sines = values(rng, (self.positions, half), regime)
        else:
            base = 10.0 ** rng.uniform(3.0, 6.0)
            angles = np.outer(np.arange(self.positions), base ** (-np.arange(half) / half))
            cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        places = rng.integers(0, self.positions, tokens)
        if regime in ("structured", "ragged"):  # a prompt in order, its end at the table's end
            places = (np.arange(tokens) + self.positions - tokens) % self.positions
        return {
            "x": values(rng, (tokens, self.heads, self.size), regime),
            "positions": places.astype(np.int64),
            "cosines": cosines,
            "sines": sines,
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 3 * dims["tokens"] * self.heads * self.size

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        """The rows of the tables that are looked up count, not the tables."""
        return dims["tokens"] * (8 * self.heads * self.size + 4 * self.size + 8)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(3, 64, 50), {"tokens": 7}),
            Example(cls(2, 22, 9), {"tokens": 5}),
            Example(cls(3, 64, 50, True), {"tokens": 7}),
            Example(cls(2, 22, 9, True), {"tokens": 5}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """Two products and their sum: one rounding each."""
        cosine, sine = (np.abs(part) for part in self._angles(arrays))
        return {"out": 2.0 * UNIT_ROUNDOFF * self._turned(np.abs(arrays["x"]), cosine, sine, 1.0)}
