"""Peers of pooling by the largest pixel.

In: `MaxPool`. Out: `PEERS`, and what the mean shares. Never here: whole images.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers.convolutions import PLAIN_LAYOUT
from kernelgen.ops.operator import Array
from kernelgen.ops.pool2d import MaxPool


def body(operator: MaxPool, kind: str, copy: Copy) -> None:
    made = copy.node(
        kind,
        copy.input("x"),
        kernel_shape=[operator.kernel] * 2,
        pads=[operator.padding] * 4,
        strides=[operator.stride] * 2,
    )
    copy.output("out", made)


def forms(operator: MaxPool, kind: str) -> Mapping[str, Form]:
    made = partial(body, operator, kind)
    return {
        kind: Form(made),
        f"{kind}, plain layout": Form(made, ("onnxruntime",), settings=PLAIN_LAYOUT),
    }


def windows(operator: MaxPool, x: Array, value: float, out: Array) -> tuple[Array, list[Array]]:
    """The inside of a padded copy of `x`, to be filled, and a strided view of the copy per place in
    the window.
    """
    p, step, reach = operator.padding, operator.stride, range(operator.kernel)
    image = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=value) if p else x
    h, w = out.shape[2:]
    taps = [
        image[:, :, i : i + step * (h - 1) + 1 : step, j : j + step * (w - 1) + 1 : step]
        for i in reach
        for j in reach
    ]
    return image[:, :, p : p + x.shape[2], p : p + x.shape[3]], taps


def _numpy(operator: MaxPool, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]
    inside, taps = windows(operator, x["x"], -np.inf, made)

    def call() -> None:
        if operator.padding:
            np.copyto(inside, x["x"])
        np.copyto(made, taps[0])
        for tap in taps[1:]:
            np.maximum(made, tap, out=made)

    return call


def _forms(operator: MaxPool, dims: Dims) -> Mapping[str, Form]:
    return forms(operator, "MaxPool")


def _torch(torch: Any, operator: MaxPool, dims: Dims) -> Any:
    pool = torch.nn.functional.max_pool2d
    sizes = (operator.kernel, operator.stride, operator.padding)
    return lambda x, w: {"out": pool(x["x"], *sizes)}


PEERS = Peers(_forms, _numpy, _torch)
