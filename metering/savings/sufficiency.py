"""Sufficiency: whether there is enough evidence to bill on, rule by rule.

In: what was measured and metered, and the method that was signed. Out: disqualifications (nothing
bills), flags (a person looks), the auditor's named overrides, all of it as one frozen record.
Never here: a rule that is switched off in silence: an override names the auditor and the reason,
and is printed. Missing is not zero, and a host that stopped reporting saved nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from metering.contract import Contract
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields
from metering.refusal import Refusal
from metering.usage import Coverage

__all__ = [
    "Disqualification",
    "Evidence",
    "Override",
    "Sufficiency",
    "Verdict",
    "demands_sufficiency",
    "evidence_of",
    "examine",
    "settle",
]

LEAST_RUNS = 5
LEAST_DAYS = 3
LEAST_HOURS = Decimal("0.90")
FAR_OUT = 3
# What was signed before the rules were part of the method is judged without them.
_WITHOUT = frozenset({"ignition-method-1", "ignition-method-2"})


@dataclass(frozen=True)
class Evidence:
    """What stands behind one model on one system in one period.

    `run_days`: the day of each valid baseline run. `metered_hours` of `period_hours` have usage
    or a reported zero. `volumes` per hour or day, as metered. `zones`: contract and meter.
    `remeasured`: digests of the registry's re-measured baselines whose runs are among those days.
    """

    run_days: tuple[date, ...]
    period_hours: Decimal
    metered_hours: Decimal
    volumes: tuple[Decimal, ...] = ()
    conflicts: int = 0
    zones: tuple[str, str] = ("", "")
    partial_period: bool = False
    remeasured: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """JSON object, ready for `canonical.dumps`."""
        return {
            "run_days": [day.isoformat() for day in self.run_days],
            "period_hours": to_text(self.period_hours),
            "metered_hours": to_text(self.metered_hours),
            "volumes": [to_text(volume) for volume in self.volumes],
            "conflicts": self.conflicts,
            "zones": list(self.zones),
            "partial_period": self.partial_period,
            # Written only where there are any.
            **({"remeasured": list(self.remeasured)} if self.remeasured else {}),
        }

    @classmethod
    def from_json(cls, value: object) -> Evidence:
        """Inverse of `to_json`."""
        fields = Fields(value, "evidence")
        zones = fields.texts("zones")
        if len(zones) != 2:
            raise Refusal("evidence.zones", list(zones), "two: the contract's and the meter's")
        evidence = cls(
            run_days=tuple(
                Fields({"day": day}, "evidence.run_days").day("day")
                for day in fields.texts("run_days")
            ),
            period_hours=fields.decimal("period_hours"),
            metered_hours=fields.decimal("metered_hours"),
            volumes=tuple(
                parse_decimal(volume, "evidence.volumes") for volume in fields.texts("volumes")
            ),
            conflicts=fields.integer("conflicts"),
            zones=(zones[0], zones[1]),
            partial_period=fields.boolean("partial_period"),
            remeasured=fields.texts("remeasured") if fields.has("remeasured") else (),
        )
        fields.finish()
        return evidence


@dataclass(frozen=True)
class Disqualification:
    """One rule that does not hold. `blocks`: nothing bills until it is overridden by name."""

    name: str
    description: str
    blocks: bool = True

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {"name": self.name, "description": self.description, "blocks": self.blocks}


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

    @classmethod
    def by(cls, person: str, contract: Contract, *, name: str, reason: str) -> Override:
        """An override that `person` states for the auditor the contract names."""
        return cls(name, f"{person}, {contract.auditor}", reason)

    def is_by(self, auditor: str) -> bool:
        """Whether the one who stated it speaks for `auditor`."""
        return self.auditor.endswith(f", {auditor}")

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {"name": self.name, "auditor": self.auditor, "reason": self.reason}

    @classmethod
    def from_json(cls, value: object, where: str = "override") -> Override:
        """Inverse of `to_json`."""
        fields = Fields(value, where)
        override = cls(*(fields.text(name) for name in ("name", "auditor", "reason")))
        fields.finish()
        return override


@dataclass(frozen=True)
class Verdict:
    """`gate` is why nothing bills, or None. `printed` is what a report says either way.

    `noted` are those lines of `printed` that do not block: overridden ones and flags.
    """

    gate: str | None
    printed: tuple[str, ...]
    noted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sufficiency:
    """One model on one system in one period, examined: the evidence and the auditor's overrides.

    Everything else follows from these two, so a reader who counts the evidence again comes to
    the same gate. An override of a rule that holds is refused, and so is a rule named twice.
    """

    model: str
    system: str
    evidence: Evidence
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        names = [override.name for override in self.overrides]
        if len(names) != len(set(names)):
            raise Refusal("overrides", ", ".join(names), "each rule once")
        settle(self.disqualifications, self.overrides)

    @property
    def disqualifications(self) -> tuple[Disqualification, ...]:
        """Every rule that does not hold, blocking ones first."""
        return examine(self.evidence)

    @property
    def verdict(self) -> Verdict:
        """Gate and printed lines."""
        return settle(self.disqualifications, self.overrides)

    def to_json(self) -> dict[str, object]:
        """JSON object, ready for `canonical.dumps`."""
        return {
            "model": self.model,
            "system": self.system,
            "evidence": self.evidence.to_json(),
            "disqualifications": [item.to_json() for item in self.disqualifications],
            "overrides": [override.to_json() for override in self.overrides],
            "gate": self.verdict.gate,
        }

    @classmethod
    def from_json(cls, value: object) -> Sufficiency:
        """Inverse of `to_json`; refuses rules or a gate that the evidence does not lead to."""
        fields = Fields(value, "sufficiency")
        found = cls(
            model=fields.text("model"),
            system=fields.text("system"),
            evidence=Evidence.from_json(fields.any("evidence")),
            overrides=tuple(Override.from_json(item) for item in fields.items("overrides")),
        )
        stated = {name: fields.any(name) for name in ("disqualifications", "gate")}
        fields.finish()
        led_to = found.to_json()
        for name, given in stated.items():
            if given != led_to[name]:
                raise Refusal(f"sufficiency.{name}", given, f"{led_to[name]}, from its evidence")
        return found


def demands_sufficiency(method_version: str) -> bool:
    """Whether the method both sides signed lets these rules decide: all but the first two."""
    return method_version not in _WITHOUT


def evidence_of(
    coverage: Coverage,
    run_days: Sequence[date],
    *,
    contract: Contract,
    meter_zone: str,
    remeasured: Sequence[str] = (),
) -> Evidence:
    """What stands behind the model and system that `coverage` is of, in its period.

    `run_days` as `loadgen.days` gives them; volumes are those of the local days with usage. A
    period that began before the contract did is a part of one.
    """
    return Evidence(
        run_days=tuple(sorted(run_days)),
        period_hours=coverage.period.hours,
        metered_hours=coverage.hours,
        volumes=tuple(Decimal(samples) for samples in coverage.by_day.values()),
        conflicts=coverage.conflicts,
        zones=(contract.zone, meter_zone),
        partial_period=contract.valid_from > coverage.period.start,
        remeasured=tuple(sorted(remeasured)),
    )


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
        text = f"{_count(runs, 'valid baseline run')}, {LEAST_RUNS} needed"
        found.append(Disqualification("sufficiency.baseline.runs", text))
    if days < LEAST_DAYS:
        text = f"baseline runs of {_count(days, 'day')}, {LEAST_DAYS} needed"
        found.append(Disqualification("sufficiency.baseline.days", text))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


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
            text = f"{_count(far, 'volume')} above median + {FAR_OUT} x IQR = {to_text(limit)}"
            found.append(Disqualification("data.volume.extreme", text, blocks=False))
    return found


def _rest(evidence: Evidence) -> list[Disqualification]:
    found = []
    if evidence.conflicts:
        text = f"{_count(evidence.conflicts, 'event')} came twice with different content"
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
    blocking: list[str] = []
    printed: list[str] = []
    noted: list[str] = []
    for item in disqualifications:
        override = by_name.get(item.name)
        line = f"{item.name}: {item.description}"
        if override is not None:
            line += f"; overridden by {override.auditor}: {override.reason}"
        blocks = item.blocks and override is None
        (blocking if blocks else noted).append(line)
        printed.append(line)
    return Verdict("; ".join(blocking) or None, tuple(printed), tuple(noted))
