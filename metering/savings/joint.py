"""Joint uncertainty: what several estimates are worth together, and at which bound each bills.

In: point estimates with a bound or a standard error, and the baseline each one rests on.
Out: the standard error of their sum, and a bound for every line.
Never here: errors of one shared baseline treated as independent: they add linearly, because one
wrong baseline is wrong in every line at once. Errors of different baselines add in squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.money import carried
from metering.refusal import Refusal
from metering.savings.uncertainty import (
    Z_95,
    combine_standard_errors,
    lower_bound,
    t_95_one_sided,
)

__all__ = ["UNCERTAINTIES", "Estimate", "bounds", "joint_standard_error"]

UNCERTAINTIES = ("each", "joint")


@dataclass(frozen=True)
class Estimate:
    """Signed savings with either a one-sided 95 % `bound`, or a `standard_error` and its `df`.

    Neither: known exactly. `baseline_id` "" : a baseline of its own.
    """

    point: Decimal
    bound: Decimal | None = None
    standard_error: Decimal | None = None
    df: int | None = None
    baseline_id: str = ""

    def __post_init__(self) -> None:
        if self.bound is not None and (self.standard_error is not None or self.df is not None):
            raise Refusal("standard_error", self.standard_error, "a bound or an error, not both")
        if (self.standard_error is None) != (self.df is None):
            raise Refusal("df", self.df, "degrees of freedom with each standard error")
        if self.standard_error is not None and self.standard_error < 0:
            raise Refusal("standard_error", to_text(self.standard_error), "zero or more")
        if self.bound is not None and self.bound > self.point:
            raise Refusal("bound", to_text(self.bound), f"at most the point {to_text(self.point)}")

    @property
    def own_bound(self) -> Decimal:
        """The line's bound when it stands alone."""
        if self.standard_error is not None and self.df is not None:
            return lower_bound(self.point, self.standard_error, self.df)
        return self.point if self.bound is None else self.bound

    @property
    def own_error(self) -> Decimal:
        """The standard error; of a bound the normal-equivalent (point - bound) / 1.644854."""
        if self.standard_error is not None:
            return self.standard_error
        with exact():
            return carried((self.point - self.own_bound) / Z_95)


def joint_standard_error(estimates: Sequence[Estimate]) -> Decimal:
    """Standard error of the sum: linear within a baseline, root of squares between baselines."""
    by_baseline: dict[tuple[str, int], list[Decimal]] = {}
    for index, estimate in enumerate(estimates):
        alone = -1 if estimate.baseline_id else index
        by_baseline.setdefault((estimate.baseline_id, alone), []).append(estimate.own_error)
    shared = [
        combine_standard_errors(errors, shared_baseline=True) for errors in by_baseline.values()
    ]
    return carried(combine_standard_errors(shared, shared_baseline=False))


def bounds(estimates: Sequence[Estimate], uncertainty: str) -> list[Decimal]:
    """The bound each line bills at, in the order given.

    `each`: its own. `joint`: the margin of the sum, t x joint standard error with the fewest
    degrees of freedom of all lines, is spread over the gains in proportion to their own margins;
    no line gets a margin above its own. A loss counts at its point estimate and takes no part of
    the margin, but its error is in the sum.
    """
    if uncertainty not in UNCERTAINTIES:
        raise Refusal("uncertainty", repr(uncertainty), "one of " + ", ".join(UNCERTAINTIES))
    own = [estimate.own_bound for estimate in estimates]
    if uncertainty == "each":
        return own
    with exact():
        margins = [
            estimate.point - bound if estimate.point > 0 else Decimal(0)
            for estimate, bound in zip(estimates, own, strict=True)
        ]
        total = sum(margins, Decimal(0))
        if not total:
            return own
        quantile = max(
            Z_95 if estimate.df is None else t_95_one_sided(estimate.df) for estimate in estimates
        )
        part = min(Decimal(1), quantile * joint_standard_error(estimates) / total)
        return [
            max(bound, carried(estimate.point - margin * part)) if margin else bound
            for estimate, bound, margin in zip(estimates, own, margins, strict=True)
        ]
