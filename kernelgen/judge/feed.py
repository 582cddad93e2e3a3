"""Endless new contents for timed calls, so that no answer can be kept from an earlier one.

In: an operator, its sizes, a random stream. Out: one set of inputs per call. Floating-point tensors
are random mixes of a few samples; sizes, offsets and tables stay as one sample has them, for they
only make sense together. Never here: addresses, clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernelgen.ops.operator import Array, Operator

POOL = 3


class Feed:
    """Inputs of one operator at one size; `first` is a whole sample, weights included."""

    def __init__(
        self, operator: Operator, dims: Mapping[str, int], rng: np.random.Generator
    ) -> None:
        self._rng = rng
        self._tensors = operator.by_role("input")
        self.first = operator.sample(rng, dims, "nominal")
        more = [operator.sample(rng, dims, "nominal") for _ in range(POOL - 1)]
        self._pool = [{t.name: s[t.name] for t in self._tensors} for s in (self.first, *more)]
        # The second part of every mix, moved so that no element meets its own earlier value.
        self._moved = [
            {
                t.name: np.roll(sample[t.name].reshape(-1), 7).reshape(sample[t.name].shape)
                for t in self._tensors
                if np.dtype(t.dtype).kind == "f"
            }
            for sample in self._pool
        ]
        self._partial = {
            t.name
            for t in self._tensors
            if np.dtype(t.dtype).kind == "f"
            and not all(bool(np.isfinite(sample[t.name]).all()) for sample in self._pool)
        }
        # Where nothing else can change, even indices must: any order of them is a legal input.
        self._only_indices = not any(
            np.dtype(t.dtype).kind == "f" or np.dtype(t.dtype).itemsize == 1 for t in self._tensors
        )

    def next(self) -> list[Array]:
        """One call's inputs, in the operator's order, never seen before."""
        base = self._pool[int(self._rng.integers(POOL))]
        other = self._moved[int(self._rng.integers(POOL))]
        angle = float(self._rng.uniform(0.2, 1.3))
        contents: list[Array] = []
        for tensor in self._tensors:
            data = base[tensor.name]
            if data.dtype.kind == "f":
                mixed = _mix(data, other[tensor.name], angle)
                if tensor.name in self._partial:
                    # Infinities and NaN are part of the input's structure: they stay in place.
                    mixed = np.where(np.isfinite(data) & np.isfinite(mixed), mixed, data)
                contents.append(mixed)
            elif data.dtype.itemsize == 1 or (self._only_indices and free_order(data)):
                contents.append(self._rng.permutation(data.reshape(-1)).reshape(data.shape))
            else:
                contents.append(data)
        return contents


def _mix(data: Array, other: Array, angle: float) -> Array:
    """Both factors are positive, so what is never negative stays so."""
    mixed: Array = data * data.dtype.type(np.cos(angle))
    mixed += other * data.dtype.type(np.sin(angle))
    return mixed


def free_order(data: Array) -> bool:
    """Rising integers are offsets and carry structure; others are ids."""
    return data.size > 2 and bool(np.any(np.diff(data.reshape(-1)) < 0))
