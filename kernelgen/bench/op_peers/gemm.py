"""Peers of a matrix product with an epilogue of one line.

In: `Gemm`. Out: `PEERS`. Never here: quantised products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers import activations
from kernelgen.ops.gemm_plain import Gemm

After = Callable[[Copy, str], str]


def _gemm(operator: Gemm, after: After, copy: Copy) -> None:
    parts = [copy.input("a"), copy.weight("w")]
    if operator.has_bias:
        parts.append(copy.weight("bias"))
    if operator.epilogue == "residual":
        parts.append(copy.input("residual"))
    copy.output("out", after(copy, copy.node("Gemm", *parts)))


def _matmul(operator: Gemm, after: After, copy: Copy) -> None:
    made = copy.node("MatMul", copy.input("a"), copy.weight("w"))
    if operator.has_bias:
        made = copy.node("Add", made, copy.weight("bias"))
    if operator.epilogue == "residual":
        made = copy.node("Add", made, copy.input("residual"))
    copy.output("out", after(copy, made))


def _bias_gelu(copy: Copy) -> None:
    made = copy.node("MatMul", copy.input("a"), copy.weight("w"))
    copy.output("out", copy.node("BiasGelu", made, copy.weight("bias"), domain=CONTRIB))


def _same(copy: Copy, value: str) -> str:
    return value


def _gelu(copy: Copy, value: str) -> str:
    return copy.node("Gelu", value)


def _forms(operator: Gemm, dims: Dims) -> Mapping[str, Form]:
    after: Mapping[str, After] = {"": _same}
    if operator.epilogue == "bias_gelu":
        after = {"+Gelu": _gelu}
    if operator.epilogue == "bias_silu":
        after = {
            "+Sigmoid+Mul": activations.sigmoid_product,
            "+QuickGelu": activations.quick_gelu,
        }
    found: dict[str, Form] = {}
    for name, function in after.items():
        found[f"Gemm{name}"] = Form(partial(_gemm, operator, function))
        found[f"MatMul{name}"] = Form(partial(_matmul, operator, function))
    if operator.epilogue == "bias_gelu":
        found["MatMul+BiasGelu"] = Form(_bias_gelu, ("onnxruntime",))
    return found


def _numpy(operator: Gemm, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]
    acts = {"bias_gelu": activations.gelu, "bias_silu": activations.silu}
    act = acts.get(operator.epilogue)
    product = made if act is None else np.empty_like(made)
    added = w.get("bias", x.get("residual"))

    def call() -> None:
        np.matmul(x["a"], w["w"], out=product)
        if added is not None:
            np.add(product, added, out=product)
        if act is not None:
            act(product, made)

    return call


def _torch(torch: Any, operator: Gemm, dims: Dims) -> Any:
    layers = torch.nn.functional
    acts = {"bias_gelu": layers.gelu, "bias_silu": layers.silu}
    act = acts.get(operator.epilogue, lambda value: value)

    def one(x: Any, w: Any) -> Any:
        added = w.get("bias", x.get("residual"))
        made = x["a"] @ w["w"] if added is None else torch.addmm(added, x["a"], w["w"])
        return {"out": act(made)}

    return one


PEERS = Peers(_forms, _numpy, _torch)
