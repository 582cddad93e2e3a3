"""Products with weights of few bits as the engines know them. Used by the files of the families.

In: the weights of `kernelgen.ops.gemv_int8` or `gemv_int4`. Out: forms. Never here: `PEERS`.

Activations stay float32, as the operators say: settings that let an engine round them to bytes are
another function, and such answers are refused as wrong. Every engine may also keep the weights in
float32, unpacked outside the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Form
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.ops.operator import Array

Packed = Callable[[Arrays], dict[str, Array]]

EXACT = {
    "openvino": {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
    "onnxruntime": {"session.qdq_matmulnbits_accuracy_level": "1"},
}
"""No engine may round the activations."""

FLOAT32_SUMS = 1


def block_of(k: int, group: int) -> int:
    """The largest block that `MatMulNBits` takes and that divides a group, or the whole of k."""
    block = 256
    while block > 16 and (group or k) % block:
        block //= 2
    return block


def _many_bits(operator: Any, bits: int, packed: Packed, copy: Copy) -> None:
    parts = packed(copy.weights)
    names = [copy.own(f"packed_{name}", parts[name]) for name in ("weights", "scales", "zeros")]
    made = copy.node(
        "MatMulNBits",
        copy.input("a"),
        *names,
        domain=CONTRIB,
        K=operator.k,
        N=operator.n,
        bits=bits,
        block_size=block_of(operator.k, operator.group),
        accuracy_level=FLOAT32_SUMS,
    )
    copy.output("out", made)


def _floats(operator: Any, copy: Copy) -> None:
    wide = copy.own("wide", floats(operator, copy.weights))
    copy.output("out", copy.node("Gemm", copy.input("a"), wide))


def _floats_turned(operator: Any, copy: Copy) -> None:
    wide = copy.own("turned", np.ascontiguousarray(floats(operator, copy.weights).T))
    copy.output("out", copy.node("Gemm", copy.input("a"), wide, transB=1))


def floats(operator: Any, weights: Arrays) -> Array:
    """The weights' values [k, n] in float32."""
    wide: Array = np.ascontiguousarray(operator.weights(weights).astype(np.float32))
    return wide


def forms(operator: Any, bits: int, packed: Packed) -> dict[str, Form]:
    return {
        f"MatMulNBits, {bits} bits": Form(
            partial(_many_bits, operator, bits, packed), settings=EXACT
        ),
        "Gemm, float32 weights": Form(partial(_floats, operator)),
        "Gemm, float32 weights, transposed": Form(partial(_floats_turned, operator)),
    }


def numpy_call(operator: Any, dims: Any, x: Arrays, w: Arrays, out: Arrays) -> Call:
    """NumPy multiplies no bytes with floats: float32 weights, unpacked outside the clock."""
    return partial(np.matmul, x["a"], floats(operator, w), out=out["out"])


def torch_call(torch: Any, operator: Any, dims: Any) -> Any:
    """As NumPy; the values are unpacked once for every set of weights."""
    kept: dict[int, Any] = {}

    def one(x: Any, w: Any) -> Any:
        at = w["w"].data_ptr()
        if at not in kept:
            arrays: Mapping[str, Array] = {name: value.numpy() for name, value in w.items()}
            kept[at] = torch.from_numpy(floats(operator, arrays))
        return {"out": x["a"] @ kept[at]}

    return one
