"""Matrix products as stock stacks like them: `Gemm` with its bias, or `MatMul` and what follows.

In: a copy of a graph, or arrays. Out: value names, or calls. Used by the files of the families.
Never here: a family's own epilogue.
"""

from __future__ import annotations

import numpy as np

from kernelgen.bench.net import Copy
from kernelgen.ops.operator import Array


def gemm(copy: Copy) -> str:
    """a w + bias as one node; its weight is packed when the session is made."""
    return copy.node("Gemm", copy.input("a"), copy.weight("w"), copy.weight("bias"))


def matmul(copy: Copy) -> str:
    """a w, the bias left to a fused node."""
    return copy.node("MatMul", copy.input("a"), copy.weight("w"))


def linear(a: Array, w: Array, bias: Array, out: Array) -> None:
    """a w + bias into `out`."""
    np.matmul(a, w, out=out)
    np.add(out, bias, out=out)
