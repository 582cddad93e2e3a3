"""Top-k: the k largest of every row with their places, largest first.

In: rows [m, n]. Out: values [m, k], int64 indices [m, k]. Equal values (0 and -0 are equal) come in
the order of their places. NaN ranks above every number, as NumPy and PyTorch sort: a row that went
wrong is seen, not hidden. Never here: sampling, sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import Array, Example, Operator, Tensor, bytes_of, values

MOST = 64


@dataclass(frozen=True)
class TopK(Operator):
    """values[i], indices[i] = the k largest of x[i], ties to the lowest index."""

    n: int
    k: int

    family: ClassVar[str] = "top_k"

    def __post_init__(self) -> None:
        if not 1 <= self.k <= min(MOST, self.n):
            raise ValueError(f"top_k: k: got {self.k}, wanted 1 to {min(MOST, self.n)}")

    @property
    def name(self) -> str:
        return f"{self.family}_{self.k}_of_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.n), "float32", "input"),
            Tensor("values", ("m", self.k), "float32", "output"),
            Tensor("indices", ("m", self.k), "int64", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = arrays["x"].astype(np.float64)
        number = ~np.isnan(x)
        order = np.lexsort((np.where(number, -x, 0.0), number), axis=-1)[:, : self.k]
        return {"values": np.take_along_axis(x, order, -1), "indices": order.astype(np.int64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        x = values(rng, (dims["m"], self.n), regime)
        if regime == "ragged":  # the largest side by side, at the end, rising
            x[:, self.n - self.k :] = np.sort(x[:, self.n - self.k :], axis=-1) + np.float32(8.0)
        return {"x": x}

    def flops(self, dims: Mapping[str, int]) -> int:
        return dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(64, 8), {"m": 4}),
            Example(cls(333, 5), {"m": 2}),
            Example(cls(1100, 13), {"m": 2}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """Values are copied and places are what they are."""
        shape = (dims["m"], self.k)
        return {"values": np.zeros(shape), "indices": np.zeros(shape)}
