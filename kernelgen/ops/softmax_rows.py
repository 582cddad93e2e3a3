"""Softmax attention of a few query rows over keys and values, in float64, and how far honest
float32 may be from it: what all attention families are measured by.

In: arrays of one sequence, heads first. Out: rows, or the bound of their error. Never here: where
keys lie (a cache, pages, a ragged batch); operators themselves.
"""

from __future__ import annotations

import numpy as np

from kernelgen.ops.operator import UNIT_ROUNDOFF, Array, sum_growth


def attend(q: Array, k: Array, v: Array, scale: float, *, causal: bool = False) -> Array:
    """softmax(q k^T scale) v: q [hq, rows, d], k and v [hkv, keys, d] -> [hq, rows, d].

    hq / hkv query heads in a row share one head of keys and values. With `causal` the last row
    sees every key, the one before it all but the last, and so on.
    """
    q, k, v = _wide(q, k, v)
    weights, _ = _weights(q @ k.transpose(0, 2, 1) * scale, causal=causal)
    result: Array = weights @ v
    return result


def attend_bound(q: Array, k: Array, v: Array, scale: float, *, causal: bool = False) -> Array:
    """Largest error of an honest float32 `attend`, element by element.

    A score off by e changes its weight by the factor exp(e) - 1; so does rounding the argument of
    exp. Two weights may trade places at most fully.
    """
    q, k, v = _wide(q, k, v)
    scores = q @ k.transpose(0, 2, 1) * scale
    size = np.abs(q) @ np.abs(k).transpose(0, 2, 1) * abs(scale)
    weights, seen = _weights(scores, causal=causal)
    top = np.where(seen, scores, -np.inf).max(axis=-1, keepdims=True)
    below = np.where(seen, top - scores, 0.0)
    off = UNIT_ROUNDOFF * (sum_growth(q.shape[-1]) * size + 2.0 * below + 8.0)
    off = np.where(seen, off, 0.0)
    factor = np.expm1(np.minimum(off + (weights * off).sum(axis=-1, keepdims=True), 40.0))
    factor = factor + UNIT_ROUNDOFF * sum_growth(k.shape[1])
    most = np.maximum.accumulate(np.abs(v), axis=1) if causal else np.abs(v)
    reach = most[:, k.shape[1] - q.shape[1] :] if causal else most.max(axis=1, keepdims=True)
    result: Array = np.minimum((weights * factor) @ np.abs(v), 2.0 * reach)
    return result


def _wide(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    group = q.shape[0] // k.shape[0]
    k, v = (np.repeat(one.astype(np.float64), group, axis=0) for one in (k, v))
    return q.astype(np.float64), k, v


def _weights(scores: Array, *, causal: bool) -> tuple[Array, Array]:
    """Softmax over the keys each row sees, and which these are."""
    rows, keys = scores.shape[-2:]
    last = np.arange(keys - rows, keys) if causal else np.full(rows, keys - 1)
    seen = np.arange(keys) <= last[:, None]
    kept = np.where(seen, scores, -np.inf)
    powers = np.exp(kept - kept.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True), seen
