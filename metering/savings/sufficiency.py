"""Sufficiency: whether there is enough evidence to bill on, rule by rule.

In: what was measured and metered. Out: disqualifications (nothing bills), flags (a person looks),
and the auditor's named overrides.
Never here: a rule that is switched off in silence: an override names the auditor and the reason,
and is printed. Missing is not zero, and a host that stopped reporting saved nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from metering.decimals import exact, to_text
from metering.refusal import Refusal

__all__ = ["Disqualification", "Evidence", "Override", "Verdict", "examine", "settle"]

LEAST_RUNS = 5
LEAST_DAYS = 3
LEAST_HOURS = Decimal("0.90")
FAR_OUT = 3


@dataclass(frozen=True)
class Evidence:
    """What stands behind one model on one system in one period.

    `run_days`: the day of each valid baseline run. `metered_hours` of `period_hours` have usage
    or a reported zero. `volumes` per hour or day, as metered. `zones`: contract and meter.
    """

    run_days: tuple[date, ...]
    period_hours: Decimal
    metered_hours: Decimal
    volumes: tuple[Decimal, ...] = ()
    conflicts: int = 0
    zones: tuple[str, str] = ("", "")
    partial_period: bool = False


@dataclass(frozen=True)
class Disqualification:
    """One rule that does not hold. `blocks`: nothing bills until it is overridden by name."""

    name: str
    description: str
    blocks: bool = True


@dataclass(frozen=True)
class Override:
    """An auditor's decision to bill in spite of one disqualification; printed on the report."""

    name: str
    auditor: str
    reason: str

    def __post_init__(self) -> None:
        for field in ("name", "auditor", "reason"):
            if not getattr(self, field).strip():
                raise Refusal(f"override.{field}", "nothing", "a named auditor and a reason")


@dataclass(frozen=True)
class Verdict:
    """`gate` is why nothing bills, or None. `printed` is what a report says either way."""

    gate: str | None
    printed: tuple[str, ...]


def examine(evidence: Evidence) -> tuple[Disqualification, ...]:
    """Every rule that does not hold, blocking ones first."""
    found = [
        *_runs(evidence), *_hours(evidence), *_volumes(evidence), *_rest(evidence),
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda item: (not item.blocks, item.name)))


def _runs(evidence: Evidence) -> list[Disqualification]:
    """CalTRACK 2.2.1 in runs: enough of them, not all of one day."""
    runs, days = len(evidence.run_days), len(set(evidence.run_days))
    found = []
    if runs < LEAST_RUNS:
        text = f"{runs} valid baseline runs, {LEAST_RUNS} needed"
        found.append(Disqualification("sufficiency.baseline.runs", text))
    if days < LEAST_DAYS:
        text = f"baseline runs of {days} days, {LEAST_DAYS} needed"
        found.append(Disqualification("sufficiency.baseline.days", text))
    return found


def _hours(evidence: Evidence) -> list[Disqualification]:
    """CalTRACK 2.2.1.4, 3.5.4.1: hours nobody metered are missing, not zero, and not filled in."""
    if not 0 <= evidence.metered_hours <= evidence.period_hours or not evidence.period_hours:
        raise Refusal(
            "metered_hours", to_text(evidence.metered_hours),
            f"0 to {to_text(evidence.period_hours)} hours",
        )  # fmt: skip
    with exact():
        part = evidence.metered_hours / evidence.period_hours
    if part >= LEAST_HOURS:
        return []
    text = (
        f"{to_text(evidence.metered_hours)} of {to_text(evidence.period_hours)} hours metered,"
        f" {to_text(LEAST_HOURS)} of them needed"
    )
    return [Disqualification("sufficiency.usage.hours", text)]


def _volumes(evidence: Evidence) -> list[Disqualification]:
    """CalTRACK 2.3.5, 2.3.6: negative volumes block; far outliers are looked at, not dropped."""
    volumes = evidence.volumes
    found = []
    if any(volume < 0 for volume in volumes):
        text = "a negative volume: reverse an event by a correction that names it"
        found.append(Disqualification("data.volume.negative", text))
    if len(volumes) >= 4:
        first, middle, third = statistics.quantiles(volumes, n=4, method="inclusive")
        limit = middle + FAR_OUT * (third - first)
        far = sum(volume > limit for volume in volumes)
        if far:
            text = f"{far} volumes above median + {FAR_OUT} x IQR = {to_text(limit)}"
            found.append(Disqualification("data.volume.extreme", text, blocks=False))
    return found


def _rest(evidence: Evidence) -> list[Disqualification]:
    found = []
    if evidence.conflicts:
        text = f"{evidence.conflicts} events came twice with different content"
        found.append(Disqualification("data.usage.conflict", text))
    contract, meter = evidence.zones
    if contract != meter:
        text = f"contract in {contract}, meter in {meter}: one zone cuts the period"
        found.append(Disqualification("data.zone.mismatch", text))
    if evidence.partial_period:
        text = "a part of a period is never scaled up to a whole one"
        found.append(Disqualification("sufficiency.period.partial", text))
    return found


def settle(
    disqualifications: Sequence[Disqualification], overrides: Sequence[Override] = ()
) -> Verdict:
    """Gate and printed lines. An override of a rule that holds is refused: it would hide nothing,
    but it would be printed as if it had been needed."""
    names = {item.name for item in disqualifications}
    by_name = {override.name: override for override in overrides}
    unknown = sorted(set(by_name) - names)
    if unknown:
        raise Refusal("overrides", unknown[0], "a disqualification of this line")
    blocking, printed = [], []
    for item in disqualifications:
        override = by_name.get(item.name)
        line = f"{item.name}: {item.description}"
        if override is not None:
            line += f"; overridden by {override.auditor}: {override.reason}"
        elif item.blocks:
            blocking.append(line)
        printed.append(line)
    return Verdict("; ".join(blocking) or None, tuple(printed))
