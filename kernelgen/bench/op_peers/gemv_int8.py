"""Peers of products with weights kept as signed bytes.

In: `GemvInt8`. Out: `PEERS`. Never here: activations in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from kernelgen.bench.family import Arrays, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers import quantised
from kernelgen.ops.gemv_int8 import GemvInt8
from kernelgen.ops.operator import Array


def packed(operator: GemvInt8, weights: Arrays) -> dict[str, Array]:
    """Bytes with 128 added, in blocks, as `MatMulNBits` wants them."""
    block = quantised.block_of(operator.k, operator.group)
    blocks = -(-operator.k // block)
    wide = np.full((operator.n, blocks * block), 128, np.uint8)
    wide[:, : operator.k] = (weights["w"].astype(np.int16) + 128).astype(np.uint8)
    each = np.repeat(weights["scale"], (operator.group or blocks * block) // block, axis=1)
    return {
        "weights": wide.reshape(operator.n, blocks, block),
        "scales": np.ascontiguousarray(each[:, :blocks]).reshape(-1),
        "zeros": np.full((operator.n, blocks), 128, np.uint8).reshape(-1),
    }


def _dequantised(operator: GemvInt8, copy: Copy) -> None:
    """The pattern that OpenVINO keeps in bytes."""
    w, scale = copy.weight("w"), copy.weight("scale")
    if operator.group:
        wide = copy.node("DequantizeLinear", w, scale, axis=1, block_size=operator.group)
    else:
        flat = copy.own("flat_scale", copy.weights["scale"].reshape(-1))
        wide = copy.node("DequantizeLinear", w, flat, axis=0)
    copy.output("out", copy.node("Gemm", copy.input("a"), wide, transB=1))


def _forms(operator: GemvInt8, dims: Dims) -> Mapping[str, Form]:
    found = quantised.forms(operator, 8, partial(packed, operator))
    if not operator.group or operator.k % operator.group == 0:
        found["DequantizeLinear+Gemm"] = Form(
            partial(_dequantised, operator), ("openvino",), settings=quantised.EXACT
        )
    return found


PEERS = Peers(_forms, quantised.numpy_call, quantised.torch_call)
