"""Norms over rows: LayerNorm and RMSNorm for NumPy, in the order of calls that touches data least.

In: rows and parameters. Out: the rows normalised in place. Used by the files of the families.
Never here: graph nodes; the engines have their own.
"""

from __future__ import annotations

import numpy as np

from kernelgen.ops.operator import Array


def layernorm_rows(rows: Array, gamma: Array, beta: Array, epsilon: float) -> None:
    """Normalise `rows` [m, n] in place."""
    width = np.float32(rows.shape[-1])
    mean = rows.sum(axis=-1, keepdims=True)
    mean /= width
    np.subtract(rows, mean, out=rows)
    np.divide(rows, _root(rows, epsilon), out=rows)
    np.multiply(rows, gamma, out=rows)
    np.add(rows, beta, out=rows)


def rmsnorm_rows(rows: Array, gamma: Array, epsilon: float, out: Array) -> None:
    """Normalise `rows` [m, n] into `out`, which may be the same."""
    np.divide(rows, _root(rows, epsilon), out=out)
    np.multiply(out, gamma, out=out)


def _root(rows: Array, epsilon: float) -> Array:
    """sqrt(mean of squares + epsilon) of every row, as a column."""
    square: Array = np.einsum("ij,ij->i", rows, rows)[:, None]
    square /= np.float32(rows.shape[-1])
    square += np.float32(epsilon)
    np.sqrt(square, out=square)
    return square
