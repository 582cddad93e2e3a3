"""The smallest operator worth cheating at: y = 1.5 x + 0.25, element by element.

In: one vector. Out: another. It serves the attack fixtures that need no weights.
Never here: anything a model uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Operator,
    Tensor,
    bytes_of,
    values,
)

FACTOR = 1.5
SHIFT = 0.25


@dataclass(frozen=True)
class Scale(Operator):
    """y[n] = 1.5 x[n] + 0.25."""

    family: ClassVar[str] = "scale"

    @property
    def name(self) -> str:
        return self.family

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (Tensor("x", ("n",), "float32", "input"), Tensor("y", ("n",), "float32", "output"))

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": FACTOR * arrays["x"].astype(np.float64) + SHIFT}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"x": values(rng, (dims["n"],), regime)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return 2 * dims["n"]

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        size = np.abs(FACTOR * arrays["x"].astype(np.float64)) + SHIFT
        return {"y": 2.0 * UNIT_ROUNDOFF * size}
