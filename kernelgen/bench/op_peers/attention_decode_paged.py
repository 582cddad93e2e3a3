"""Peers of decode attention over a paged cache.

In: `AttentionDecodePaged`. Out: `PEERS`. Never here: a cache in one piece.

The graph engines have no paged attention on the CPU: they get the pages gathered outside the clock,
which is in their favour. NumPy gathers inside it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Peers
from kernelgen.bench.op_peers.attention_decode import forms, numpy_call, torch_call
from kernelgen.ops.operator import Array


def gathered(x: Arrays) -> tuple[Array, Array]:
    """Keys and values [n, length, kv_heads, d] with the new token's at the end."""
    found = []
    for cache, new in (("key_cache", "key"), ("value_cache", "value")):
        pool = x[cache]
        # A last page that the new token opens has no number yet.
        pages = np.take(pool, np.maximum(x["table"], 0), axis=0)
        whole = pages.reshape(len(x["table"]), -1, *pool.shape[2:])
        whole[:, -1] = x[new]
        found.append(whole)
    return found[0], found[1]


def _numpy(operator: Any, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return numpy_call(gathered, operator, x, out)


def _torch(torch: Any, operator: Any, dims: Dims) -> Any:
    def history(x: Any) -> tuple[Any, Any]:
        found = []
        for cache, new in (("key_cache", "key"), ("value_cache", "value")):
            pages = x[cache][x["table"].clamp_min(0)]
            whole = pages.reshape(len(x["table"]), -1, *x[cache].shape[2:])
            whole[:, -1] = x[new]
            found.append(whole)
        return found[0], found[1]

    return torch_call(torch, operator, history)


PEERS = Peers(partial(forms, gathered), _numpy, _torch, fixed=("lengths",))
