"""SiLU and GELU for NumPy and as nodes. Used by the files of the families.

In: arrays, or a copy of a graph. Out: values in place, or value names.
Never here: the product before or after.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erf

from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.ops.operator import Array

_ROOT_HALF, _HALF, _ONE = np.float32(0.5**0.5), np.float32(0.5), np.float32(1.0)


def silu(x: Array, out: Array) -> None:
    """x / (1 + exp(-x)) into `out`, which must be another array."""
    np.negative(x, out=out)
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    np.add(out, _ONE, out=out)
    np.divide(x, out, out=out)


def gelu(x: Array, out: Array) -> None:
    """x (1 + erf(x / sqrt 2)) / 2 into `out`, which must be another array."""
    np.multiply(x, _ROOT_HALF, out=out)
    erf(out, out=out)
    np.add(out, _ONE, out=out)
    np.multiply(out, _HALF, out=out)
    np.multiply(out, x, out=out)


def sigmoid_product(copy: Copy, x: str) -> str:
    """SiLU as every engine's optimiser knows it."""
    return copy.node("Mul", x, copy.node("Sigmoid", x))


def quick_gelu(copy: Copy, x: str) -> str:
    """SiLU as one fused node."""
    return copy.node("QuickGelu", x, domain=CONTRIB, alpha=1.0)


def swish(copy: Copy, x: str) -> str:
    """SiLU as one standard node (opset 24)."""
    return copy.node("Swish", x)
