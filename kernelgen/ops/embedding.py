"""Embedding: rows of a table picked by id.

In: int64 ids [tokens], a table [words, n]. Out: [tokens, n], bit for bit. An id outside the table
is refused with a code. Never here: positions, norms (see `kernelgen.ops.embed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import Array, Example, Operator, Tensor, values


@dataclass(frozen=True)
class Embedding(Operator):
    """out[t] = table[ids[t]]."""

    words: int
    n: int

    family: ClassVar[str] = "embedding"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.words}x{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("ids", ("tokens",), "int64", "input"),
            Tensor("table", (self.words, self.n), "float32", "weight"),
            Tensor("out", ("tokens", self.n), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["table"][arrays["ids"]].astype(np.float64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        ids = rng.integers(0, self.words, dims["tokens"])
        if regime == "structured":  # few words, often
            ids = ids % min(self.words, 3)
        elif regime == "ragged":  # both ends of the table
            ids = np.where(rng.random(ids.shape) < 0.5, 0, self.words - 1)
        return {
            "ids": ids.astype(np.int64),
            "table": values(rng, (self.words, self.n), "nominal"),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 0

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        """The rows that are looked up count, not the table."""
        return dims["tokens"] * (8 * self.n + 8)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(40, 96), {"tokens": 9}), Example(cls(5, 19), {"tokens": 4}))

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """A copy has no error."""
        return {"out": np.zeros((dims["tokens"], self.n))}
