"""Convolutions as nodes, for NumPy and for PyTorch. Used by the files of the families.

In: an operator of `kernelgen.ops.conv`. Out: forms and calls. Never here: `PEERS`.

Images stay in the layout of ONNX: what a stack gains by blocks of channels inside a model, it may
gain here too, and pays for the change of layout at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form
from kernelgen.bench.net import Copy
from kernelgen.ops.conv import Conv2d
from kernelgen.ops.operator import Array

PLAIN_LAYOUT = {"onnxruntime": {"graph_optimization_level": "extended"}}
"""ONNX Runtime's last level turns images into blocks of channels."""


def _body(operator: Conv2d, groups: int, copy: Copy) -> None:
    made = copy.node(
        "Conv",
        copy.input("x"),
        copy.weight("weight"),
        copy.weight("bias"),
        group=groups,
        kernel_shape=[operator.kernel] * 2,
        pads=[operator.padding] * 4,
        strides=[operator.stride] * 2,
    )
    copy.output("out", copy.node("Relu", made) if operator.relu else made)


def forms(operator: Conv2d, groups: int) -> Mapping[str, Form]:
    body = partial(_body, operator, groups)
    return {
        "Conv": Form(body),
        "Conv, plain layout": Form(body, ("onnxruntime",), settings=PLAIN_LAYOUT),
    }


def _taps(operator: Conv2d, image: Array, h: int, w: int) -> list[Array]:
    """One strided view of the padded image per place in the window."""
    step, reach = operator.stride, range(operator.kernel)
    return [
        image[:, :, i : i + step * (h - 1) + 1 : step, j : j + step * (w - 1) + 1 : step]
        for i in reach
        for j in reach
    ]


class _Padded:
    """A padded image that is filled again for every call; the image itself without padding."""

    def __init__(self, operator: Conv2d, x: Array) -> None:
        p = operator.padding
        self._x = x
        self._inner: Array | None = None
        self.image = x
        if p:
            self.image = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
            self._inner = self.image[:, :, p:-p, p:-p]

    def fill(self) -> None:
        if self._inner is not None:
            np.copyto(self._inner, self._x)


def _finish(operator: Conv2d, made: Array, bias: Array) -> None:
    np.add(made, bias[:, None, None], out=made)
    if operator.relu:
        np.maximum(made, np.float32(0.0), out=made)


def numpy_dense(operator: Conv2d, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    """Windows as columns of a matrix, then one product per image; for 1x1 the image itself."""
    made = out["out"]
    count, _, h, width = made.shape
    padded = _Padded(operator, x["x"])
    taps = _taps(operator, padded.image, h, width)
    # Rows of the columns in the order (place in the window, channel).
    weight = np.ascontiguousarray(w["weight"].transpose(0, 2, 3, 1).reshape(operator.filters, -1))
    flat = made.reshape(count, operator.filters, h * width)
    columns = np.empty((count, len(taps), operator.channels, h, width), np.float32)
    direct = operator.kernel == 1 and operator.stride == 1 and not operator.padding
    source = (x["x"] if direct else columns).reshape(count, -1, h * width)

    def call() -> None:
        padded.fill()
        if not direct:
            for place, tap in enumerate(taps):
                np.copyto(columns[:, place], tap)
        np.matmul(weight, source, out=flat)
        _finish(operator, made, w["bias"])

    return call


def numpy_depthwise(operator: Conv2d, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    """A product and a sum of whole images per place in the window."""
    made = out["out"]
    padded = _Padded(operator, x["x"])
    taps = _taps(operator, padded.image, *made.shape[2:])
    weights = w["weight"].reshape(operator.channels, -1).T[:, :, None, None]
    spare = np.empty_like(made)

    def call() -> None:
        padded.fill()
        np.multiply(taps[0], weights[0], out=made)
        for tap, weight in zip(taps[1:], weights[1:], strict=True):
            np.multiply(tap, weight, out=spare)
            np.add(made, spare, out=made)
        _finish(operator, made, w["bias"])

    return call


def torch_call(groups: int, torch: Any, operator: Conv2d) -> Any:
    convolve = torch.nn.functional.conv2d

    def one(x: Any, w: Any) -> Any:
        made = convolve(
            x["x"], w["weight"], w["bias"], operator.stride, operator.padding, groups=groups
        )
        return {"out": torch.relu(made) if operator.relu else made}

    return one
