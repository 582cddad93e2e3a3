"""What an operator means, written down once, before any kernel exists.

In: nothing but shapes and constants. Out: `Operator` records that say, for one operator, which
tensors go in and out, what they mean in float64 (`oracle`), on which inputs a kernel must prove
itself (`sample`), how large an error honest float32 arithmetic may make (`error_bound`) and how
much work one call is (`flops`, `bytes_moved`).
Never here: C code, schedules, clocks, files.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Role = Literal["input", "weight", "output"]

UNIT_ROUNDOFF = 2.0**-24
"""Half a unit in the last place of float32, the error of one rounding to nearest."""

REGIMES = (
    "nominal",
    "scaled_down",
    "scaled_up",
    "shifted",
    "structured",
    "integer_exact",
    "ragged",
)

_SIZE = re.compile(r"^(?:(\d+)\*)?([a-z_]+)(?:\+(\d+))?$")


@dataclass(frozen=True)
class Tensor:
    """One argument of a kernel. `shape` mixes fixed sizes with symbols: "m", "n+1", "2*h+4"."""

    name: str
    shape: tuple[str | int, ...]
    dtype: str
    role: Role

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with every symbol replaced by its value in `dims`."""
        return tuple(size if isinstance(size, int) else _value(size, dims) for size in self.shape)


def symbol(size: str) -> tuple[int, str, int]:
    """Factor, name and addend of a size such as "2*h+4". Raises `ValueError`."""
    match = _SIZE.match(size)
    if match is None:
        raise ValueError(f"shape symbol {size!r}: wanted a name, such as m, n+1 or 2*h+4")
    factor, name, extra = match.groups()
    return int(factor or 1), name, int(extra or 0)


def _value(size: str, dims: Mapping[str, int]) -> int:
    factor, name, extra = symbol(size)
    if name not in dims:
        raise ValueError(f"dims: {name!r} is missing, got {sorted(dims)}")
    return factor * dims[name] + extra


@dataclass(frozen=True)
class Example:
    """An operator and the sizes of one call of it."""

    operator: Operator
    dims: Mapping[str, int]


@dataclass(frozen=True)
class Operator(ABC):
    """One operator at fixed inner sizes; only the sizes named in `dims` change between calls.

    Subclasses are frozen dataclasses whose fields are the fixed sizes, so two operators are equal
    exactly when they mean the same, and `spec()` rebuilds one in another process through
    `kernelgen.ops.from_spec`.
    """

    family: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique within a model, fit for a file name, for example `gemm_bias_384x1152`."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Every argument; the C interface takes each role in this order."""

    @property
    def constants(self) -> Mapping[str, float]:
        """Numbers that are part of the meaning (an epsilon, a scale)."""
        return {}

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the sizes that vary, sorted; the C interface takes `dim` in this order."""
        sizes = (size for tensor in self.tensors for size in tensor.shape)
        names = {symbol(size)[1] for size in sizes if isinstance(size, str)}
        return tuple(sorted(names))

    def by_role(self, role: Role) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.role == role)

    def spec(self) -> dict[str, object]:
        """JSON-able description that `kernelgen.ops.from_spec` turns back into an equal
        operator.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"family": self.family, **values}

    @abstractmethod
    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """The outputs in float64, computed from the float32 or int64 values in `arrays`."""

    @abstractmethod
    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        """Inputs and weights for one test round; `regime` is one of `REGIMES`."""

    @abstractmethod
    def flops(self, dims: Mapping[str, int]) -> int:
        """Floating-point operations of one call, a fused multiply-add counted as two."""

    @abstractmethod
    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        """Bytes that any implementation must move once: inputs, weights and outputs."""

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Small instances with sizes: what proofs and tests go over for every family listed in
        `kernelgen.ops.FAMILIES`.
        """
        return ()

    @abstractmethod
    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """Largest absolute error an honest float32 kernel may show, element by element."""


def check_regime(regime: str) -> None:
    if regime not in REGIMES:
        raise ValueError(f"regime: got {regime!r}, wanted one of {', '.join(REGIMES)}")


def values(
    rng: np.random.Generator, shape: tuple[int, ...], regime: str, *, spread: float = 1.0
) -> npt.NDArray[np.float32]:
    """Random float32 contents of a regime; `spread` is the standard deviation of the nominal
    one.
    """
    check_regime(regime)
    if regime == "integer_exact":
        return rng.integers(-4, 5, size=shape).astype(np.float32)
    data = rng.standard_normal(shape, dtype=np.float32) * np.float32(spread)
    if regime == "scaled_down":
        data *= np.float32(1e-3)
    elif regime == "scaled_up":
        data *= np.float32(1e3)
    elif regime == "shifted":
        data += np.float32(3.0 * spread)
    elif regime == "structured":
        data[rng.random(shape) < 0.7] = 0.0
        if shape and shape[0] > 1:
            half = shape[0] // 2
            data[half : 2 * half] = data[:half]  # repeated rows expose a kernel that mixes rows up
    return data


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Start of every sequence plus the total, as the ragged kernels take it: int64, n + 1."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def ragged_lengths(
    rng: np.random.Generator, count: int, total: int, regime: str, most: int | None = None
) -> npt.NDArray[np.int64]:
    """`count` lengths of at least one, none above `most`, that sum to `total`; equal for
    structured, very uneven for ragged. Raises `ValueError` when there are no such lengths: it
    depends on the sizes alone, never on what was drawn.
    """
    if count < 1 or total < count:
        raise ValueError(f"dims: got n={count}, tokens={total}, wanted tokens >= n >= 1")
    if most is not None and total > count * most:
        raise ValueError(f"dims: got n={count}, tokens={total}, wanted at most {most} a sequence")
    if regime == "structured":
        base: npt.NDArray[np.int64] = np.full(count, total // count, np.int64)
        base[: total % count] += 1
        return base
    weight = rng.random(count) ** (6.0 if regime == "ragged" else 1.0) + 1e-3
    lengths: npt.NDArray[np.int64] = 1 + np.floor(weight / weight.sum() * (total - count)).astype(
        np.int64
    )
    for _ in range(int(total - lengths.sum())):
        lengths[int(rng.integers(count))] += 1
    return lengths if most is None else _levelled(lengths, most)


def _levelled(lengths: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """The same total with what exceeds `most` moved to the first sequences that have room."""
    level = np.minimum(lengths, most)
    left = int(lengths.sum() - level.sum())
    for place in range(level.size):
        room = min(left, most - int(level[place]))
        level[place] += room
        left -= room
    return level


def bytes_of(tensors: tuple[Tensor, ...], dims: Mapping[str, int]) -> int:
    """Bytes of the given tensors, each touched once."""
    total = 0
    for tensor in tensors:
        count = 1
        for size in tensor.sizes(dims):
            count *= size
        total += count * np.dtype(tensor.dtype).itemsize
    return total


def sum_growth(length: int) -> float:
    """Units of roundoff a float32 sum of `length` terms may lose against the sum of magnitudes.

    Rounding errors of an honest sum behave like a random walk, so the allowance grows with the
    square root; four times the walk keeps every summation order legal and still refuses 8- and
    11-bit significands.
    """
    return 4.0 * float(np.sqrt(length)) + 16.0
