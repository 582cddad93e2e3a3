"""Softmax over rows for NumPy. Used by the files of the families.

In: scores. Out: the same memory. Never here: masks.
"""

from __future__ import annotations

import numpy as np

from kernelgen.ops.operator import Array


def softmax_rows(scores: Array) -> None:
    """Softmax over the last axis in place."""
    np.subtract(scores, scores.max(axis=-1, keepdims=True), out=scores)
    np.exp(scores, out=scores)
    np.divide(scores, scores.sum(axis=-1, keepdims=True), out=scores)
