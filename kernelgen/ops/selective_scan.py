"""The selective scan of a state-space block: a small state per channel, carried along a sequence.

In: x and delta [length, channels], b and c [length, states], the state to begin with [channels,
states]; weights a [channels, states] (at most 0), d and bias [channels]. Out: y [length, channels]
and the state after the last step. Formula (Gu and Dao 2023), with s = softplus(delta + bias):
state = exp(s a) state + s x b, y = sum over states of state c, plus d x.
Never here: the convolution and the gate around it.
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
    sum_growth,
    values,
)


@dataclass(frozen=True)
class SelectiveScan(Operator):
    """One sequence; a batch is several calls. A sequence cut in two gives the same when the second
    part begins with the state the first one ended with.
    """

    channels: int
    states: int

    family: ClassVar[str] = "selective_scan"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.channels}x{self.states}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        row, mix = ("length", self.channels), ("length", self.states)
        state = (self.channels, self.states)
        return (
            Tensor("x", row, "float32", "input"),
            Tensor("delta", row, "float32", "input"),
            Tensor("b", mix, "float32", "input"),
            Tensor("c", mix, "float32", "input"),
            Tensor("before", state, "float32", "input"),
            Tensor("a", state, "float32", "weight"),
            Tensor("d", (self.channels,), "float32", "weight"),
            Tensor("bias", (self.channels,), "float32", "weight"),
            Tensor("y", row, "float32", "output"),
            Tensor("after", state, "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        y, state, _, _ = self._walk(arrays)
        return {"y": y, "after": state}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        _, _, y, state = self._walk(arrays)
        return {"y": y, "after": state}

    def _walk(self, arrays: Mapping[str, Array]) -> tuple[Array, Array, Array, Array]:
        """y, the last state, and how far an honest float32 walk may be from both.

        A step's error is what the decay leaves of the last one's, plus that of the decay itself
        (of its argument, mostly) on the state, plus that of the input.
        """
        u = UNIT_ROUNDOFF
        x, a = arrays["x"].astype(np.float64), arrays["a"].astype(np.float64)
        b, c = arrays["b"].astype(np.float64), arrays["c"].astype(np.float64)
        z = arrays["delta"].astype(np.float64) + arrays["bias"].astype(np.float64)
        step = np.logaddexp(0.0, z)
        # The 1: log(1 + exp(z)) of a z far below zero, where 1 + exp(z) is rounded.
        step_off = u * (8.0 * step + 2.0 * np.abs(z) * np.exp(z - step) + 1.0)
        skip = arrays["d"].astype(np.float64) * x
        state = arrays["before"].astype(np.float64)
        off = np.zeros_like(state)
        y, y_off = np.empty_like(x), np.empty_like(x)
        growth = u * sum_growth(self.states)
        for t in range(len(x)):
            size, size_off = step[t][:, None], step_off[t][:, None]
            decay = np.exp(size * a)
            decay_off = decay * (u * (4.0 * np.abs(size * a) + 8.0) + np.abs(a) * size_off)
            fed = np.abs(x[t][:, None] * b[t])
            off = decay * off + decay_off * (np.abs(state) + off)
            off = off + fed * (size_off + 3.0 * u * size)
            state = decay * state + size * x[t][:, None] * b[t]
            off = off + 2.0 * u * np.abs(state)
            y[t] = state @ c[t] + skip[t]
            added = np.abs(state) @ np.abs(c[t]) + np.abs(skip[t])
            y_off[t] = off @ np.abs(c[t]) + growth * added
        return y, state, y_off + 1e-37, off + 1e-37

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        """Steps from short to long; under `ragged` so small that the first input is still there at
        the end of any sequence.
        """
        row, mix = (dims["length"], self.channels), (dims["length"], self.states)
        state = (self.channels, self.states)
        rates = -np.arange(1, self.states + 1, dtype=np.float32)
        centre = np.float32(-9.0 if regime == "ragged" else -2.0)
        return {
            "x": values(rng, row, regime),
            "delta": values(rng, row, regime),
            "b": values(rng, mix, regime),
            "c": values(rng, mix, regime),
            "before": values(rng, state, regime),
            "a": rates * np.exp(values(rng, state, "nominal", spread=0.2)),
            "d": 1.0 + values(rng, (self.channels,), "nominal", spread=0.2),
            "bias": centre + values(rng, (self.channels,), "nominal", spread=0.5),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        # An exponential counts as ten: range reduction, a polynomial of degree five, scaling.
        return dims["length"] * self.channels * (self.states * 16 + 20)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example(cls(32, 16), {"length": 11}), Example(cls(21, 5), {"length": 6}))
