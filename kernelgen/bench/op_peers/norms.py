"""LayerNorm for NumPy, in the order of calls that touches the data least.

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
    square = np.einsum("ij,ij->i", rows, rows)[:, None]
    square /= width
    square += np.float32(epsilon)
    np.sqrt(square, out=square)
    np.divide(rows, square, out=rows)
    np.multiply(rows, gamma, out=rows)
    np.add(rows, beta, out=rows)
