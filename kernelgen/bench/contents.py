"""The buffers that every side of one comparison works on.

In: an operator, its sizes, how many copies. Out: inputs and weights at fixed addresses, one set per
copy; `refresh` gives every address new contents.
Never here: outputs (each side has its own), clocks.

A copy stands for one layer of a model: it has its own inputs and, unless `shared_weights`, its own
weights. A graph engine packs the weights of every node apart; with one common set only our side
would find them in its nearest cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelgen.ops.operator import Array, Operator

ALIGNMENT = 64


def aligned(shape: tuple[int, ...], dtype: str | np.dtype[np.generic]) -> Array:
    """An uninitialised array that begins on a cache line."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + size].view(kind).reshape(shape)


def placed(array: Array) -> Array:
    """A copy of `array` that begins on a cache line."""
    out = aligned(array.shape, array.dtype)
    np.copyto(out, array)
    return out


@dataclass(frozen=True, eq=False)
class Stack:
    """The same arrays of every copy end to end along their first axis: `whole`, and a view each.

    A graph engine that pays for every bound input can take `whole` and split it for nothing.
    """

    whole: Array
    parts: tuple[Array, ...]

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Stack:
        """Copies of `arrays`, which have one shape of at least one dimension."""
        first = arrays[0]
        length = first.shape[0]
        whole = aligned((length * len(arrays), *first.shape[1:]), first.dtype)
        parts = tuple(whole[i * length : (i + 1) * length] for i in range(len(arrays)))
        for part, array in zip(parts, arrays, strict=True):
            np.copyto(part, array)
        return cls(whole, parts)


class Contents:
    """`inputs[i]` and `weights_of(i)` hold the arrays of copy i by tensor name.

    `fixed` names inputs that carry structure (offsets of sequences): all copies share their values,
    so that a graph engine may bake them in.
    """

    def __init__(
        self,
        operator: Operator,
        dims: Mapping[str, int],
        copies: int,
        rng: np.random.Generator,
        *,
        shared_weights: bool = False,
        fixed: Sequence[str] = (),
    ) -> None:
        self.operator = operator
        self.dims = dict(dims)
        self.copies = copies
        inputs = [tensor.name for tensor in operator.by_role("input")]
        weights = [tensor.name for tensor in operator.by_role("weight")]
        # Even one copy must see other contents in every round.
        draws = [operator.sample(rng, dims, "nominal") for _ in range(max(copies, 2))]
        for draw in draws[1:]:
            draw.update({name: draws[0][name] for name in fixed})
        self._pool = [{name: draw[name] for name in inputs} for draw in draws]
        self.stacks = {
            name: Stack.of([one[name] for one in self._pool[:copies]]) for name in inputs
        }
        self.inputs = [
            {name: stack.parts[copy] for name, stack in self.stacks.items()}
            for copy in range(copies)
        ]
        sets = 1 if shared_weights or not weights else copies
        self.weights = [{name: placed(draw[name]) for name in weights} for draw in draws[:sets]]
        self._turn = 0

    def weights_of(self, copy: int) -> dict[str, Array]:
        return self.weights[copy % len(self.weights)]

    def arrays(self, copy: int) -> dict[str, Array]:
        """Everything the oracle needs to know of one copy."""
        return {**self.inputs[copy], **self.weights_of(copy)}

    def refresh(self) -> None:
        """Move the contents on by one copy: no address keeps what it held."""
        self._turn += 1
        for place, buffers in enumerate(self.inputs):
            fresh = self._pool[(place + self._turn) % len(self._pool)]
            for name, array in buffers.items():
                np.copyto(array, fresh[name])

    def outputs(self) -> list[dict[str, Array]]:
        """A fresh set of output buffers, filled with a value that no operator returns by chance."""
        made = []
        for _ in range(self.copies):
            one = {}
            for tensor in self.operator.by_role("output"):
                one[tensor.name] = aligned(tensor.sizes(self.dims), tensor.dtype)
                one[tensor.name].view(np.uint8)[...] = 0xA5
            made.append(one)
        return made
