"""What all normalisations of rows share: arguments, samples, work, the residual sum before them.

In: a subclass that says what normalising is and what it may lose. Out: the rest of an `Operator`.
Never here: a formula; operators that do more than rows (a product, a lookup).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import UNIT_ROUNDOFF, Array, Operator, Tensor, bytes_of, values

NEAREST_FAR, FARTHEST = 2e3, 8e3
"""Means, in units of the spread. There float32 still holds the rows to a thousandth of their spread
and two passes stay far inside the bound, which grows with the mean; the difference of mean square
and squared mean, whose error grows with the mean's square, has lost every digit."""

NEAR_SHARE = 0.25
"""Of the rows but the first; a kernel must be right on both in one call."""


def far_rows(
    rng: np.random.Generator, shape: tuple[int, ...], regime: str, *, spread: float = 1.0
) -> Array:
    """As `values`; where those are shifted, most rows, always the first, lie far from zero."""
    data = values(rng, shape, regime, spread=spread)
    if regime == "shifted" and data.size:
        each = (shape[0],) + (1,) * (len(shape) - 1)
        away = rng.uniform(NEAREST_FAR, FARTHEST, each) * rng.choice([-1.0, 1.0], each)
        near = rng.random(each) < NEAR_SHARE
        near[0] = False
        data += np.where(near, 0.0, spread * away).astype(np.float32)
    return data


@dataclass(frozen=True)
class RowNorm(Operator):
    """Rows of x, with `residual` of x + residual, normalised; then also their sum is an output."""

    n: int
    epsilon: float

    weights: ClassVar[tuple[str, ...]]
    residual: ClassVar[bool] = False
    each_flops: ClassVar[int]

    @abstractmethod
    def normalised(self, rows: Array, arrays: Mapping[str, Array]) -> Array:
        """`rows` in float64, normalised, with the weights in `arrays` applied."""

    @abstractmethod
    def bound(self, rows: Array, rounding: Array, arrays: Mapping[str, Array]) -> Array:
        """Largest error of an honest `normalised` whose rows are off by at most `rounding`."""

    @property
    def name(self) -> str:
        return f"{self.family}_{self.n}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        shape = ("m", self.n)
        return (
            Tensor("x", shape, "float32", "input"),
            *((Tensor("residual", shape, "float32", "input"),) if self.residual else ()),
            *(Tensor(name, (self.n,), "float32", "weight") for name in self.weights),
            *((Tensor("total", shape, "float32", "output"),) if self.residual else ()),
            Tensor("out", shape, "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"epsilon": self.epsilon}

    def _rows(self, arrays: Mapping[str, Array]) -> Array:
        rows = arrays["x"].astype(np.float64)
        return rows + arrays["residual"].astype(np.float64) if self.residual else rows

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        rows = self._rows(arrays)
        out = self.normalised(rows, arrays)
        return {"total": rows, "out": out} if self.residual else {"out": out}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        drawn: dict[str, Array] = {"x": far_rows(rng, (dims["m"], self.n), regime)}
        for name in self.weights:
            around = 1.0 if name == "gamma" else 0.0
            drawn[name] = around + values(rng, (self.n,), "nominal", spread=0.2)
        if self.residual:
            drawn["residual"] = values(rng, (dims["m"], self.n), regime)
        return drawn

    def flops(self, dims: Mapping[str, int]) -> int:
        return (self.each_flops + self.residual) * dims["m"] * self.n

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        rows = self._rows(arrays)
        rounding = UNIT_ROUNDOFF * np.abs(rows) if self.residual else np.zeros(rows.shape)
        out = self.bound(rows, rounding, arrays)
        return {"total": rounding, "out": out} if self.residual else {"out": out}
