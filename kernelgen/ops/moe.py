"""A sparse mixture of experts: every row goes through the two experts its gate likes best.

In: rows [m, hidden], the gate's logits [m, experts], weights of every expert. Out: [m, hidden].
Formula: sum over the two largest of softmax(logits) of gate times expert (Shazeer et al. 2017),
with `normalise` the two gates sum to one (Jiang et al. 2024). Of equal logits the lower expert
wins. An expert is w2(silu(w1 x) * w3 x) or w2 gelu(w1 x).
Never here: the product that makes the logits; choosing experts by rounded numbers would leave the
answer open wherever two of them nearly tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import erf
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Example,
    Operator,
    Tensor,
    bytes_of,
    sum_growth,
    values,
)

CHOSEN = 2
"""Experts per row."""

_ERF = np.frompyfunc(erf, 1, 1)


@dataclass(frozen=True)
class Moe(Operator):
    """`activation` is "swiglu" (w1 gates w3) or "gelu" (w1 alone); `normalise` is 0 or 1."""

    hidden: int
    middle: int
    experts: int
    activation: str
    normalise: int

    family: ClassVar[str] = "moe"

    def __post_init__(self) -> None:
        if self.activation not in ("swiglu", "gelu"):
            raise ValueError(f"moe: activation {self.activation!r}, wanted swiglu or gelu")
        if self.experts < CHOSEN:
            raise ValueError(f"moe: experts {self.experts}, wanted {CHOSEN} or more")

    @property
    def name(self) -> str:
        kind = f"{self.activation}{'' if self.normalise else '_plain'}"
        return f"{self.family}_{self.experts}x{self.hidden}x{self.middle}_{kind}"

    @property
    def gated(self) -> bool:
        return self.activation == "swiglu"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        wide = (self.experts, self.hidden, self.middle)
        return (
            Tensor("x", ("m", self.hidden), "float32", "input"),
            Tensor("logits", ("m", self.experts), "float32", "input"),
            Tensor("w1", wide, "float32", "weight"),
            *((Tensor("w3", wide, "float32", "weight"),) if self.gated else ()),
            Tensor("w2", (self.experts, self.middle, self.hidden), "float32", "weight"),
            Tensor("out", ("m", self.hidden), "float32", "output"),
        )

    def routes(self, logits: Array) -> tuple[Array, Array]:
        """Chosen experts [m, 2], best first, and their gates [m, 2] in float64."""
        logits = logits.astype(np.float64)
        order = np.argsort(-logits, axis=-1, kind="stable")[:, :CHOSEN]
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        chosen = np.take_along_axis(powers, order, axis=-1)
        total = chosen if self.normalise else powers
        return order, chosen / total.sum(axis=-1, keepdims=True)

    def _expert(self, arrays: Mapping[str, Array], expert: int, x: Array) -> tuple[Array, Array]:
        """Rows of one expert, and the error an honest float32 computation may make."""
        roof = UNIT_ROUNDOFF * sum_growth(self.hidden)
        w1, w2 = (arrays[name][expert].astype(np.float64) for name in ("w1", "w2"))
        inner, off = x @ w1, roof * (np.abs(x) @ np.abs(w1))
        if self.gated:
            w3 = arrays["w3"][expert].astype(np.float64)
            up, up_off = x @ w3, roof * (np.abs(x) @ np.abs(w3))
            with np.errstate(over="ignore"):
                silu = inner / (1.0 + np.exp(-inner))
            # The slope of silu is at most 1.1, that of gelu at most 1.13.
            made = silu * up
            off = 1.1 * off * (np.abs(up) + up_off) + np.abs(silu) * up_off
        else:
            made = inner * 0.5 * (1.0 + _ERF(inner / np.sqrt(2.0)).astype(np.float64))
            off = 1.13 * off + UNIT_ROUNDOFF * 8.0 * np.abs(inner)
        off = off + UNIT_ROUNDOFF * 8.0 * np.abs(made)
        growth = UNIT_ROUNDOFF * sum_growth(self.middle)
        return made @ w2, (off + growth * np.abs(made)) @ np.abs(w2)

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self._mixed(arrays)[0]}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self._mixed(arrays)[1]}

    def _mixed(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        x = arrays["x"].astype(np.float64)
        logits = arrays["logits"].astype(np.float64)
        chosen, gates = self.routes(arrays["logits"])
        # exp of a rounded difference, then a sum and a quotient.
        spread = np.ptp(logits, axis=-1, keepdims=True)
        off = UNIT_ROUNDOFF * (sum_growth(self.experts) + 2.0 * spread)
        out, bound = np.zeros(x.shape), np.zeros(x.shape)
        for expert in range(self.experts):
            rows, places = np.nonzero(chosen == expert)
            if not rows.size:
                continue
            made, error = self._expert(arrays, expert, x[rows])
            gate = gates[rows, places][:, None]
            out[rows] += gate * made
            bound[rows] += gate * (error + (off[rows] + 4.0 * UNIT_ROUNDOFF) * np.abs(made))
        return out, bound

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        """Logits of any size at which gates still differ; `ragged` crowds all rows onto few
        experts and leaves others without one, `structured` makes ties.
        """
        kind = regime if regime in ("structured", "integer_exact") else "nominal"
        logits = values(rng, (dims["m"], self.experts), kind)
        if regime == "ragged":
            logits += 12.0 * rng.permutation(self.experts).astype(np.float32)
        made = {
            "x": values(rng, (dims["m"], self.hidden), regime),
            "logits": logits,
            "w1": self._weight(rng, self.hidden, self.middle),
        }
        if self.gated:
            made["w3"] = self._weight(rng, self.hidden, self.middle)
        return {**made, "w2": self._weight(rng, self.middle, self.hidden)}

    def _weight(self, rng: np.random.Generator, k: int, n: int) -> Array:
        return values(rng, (self.experts, k, n), "nominal", spread=k**-0.5)

    def flops(self, dims: Mapping[str, int]) -> int:
        products = 3 if self.gated else 2
        return CHOSEN * dims["m"] * 2 * self.hidden * self.middle * products

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        """All rows may choose the same two experts: the least there can be."""
        weights = self.by_role("weight")
        around = bytes_of((*self.by_role("input"), *self.by_role("output")), dims)
        return around + bytes_of(weights, dims) * CHOSEN // self.experts

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(32, 48, 4, "swiglu", 1), {"m": 9}),
            Example(cls(20, 37, 3, "gelu", 0), {"m": 5}),
        )
