"""LoadGen's early stopping: how sure one run is of a percentile of its own latency.

In: a number of queries, how many of them were over, a percentile. Out: whether the percentile holds
with 99 % confidence, and which order statistic bounds it. It says nothing about another run.
Source: MLPerf Inference rules, appendix "Early Stopping Criterion" (confidence 0.99, tolerance 0).
"""

from __future__ import annotations

_RISK = 0.01
SINGLE_STREAM, OTHERS = 0.90, 0.99
"""The percentiles of the scenarios."""


def holds(queries: int, over: int, percentile: float) -> bool:
    """Whether ``over`` of ``queries`` beyond a bound are few enough to say that it holds.

    If a query were over with the chance ``1 - percentile``, at most ``over`` of them would be with
    a chance of at most 1 %.
    """
    # Here and not above: the process that measures imports this package, and must stay light.
    from scipy.special import bdtr

    return bool(bdtr(over, queries, 1 - percentile) <= _RISK)


def most_over(queries: int, percentile: float) -> int:
    """The largest ``over`` that :func:`holds`; -1 when there are too few queries for any."""
    over = -1
    while holds(queries, over + 1, percentile):
        over += 1
    return over


def least_queries(over: int, percentile: float) -> int:
    """The fewest queries that allow ``over``: 64 for one at 0.90, 662 for one at 0.99."""
    queries = over + 1
    while not holds(queries, over, percentile):
        queries += 1
    return queries
