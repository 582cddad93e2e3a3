"""Peers of products with weights of four bits.

In: `GemvInt4`. Out: `PEERS`. Never here: other widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from kernelgen.bench.family import Arrays, Dims, Form, Peers
from kernelgen.bench.op_peers import quantised
from kernelgen.ops.gemv_int4 import GemvInt4
from kernelgen.ops.operator import Array


def packed(operator: GemvInt4, weights: Arrays) -> dict[str, Array]:
    """Halves of bytes in blocks, zero points two to a byte, as `MatMulNBits` wants them."""
    block = quantised.block_of(operator.k, operator.group)
    blocks = -(-operator.k // block)
    wide = np.zeros((operator.n, blocks * block // 2), np.uint8)
    wide[:, : weights["w"].shape[1]] = weights["w"]
    each = {
        name: np.repeat(weights[name], operator.group // block, axis=1)[:, :blocks]
        for name in ("scale", "zero")
    }
    zeros = np.zeros((operator.n, 2 * (-(-blocks // 2))), np.uint8)
    zeros[:, :blocks] = each["zero"]
    return {
        "weights": wide.reshape(operator.n, blocks, block // 2),
        "scales": np.ascontiguousarray(each["scale"]).reshape(-1),
        "zeros": (zeros[:, ::2] | (zeros[:, 1::2] << 4)).reshape(-1),
    }


def _forms(operator: GemvInt4, dims: Dims) -> Mapping[str, Form]:
    return quantised.forms(operator, 4, partial(packed, operator))


PEERS = Peers(_forms, quantised.numpy_call, quantised.torch_call)
