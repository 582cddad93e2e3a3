"""Multi-head self-attention over sequences of unequal length laid end to end.

In: one fused row [q | k | v] per token, int64 offsets of the sequences. Out: one row per token.
Formula: softmax(q k^T * scale) v per head (Vaswani et al. 2017). Never here: padding and masks; a
sequence sees itself alone.
"""

from __future__ import annotations

import itertools
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
class Attention(Operator):
    """out[t, head] = sum over the sequence of softmax(q k^T * scale) v."""

    heads: int
    head_size: int
    scale: float

    family: ClassVar[str] = "attention"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.heads}x{self.head_size}"

    @property
    def hidden(self) -> int:
        return self.heads * self.head_size

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("qkv", ("tokens", 3 * self.hidden), "float32", "input"),
            Tensor("offsets", ("n+1",), "int64", "input"),
            Tensor("out", ("tokens", self.hidden), "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"scale": self.scale}

    def _heads(self, rows: Array) -> tuple[Array, Array, Array]:
        split = rows.astype(np.float64).reshape(len(rows), 3, self.heads, self.head_size)
        q, k, v = (split[:, part].transpose(1, 0, 2) for part in range(3))
        return q, k, v

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        qkv, offsets = arrays["qkv"], arrays["offsets"]
        out = np.empty((dims["tokens"], self.hidden), np.float64)
        for begin, end in itertools.pairwise(offsets):
            q, k, v = self._heads(qkv[begin:end])
            weights = _softmax(q @ k.transpose(0, 2, 1) * self.scale)
            out[begin:end] = (weights @ v).transpose(1, 0, 2).reshape(end - begin, self.hidden)
        return {"out": out}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        lengths = ragged_lengths(rng, dims["n"], dims["tokens"], regime)
        qkv = values(rng, (dims["tokens"], 3 * self.hidden), regime)
        return {"qkv": qkv, "offsets": offsets_of(lengths)}

    def flops(self, dims: Mapping[str, int]) -> int:
        # Only the total is known from dims: equal lengths are assumed, the least work there can be.
        length = dims["tokens"] / dims["n"]
        return int(dims["tokens"] * length * (4 * self.hidden + 12 * self.heads))

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(3, 32, 32**-0.5), {"n": 3, "tokens": 29}),)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        qkv, offsets = arrays["qkv"], arrays["offsets"]
        out = np.empty((dims["tokens"], self.hidden), np.float64)
        for begin, end in itertools.pairwise(offsets):
            q, k, v = self._heads(qkv[begin:end])
            scores = q @ k.transpose(0, 2, 1) * self.scale
            size = np.abs(q) @ np.abs(k).transpose(0, 2, 1) * self.scale
            weights = _softmax(scores)
            below = scores.max(axis=-1, keepdims=True) - scores
            # A score off by e changes its weight by the factor exp(e) - 1; so does rounding the
            # argument of exp.
            off = UNIT_ROUNDOFF * (sum_growth(self.head_size) * size + 2.0 * below + 8.0)
            factor = np.expm1(np.minimum(off + (weights * off).sum(axis=-1, keepdims=True), 40.0))
            factor = factor + UNIT_ROUNDOFF * sum_growth(int(end - begin))
            # Two weights may trade places at most fully.
            bound = np.minimum(
                (weights * factor) @ np.abs(v), 2.0 * np.abs(v).max(axis=1, keepdims=True)
            )
            out[begin:end] = bound.transpose(1, 0, 2).reshape(end - begin, self.hidden)
        return {"out": out}


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = powers / powers.sum(axis=-1, keepdims=True)
    return result
