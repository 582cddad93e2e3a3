"""From sample sentences to the sizes worth tuning for, with their weights.

In: token id sequences of real traffic. Out: `Point`s for the model and for each operator inside it.
Never here: timing, or a size that the traffic does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernelgen.judge.contest import Point
from kernelgen.ops.operator import Operator

BATCHES: Sequence[tuple[int, float]] = ((1, 0.25), (16, 0.75))
"""Sequences per call and the part of all sequences that arrive in such calls: some alone, most in
batches.
"""


def model_points(samples: Sequence[npt.NDArray[np.int64]]) -> tuple[Point, ...]:
    """Sizes of whole-model calls: n sequences with the median token count of n consecutive samples.

    The weight is calls per sequence, so the weighted time is time per sequence of the traffic.
    """
    lengths = np.array([len(ids) for ids in samples], dtype=np.int64)
    if not len(lengths) or lengths.min() < 1:
        raise ValueError("samples: wanted at least one sequence, and none of them empty")
    points: list[Point] = []
    for batch, part in BATCHES:
        size = min(batch, len(lengths))
        totals = [int(lengths[i : i + size].sum()) for i in range(0, len(lengths) - size + 1, size)]
        dims = {"n": size, "tokens": int(np.median(totals))}
        if all(point.dims != dims for point in points):
            points.append(Point(dims, part / size))
    return tuple(points)


def operator_points(operator: Operator, model: Sequence[Point]) -> tuple[Point, ...]:
    """The same calls as one operator sees them: rows are tokens."""
    known = {"m", "n", "tokens"}
    unknown = set(operator.dims) - known
    if unknown:
        raise ValueError(f"{operator.name}: sizes {sorted(unknown)}, wanted only {sorted(known)}")
    return tuple(
        Point(
            {
                name: point.dims["tokens"] if name == "m" else point.dims[name]
                for name in operator.dims
            },
            point.weight,
        )
        for point in model
    )
