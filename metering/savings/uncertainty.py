"""Uncertainty of savings: Student's t bound and the sum of standard errors.

In: point estimate, standard error, degrees of freedom.
Out: the one-sided 95 % lower bound, exact decimals from a quantile pinned at six places.
Never here: a normal quantile for a small sample; independence assumed where a baseline is
shared (errors then add, they do not cancel).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from metering.decimals import exact, parse_decimal
from metering.refusal import Refusal

__all__ = ["Z_95", "combine_standard_errors", "lower_bound", "t_95_one_sided"]

Z_95 = Decimal("1.644854")
"""One-sided 95 % quantile of the normal distribution, six places."""


def t_95_one_sided(degrees_of_freedom: int) -> Decimal:
    """One-sided 95 % quantile of Student's t at six decimal places (df 29: 1.699127).

    Six places are part of the method: a bound must not depend on a library's last bit.
    """
    if isinstance(degrees_of_freedom, bool) or degrees_of_freedom < 1:
        raise Refusal("degrees_of_freedom", degrees_of_freedom, "a whole number from 1")
    from scipy.special import stdtrit  # slow to import, needed by contracts with a t bound only

    return Decimal(f"{float(stdtrit(degrees_of_freedom, 0.95)):.6f}")


def lower_bound(
    point: object, standard_error: object, degrees_of_freedom: int, t: object = None
) -> Decimal:
    """point - t x standard error, unrounded and signed; `t` overrides the computed quantile."""
    error = parse_decimal(standard_error, "standard_error")
    if error < 0:
        raise Refusal("standard_error", error, "zero or more")
    quantile = t_95_one_sided(degrees_of_freedom) if t is None else parse_decimal(t, "t")
    with exact():
        return parse_decimal(point, "point") - quantile * error


def combine_standard_errors(errors: Sequence[object], *, shared_baseline: bool) -> Decimal:
    """Standard error of a sum: root of squares when independent, plain sum on one baseline."""
    values = [parse_decimal(error, "standard_error") for error in errors]
    if any(value < 0 for value in values):
        raise Refusal("standard_error", min(values), "zero or more")
    with exact():
        if shared_baseline:
            return sum(values, Decimal(0))
        return sum((value * value for value in values), Decimal(0)).sqrt()
