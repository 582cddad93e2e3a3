"""Several claims at once: Holm over the family, bounds that hold together, and the mix they add to.

In: the log-ratios of each claim (a model, a scenario) by name, and for a mix the traffic and the
baseline rate of each. Out: which claims are shown, the bound money may use for each, and the uplift
of the mix. A family of one gives exactly what :func:`estimate` gives.

With ten claims at 5 % each, something looks faster on four days of ten when nothing is. Holm's
step-down test (Scandinavian Journal of Statistics 6, 1979) keeps the chance of any false claim at
5 % without assuming independence. Its rejections have no informative bounds that hold together
(Strassburger & Bretz, Statistics in Medicine 27, 2008), so money uses the exact bound at 5 % / k,
and the bounds of all k claims hold at once in 95 % of measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from metering.uplift.estimate import (
    UpliftEstimate,
    estimate,
    fraction_text,
    lower_bound,
    signed_rank_cdf,
    walsh_averages,
)

LEVEL = 0.05


@dataclass(frozen=True)
class Claim:
    """One claim of a family. Fractions are ratios minus one.

    ``p_value``: exact one-sided signed-rank test of "no more than ``minimum_effect``".
    ``adjusted_p``: Holm's, comparable with 0.05 whatever the size of the family.
    ``bound``: lower bound at 5 % / k, what money uses. ``shown``: Holm rejects.
    ``billable``: shown, and the bound above the minimum effect.
    """

    name: str
    estimate: UpliftEstimate
    p_value: float
    adjusted_p: float
    bound: float
    minimum_effect: float

    @property
    def shown(self) -> bool:
        return self.adjusted_p <= LEVEL

    @property
    def billable(self) -> bool:
        return self.shown and self.bound > self.minimum_effect

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self.estimate.to_dict(),
            "p_value": fraction_text(self.p_value),
            "adjusted_p": fraction_text(self.adjusted_p),
            "bound": fraction_text(self.bound, down=True),
            "minimum_effect": fraction_text(self.minimum_effect),
            "shown": self.shown,
            "billable": self.billable,
        }


@dataclass(frozen=True)
class Traffic:
    """``samples`` served in the period, and the frozen baseline's rate for them."""

    samples: int
    baseline_samples_per_second: Decimal


def signed_rank_p(log_ratios: Sequence[float], minimum_effect: float) -> float:
    """P(W+ >= observed) if the true uplift were ``minimum_effect``, exact, one-sided.

    W+ is counted as Walsh averages above the effect; one exactly at it counts against the claim.
    The exact lower bound at level a is above ``minimum_effect`` just when this is at most a.
    """
    walsh = walsh_averages(np.asarray(log_ratios, dtype=np.float64))
    above = int((walsh > math.log1p(minimum_effect)).sum())
    if above == 0:
        return 1.0
    # Symmetric: P(W+ >= w) = P(W+ <= M - w), with M = n(n + 1) / 2.
    return float(signed_rank_cdf(len(log_ratios))[len(walsh) - above])


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return tuple(adjusted)


def family(
    log_ratios: Mapping[str, Sequence[float]],
    minimum_effect: float | Mapping[str, float],
    *,
    planned: int = 0,
) -> tuple[Claim, ...]:
    """Every claim that was planned, shown or not, in the order given.

    A claim left out because it did not work would make the others look better: ``planned`` is how
    many there were, when a measurement that broke off gives no ratios. Raises ValueError without a
    claim, or with too few pairs for an exact bound at 5 % / k.
    """
    if not log_ratios:
        raise ValueError("claims: got none, wanted at least one")
    effects = {
        name: minimum_effect[name] if isinstance(minimum_effect, Mapping) else minimum_effect
        for name in log_ratios
    }
    found = {name: estimate(values) for name, values in log_ratios.items()}
    raw = {name: signed_rank_p(values, effects[name]) for name, values in log_ratios.items()}
    size = max(planned, len(log_ratios))
    # A claim without ratios is one that is not shown: p = 1.
    every = [*raw.values(), *[1.0] * (size - len(raw))]
    adjusted = dict(zip(raw, holm(every), strict=False))
    level = LEVEL / size
    return tuple(
        Claim(
            name=name,
            estimate=found[name],
            p_value=raw[name],
            adjusted_p=adjusted[name],
            bound=lower_bound(values, level),
            minimum_effect=effects[name],
        )
        for name, values in log_ratios.items()
    )


def mix_uplift(uplifts: Mapping[str, float], traffic: Mapping[str, Traffic]) -> float:
    """Uplift of a whole mix: its time before over its time after, minus one.

    Time is samples / rate, summed over the mix; a model without a kept claim goes on at its
    baseline, uplift 0. Never a mean of ratios: a model with little traffic counts little.
    Raises ValueError when the names differ or there is no traffic.
    """
    if set(uplifts) != set(traffic):
        raise ValueError(f"traffic: got {sorted(traffic)}, wanted {sorted(uplifts)}")
    before = after = 0.0
    for name, part in traffic.items():
        if part.samples < 0 or part.baseline_samples_per_second <= 0:
            raise ValueError(f"traffic: {name}: wanted samples from 0 and a rate above 0")
        seconds = part.samples / float(part.baseline_samples_per_second)
        before += seconds
        after += seconds / (1 + uplifts[name])
    if before == 0:
        raise ValueError("traffic: got no samples at all, wanted some")
    return before / after - 1
