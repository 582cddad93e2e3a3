"""Attention over whole sequences of unequal length laid end to end, with grouped queries.

In: queries [tokens, q_heads, d], keys and values [tokens, kv_heads, d], int64 offsets of the
sequences. Out: [tokens, q_heads, d]. Formula: softmax(q k^T scale) v per head (Vaswani et al.
2017); grouped queries after Ainslie et al. 2023. Never here: padding and masks; a sequence sees
itself alone, with `causal` each token only what came before it and itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import (
    Array,
    Example,
    Operator,
    Tensor,
    bytes_of,
    offsets_of,
    ragged_lengths,
    values,
)
from kernelgen.ops.softmax_rows import attend, attend_bound


@dataclass(frozen=True)
class AttentionPrefill(Operator):
    """out[t, head] = sum over what t sees of softmax(q k^T scale) v; `q_heads / kv_heads` query
    heads in a row share the keys and values of one head. `causal` is 0 or 1.
    """

    q_heads: int
    kv_heads: int
    head_size: int
    scale: float
    causal: int

    family: ClassVar[str] = "attention_prefill"

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.q_heads % self.kv_heads:
            raise ValueError(
                f"attention_prefill: q_heads {self.q_heads}, kv_heads {self.kv_heads}: wanted "
                "the first a multiple of the second"
            )

    @property
    def name(self) -> str:
        kind = "causal" if self.causal else "full"
        return f"{self.family}_{self.q_heads}q{self.kv_heads}x{self.head_size}_{kind}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        queries = ("tokens", self.q_heads, self.head_size)
        shared = ("tokens", self.kv_heads, self.head_size)
        return (
            Tensor("q", queries, "float32", "input"),
            Tensor("k", shared, "float32", "input"),
            Tensor("v", shared, "float32", "input"),
            Tensor("offsets", ("n+1",), "int64", "input"),
            Tensor("out", queries, "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"scale": self.scale}

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return self._each(attend, arrays)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return self._each(attend_bound, arrays)

    def _each(self, rows: Callable[..., Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        out = np.empty(arrays["q"].shape, np.float64)
        for begin, end in itertools.pairwise(arrays["offsets"]):
            q, k, v = (arrays[name][begin:end].transpose(1, 0, 2) for name in "qkv")
            made = rows(q, k, v, self.scale, causal=bool(self.causal))
            out[begin:end] = made.transpose(1, 0, 2)
        return {"out": out}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        lengths = ragged_lengths(rng, dims["n"], dims["tokens"], regime)
        found: dict[str, Array] = {
            name: values(rng, (dims["tokens"], heads, self.head_size), regime)
            for name, heads in zip("qkv", (self.q_heads, self.kv_heads, self.kv_heads), strict=True)
        }
        return {**found, "offsets": offsets_of(lengths)}

    def flops(self, dims: Mapping[str, int]) -> int:
        # Only the total is known from dims: equal lengths are assumed, the least work there can be.
        length = dims["tokens"] / dims["n"]
        seen = (length + 1) / 2 if self.causal else length
        return int(dims["tokens"] * seen * self.q_heads * (4 * self.head_size + 12))

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(2, 1, 32, 32**-0.5, 1), {"n": 3, "tokens": 47}),
            Example(cls(3, 3, 32, 32**-0.5, 0), {"n": 2, "tokens": 21}),
            Example(cls(2, 2, 64, 0.125, 1), {"n": 2, "tokens": 5}),
            Example(cls(2, 2, 15, 15**-0.5, 0), {"n": 2, "tokens": 23}),
        )
