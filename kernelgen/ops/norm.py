"""LayerNorm in float64, and how it passes rounding errors on.

In: rows [m, n] with scale and shift [n]. Out: normalised rows and bounds. Source: Ba, Kiros, Hinton
2016.
Never here: one-pass variance; a kernel that uses it must fail the bound when the mean is far from
zero.
"""

from __future__ import annotations

import numpy as np

from kernelgen.ops.operator import UNIT_ROUNDOFF, Array, sum_growth


def layernorm(rows: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """(x - mean) / sqrt(var + epsilon) * gamma + beta over the last axis, all in float64."""
    wide = rows.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + epsilon)
    result: Array = centred / deviation * gamma.astype(np.float64) + beta.astype(np.float64)
    return result


def layernorm_bound(
    rows: Array, rounding: Array, gamma: Array, beta: Array, epsilon: float
) -> Array:
    """First-order error of LayerNorm whose input is off by at most `rounding`, element by element.

    An error e in x moves the result by |gamma| (e + mean e + |y| mean(|y| e)) / deviation, y the
    normalised value; to this the roundings of the mean, of the squares and of the result are added.
    """
    wide = rows.astype(np.float64)
    mean = wide.mean(axis=-1, keepdims=True)
    centred = wide - mean
    deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + epsilon)
    normal = np.abs(centred / deviation)
    scale = np.abs(gamma.astype(np.float64))
    growth = UNIT_ROUNDOFF * sum_growth(rows.shape[-1])
    entering = rounding + growth * np.abs(wide).mean(axis=-1, keepdims=True)
    passed = entering + entering.mean(axis=-1, keepdims=True)
    passed = passed + normal * (normal * entering).mean(axis=-1, keepdims=True)
    own = growth * normal + 4.0 * UNIT_ROUNDOFF * (normal + 1.0)
    result: Array = scale * (passed / deviation + own) + 4.0 * UNIT_ROUNDOFF * np.abs(
        beta.astype(np.float64)
    )
    return result
