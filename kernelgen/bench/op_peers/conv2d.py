"""Peers of dense convolution.

In: `Conv2d`. Out: `PEERS`. Never here: groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.bench.family import Dims, Form, Peers
from kernelgen.bench.op_peers.convolutions import forms, numpy_dense, torch_call
from kernelgen.ops.conv import Conv2d


def _forms(operator: Conv2d, dims: Dims) -> Mapping[str, Form]:
    return forms(operator, 1)


def _torch(torch: Any, operator: Conv2d, dims: Dims) -> Any:
    return torch_call(1, torch, operator)


PEERS = Peers(_forms, numpy_dense, _torch)
