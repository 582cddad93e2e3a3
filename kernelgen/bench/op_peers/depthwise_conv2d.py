"""Peers of depthwise convolution.

In: `DepthwiseConv2d`. Out: `PEERS`. Never here: dense filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.bench.family import Dims, Form, Peers
from kernelgen.bench.op_peers.convolutions import forms, numpy_depthwise, torch_call
from kernelgen.ops.conv import DepthwiseConv2d


def _forms(operator: DepthwiseConv2d, dims: Dims) -> Mapping[str, Form]:
    return forms(operator, operator.channels)


def _torch(torch: Any, operator: DepthwiseConv2d, dims: Dims) -> Any:
    return torch_call(operator.channels, torch, operator)


PEERS = Peers(_forms, numpy_depthwise, _torch)
