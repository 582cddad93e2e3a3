"""Token, position and type embeddings added up and normalised: the way into a text encoder.

In: int64 token ids of several sequences laid end to end, their offsets. Out: one row per token.
Never here: padding; a position counts from the start of its own sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.norm import layernorm, layernorm_bound
from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Example,
    Operator,
    Tensor,
    check_regime,
    offsets_of,
    ragged_lengths,
    values,
)
from kernelgen.ops.rows import far_rows


@dataclass(frozen=True)
class EmbedLayernorm(Operator):
    """out[t] = LayerNorm(word[ids[t]] + position[t - start of its sequence] + token_type)."""

    vocabulary: int
    positions: int
    hidden: int
    epsilon: float

    family: ClassVar[str] = "embed_layernorm"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.hidden}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("ids", ("tokens",), "int64", "input"),
            Tensor("offsets", ("n+1",), "int64", "input"),
            Tensor("word", (self.vocabulary, self.hidden), "float32", "weight"),
            Tensor("position", (self.positions, self.hidden), "float32", "weight"),
            Tensor("token_type", (self.hidden,), "float32", "weight"),
            Tensor("gamma", (self.hidden,), "float32", "weight"),
            Tensor("beta", (self.hidden,), "float32", "weight"),
            Tensor("out", ("tokens", self.hidden), "float32", "output"),
        )

    @property
    def constants(self) -> Mapping[str, float]:
        return {"epsilon": self.epsilon}

    def _parts(self, arrays: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        offsets, ids = arrays["offsets"], arrays["ids"]
        place = np.concatenate([np.arange(n) for n in np.diff(offsets)])
        return (
            arrays["word"][ids].astype(np.float64),
            arrays["position"][place].astype(np.float64),
            arrays["token_type"].astype(np.float64),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        word, position, kind = self._parts(arrays)
        rows = word + position + kind
        return {"out": layernorm(rows, arrays["gamma"], arrays["beta"], self.epsilon)}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        check_regime(regime)
        shape = (self.vocabulary, self.hidden)
        lengths = ragged_lengths(rng, dims["n"], dims["tokens"], regime, self.positions)
        return {
            "ids": rng.integers(0, self.vocabulary, size=dims["tokens"], dtype=np.int64),
            "offsets": offsets_of(lengths),
            "word": far_rows(rng, shape, regime),
            "position": values(rng, (self.positions, self.hidden), regime, spread=0.5),
            "token_type": values(rng, (self.hidden,), regime, spread=0.5),
            "gamma": 1.0 + values(rng, (self.hidden,), "nominal", spread=0.2),
            "beta": values(rng, (self.hidden,), "nominal", spread=0.2),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return 10 * dims["tokens"] * self.hidden

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        # Only the rows that are looked up count, not the whole tables.
        return dims["tokens"] * (8 + 12 * self.hidden) + 8 * (dims["n"] + 1) + 12 * self.hidden

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(60, 140, 96, 1e-12), {"n": 3, "tokens": 29}),)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        word, position, kind = self._parts(arrays)
        rounding = 2.0 * UNIT_ROUNDOFF * (np.abs(word) + np.abs(position) + np.abs(kind))
        rows = word + position + kind
        return {
            "out": layernorm_bound(rows, rounding, arrays["gamma"], arrays["beta"], self.epsilon)
        }
