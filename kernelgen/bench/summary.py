"""A suite of rows in a few numbers.

In: rows. Out: `Summary`. Never here: a mean that leaves failures out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, object]

FAILED = 0.1
"""What a wrong or missing kernel counts as: it stays in the denominator, far below every peer."""

LEAST_RATIO = 0.95
NEAR_ROOF = 0.85
LONG_US = 5.0
"""Where the best peer is shorter, much of its time is the stack's own dispatch of a node; a mean
over the longer rows, and all failures, says what the kernels are worth without it.
"""


@dataclass(frozen=True)
class Summary:
    """`compared` rows have a peer or failed, and make the mean; `below` of them are slower than
    `LEAST_RATIO`; `near_roof` rows reach `NEAR_ROOF` of their roofline; `long_geomean` is over
    rows of `LONG_US` or more.
    """

    rows: int
    correct: int
    compared: int
    geomean: float | None
    long_geomean: float | None
    worst: str | None
    worst_ratio: float | None
    below: int
    near_roof: int


def counted(row: Row) -> float | None:
    """The ratio that a row brings into a mean; None for a correct one without a peer."""
    if not row["correct"]:
        return FAILED
    ratio = row["ratio"]
    return ratio if isinstance(ratio, float) else None


def _long(row: Row) -> bool:
    peers, best = row["peers"], row["best_peer"]
    if not row["correct"] or not isinstance(peers, Mapping) or not isinstance(best, str):
        return not row["correct"]
    return float(peers[best]) >= LONG_US


def geomean(ratios: Sequence[float]) -> float:
    """Geometric mean of at least one positive number."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def summary(rows: Sequence[Row]) -> Summary:
    """Geometric mean over all rows that have a peer or failed, the worst of them, and counts."""
    every = {str(row["name"]): counted(row) for row in rows}
    ratios = {name: ratio for name, ratio in every.items() if ratio is not None}
    long = [ratio for row in rows if (ratio := counted(row)) is not None and _long(row)]
    worst = min(ratios, key=lambda name: ratios[name]) if ratios else None
    fractions = [row["roofline_fraction"] for row in rows]
    return Summary(
        rows=len(rows),
        correct=sum(bool(row["correct"]) for row in rows),
        compared=len(ratios),
        geomean=geomean(list(ratios.values())) if ratios else None,
        long_geomean=geomean(long) if long else None,
        worst=worst,
        worst_ratio=None if worst is None else ratios[worst],
        below=sum(ratio < LEAST_RATIO for ratio in ratios.values()),
        near_roof=sum(isinstance(one, float) and one >= NEAR_ROOF for one in fractions),
    )
