"""Small operators with unusual arguments, so that the judge is tried on every kind there is:
integer inputs and outputs, several outputs, infinities, NaN in padding, sizes that may be 0.

In: sizes. Out: `Operator` records. They serve fixtures and tests of the judge.
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
    check_regime,
    sum_growth,
    values,
)


class _Small(Operator):
    """What all of these have in common."""

    @property
    def name(self) -> str:
        return self.family

    def flops(self, dims: Mapping[str, int]) -> int:
        return max(1, bytes_of(self.tensors, dims) // 4)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)


@dataclass(frozen=True)
class CodeProduct(_Small):
    """out[m, n] = sum over k of a[m, k] w[k, n], 8-bit in and 32-bit out, exactly."""

    k: int
    n: int

    family: ClassVar[str] = "code_product"
    empty_dims: ClassVar[tuple[str, ...]] = ("m",)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("a", ("m", self.k), "uint8", "input"),
            Tensor("w", (self.k, self.n), "int8", "weight"),
            Tensor("out", ("m", self.n), "int32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["a"].astype(np.int64) @ arrays["w"].astype(np.int64)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        check_regime(regime)
        # Scaled up means at the ends of the range, where 16-bit sums of pairs overflow.
        low, high = (192, 256) if regime == "scaled_up" else (0, 256)
        a = rng.integers(low, high, size=(dims["m"], self.k)).astype(np.uint8)
        w = rng.integers(64 if regime == "scaled_up" else -128, 128, size=(self.k, self.n))
        return {"a": a, "w": w.astype(np.int8)}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": np.zeros((dims["m"], self.n))}


@dataclass(frozen=True)
class Largest(_Small):
    """The largest value of every row and where it stands; of equal ones the first."""

    width: int

    family: ClassVar[str] = "largest"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.width), "float32", "input"),
            Tensor("value", ("m",), "float32", "output"),
            Tensor("place", ("m",), "int64", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = arrays["x"].astype(np.float64)
        return {"value": x.max(axis=1), "place": x.argmax(axis=1)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"x": values(rng, (dims["m"], self.width), regime)}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"value": np.zeros(dims["m"]), "place": np.zeros(dims["m"])}


@dataclass(frozen=True)
class Masked(_Small):
    """y[n] = 2 x[n] where x[n] is not negative, else minus infinity, as an attention mask does."""

    family: ClassVar[str] = "masked"
    empty_dims: ClassVar[tuple[str, ...]] = ("n",)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (Tensor("x", ("n",), "float32", "input"), Tensor("y", ("n",), "float32", "output"))

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        x = arrays["x"].astype(np.float64)
        return {"y": np.where(x >= 0, 2.0 * x, -np.inf)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"x": values(rng, (dims["n"],), regime)}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": UNIT_ROUNDOFF * np.abs(arrays["x"].astype(np.float64))}


@dataclass(frozen=True)
class PaddedSum(_Small):
    """out[m] = sum of the first `used` of `width` numbers; the rest of every row is NaN."""

    width: int
    used: int

    family: ClassVar[str] = "padded_sum"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("m", self.width), "float32", "input"),
            Tensor("out", ("m",), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["x"][:, : self.used].astype(np.float64).sum(axis=1)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        x = values(rng, (dims["m"], self.width), regime)
        x[:, self.used :] = np.nan
        return {"x": x}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        size = np.abs(arrays["x"][:, : self.used].astype(np.float64)).sum(axis=1)
        return {"out": UNIT_ROUNDOFF * sum_growth(self.used) * size}


@dataclass(frozen=True)
class Lookup(_Small):
    """y[n] = table[codes[n]]: bytes in, bytes out."""

    family: ClassVar[str] = "lookup"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("codes", ("n",), "uint8", "input"),
            Tensor("table", (256,), "uint8", "weight"),
            Tensor("y", ("n",), "uint8", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": arrays["table"][arrays["codes"]]}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        check_regime(regime)
        return {
            "codes": rng.integers(0, 256, size=dims["n"]).astype(np.uint8),
            "table": rng.integers(1, 256, size=256).astype(np.uint8),
        }

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": np.zeros(dims["n"])}


@dataclass(frozen=True)
class RowsOf(_Small):
    """out[m] = table[rows[m]]: 32-bit indices in, float64 out."""

    count: int
    width: int

    family: ClassVar[str] = "rows_of"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("rows", ("m",), "int32", "input"),
            Tensor("table", (self.count, self.width), "float64", "weight"),
            Tensor("out", ("m", self.width), "float64", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["table"][arrays["rows"]]}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {
            "rows": rng.integers(0, self.count, size=dims["m"]).astype(np.int32),
            "table": values(rng, (self.count, self.width), regime).astype(np.float64),
        }

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": np.zeros((dims["m"], self.width))}


SMALL: Mapping[str, type[Operator]] = {
    kind.family: kind for kind in (CodeProduct, Largest, Masked, PaddedSum, Lookup, RowsOf)
}
