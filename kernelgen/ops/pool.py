"""Mean pooling: the average of the token rows of every sequence.

In: token rows and the int64 offsets of the sequences. Out: one row per sequence. Never here:
padding, masks.
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
    offsets_of,
    ragged_lengths,
    sum_growth,
    values,
)


@dataclass(frozen=True)
class MeanPool(Operator):
    """out[i] = mean of states over sequence i."""

    hidden: int

    family: ClassVar[str] = "mean_pool"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.hidden}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("states", ("tokens", self.hidden), "float32", "input"),
            Tensor("offsets", ("n+1",), "int64", "input"),
            Tensor("out", ("n", self.hidden), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        offsets = arrays["offsets"]
        total = np.add.reduceat(arrays["states"].astype(np.float64), offsets[:-1], axis=0)
        return {"out": total / np.diff(offsets)[:, None]}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        lengths = ragged_lengths(rng, dims["n"], dims["tokens"], regime)
        states = values(rng, (dims["tokens"], self.hidden), regime)
        return {"states": states, "offsets": offsets_of(lengths)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return (dims["tokens"] + dims["n"]) * self.hidden

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(96), {"n": 3, "tokens": 29}),)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        offsets = arrays["offsets"]
        size = np.add.reduceat(np.abs(arrays["states"].astype(np.float64)), offsets[:-1], axis=0)
        lengths = np.diff(offsets)
        growth = np.array([sum_growth(int(length)) for length in lengths])
        return {"out": UNIT_ROUNDOFF * growth[:, None] * size / lengths[:, None]}
