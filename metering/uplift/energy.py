"""Energy of both arms over the pairs of an uplift, or "not measured" with the reason.

In: the counted pairs, the log of a meter if the evidence has one. Out: :class:`Energy`. A meter's
log is read at the times LoadGen wrote into its own, so it covers the timed part alone; counters are
read around the whole run, start and load included. Both arms are read alike, so an error in
proportion cancels in the ratio; it stays in the joules.
Never here: money. No fee rests on energy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from metering.energy import NOT_MEASURED, MeterLog, Spent, read_meter
from metering.loadgen.result import RunResult
from metering.loadgen.verify import EvidenceError
from metering.refusal import Refusal
from metering.uplift.account import log_times
from metering.uplift.conditions import Conditions
from metering.uplift.estimate import UpliftEstimate, estimate
from metering.uplift.order import WARM_UP_PAIRS
from metering.uplift.pairs import PairedRuns

METER = "meter.csv"


@dataclass(frozen=True)
class Energy:
    """``less``: joules a sample of the baseline over those of the candidate, minus one."""

    source: str
    uncertainty: Decimal | None
    baseline_j_per_sample: Decimal | None
    candidate_j_per_sample: Decimal | None
    less: UpliftEstimate | None
    reason: str

    @property
    def measured(self) -> bool:
        return self.less is not None

    @property
    def words(self) -> str:
        if self.less is None:
            return f"{NOT_MEASURED}: {self.reason}"
        return (
            f"{self.candidate_j_per_sample:.6g} J a sample, baseline "
            f"{self.baseline_j_per_sample:.6g} ({self.source}, off by up to {self.uncertainty:.1%})"
        )

    def to_dict(self) -> dict[str, Any]:
        if self.less is None:
            return {"state": NOT_MEASURED, "reason": self.reason}
        return {
            "state": "measured",
            "source": self.source,
            "uncertainty": str(self.uncertainty),
            "baseline_j_per_sample": f"{self.baseline_j_per_sample:.9f}",
            "candidate_j_per_sample": f"{self.candidate_j_per_sample:.9f}",
            "less": self.less.to_dict(),
        }


def not_measured(reason: str) -> Energy:
    return Energy("", None, None, None, None, reason)


def energy_of(uplift: PairedRuns, evidence: Path) -> Energy:
    """Energy of an uplift that was loaded and holds. Raises EvidenceError for a meter's log that
    cannot be read."""
    if not uplift.complete:
        return not_measured("the uplift broke off")
    meter = _meter(evidence / METER)
    base: list[Decimal] = []
    other: list[Decimal] = []
    sources: list[Spent] = []
    for pair in uplift.pairs[WARM_UP_PAIRS:]:
        seen = pair.conditions or (None, None)
        for result, conditions, found in ((pair.base, seen[0], base), (pair.other, seen[1], other)):
            spent = _spent(result, conditions, meter, evidence / "uplift")
            if spent is None:
                said = "the meter's log does not cover" if meter else "no counter was read around"
                return not_measured(f"{said} run {result.run_id}")
            sources.append(spent)
            found.append(spent.joules / (result.sample_count or 1))
    names = {spent.source for spent in sources}
    if len(names) != 1:
        return not_measured(f"runs were read from {sorted(names)}, wanted one source")
    ratios = [math.log(left / right) for left, right in zip(base, other, strict=True)]
    return Energy(
        source=names.pop(),
        uncertainty=max(spent.uncertainty for spent in sources),
        baseline_j_per_sample=median(base),
        candidate_j_per_sample=median(other),
        less=estimate(ratios),
        reason="",
    )


def _meter(path: Path) -> MeterLog | None:
    if not path.exists():
        return None
    try:
        return read_meter(path)
    except (Refusal, OSError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{path.name}: {error}") from error


def _spent(
    result: RunResult, conditions: Conditions | None, meter: MeterLog | None, out: Path
) -> Spent | None:
    if meter is not None:
        return meter.spent(*log_times(result, out))
    return None if conditions is None else conditions.energy
