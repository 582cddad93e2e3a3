"""Sufficiency worked out again, from the evidence alone: runs by their logs, hours by their events.

In: an evidence folder, what is stored about sufficiency, how much of the period the usage covers.
Out: the same examination made anew, or an error that names the first difference. Of what is stored
only the auditor's overrides are taken over, and only where they speak for the contract's auditor
and a rule needs them. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from metering.baseline import Baseline
from metering.contract import Contract
from metering.decimals import to_text
from metering.loadgen.days import run_days
from metering.plan import MeasurementPlan
from metering.savings import Disqualification, Override, Sufficiency, evidence_of
from metering.uplift.pairs import RUNS
from metering.usage import Coverage
from reports.errors import ReportError
from reports.facts import DisqualificationFacts, OverrideFacts, SufficiencyFacts


def examined_again(
    evidence: Path,
    stored: Sequence[object],
    coverages: Sequence[Coverage],
    *,
    baseline: Baseline,
    contract: Contract,
    plan: MeasurementPlan,
) -> tuple[Sufficiency, ...]:
    """The examination of each covered line, held to what is `stored`; `baseline` was recomputed."""
    days = run_days(evidence / "baseline" / RUNS, baseline.runs, contract.zone)
    found = {
        (cover.model, cover.system): evidence_of(
            cover, days, contract=contract, meter_zone=plan.zone
        )
        for cover in coverages
    }
    stated = tuple(Sufficiency.from_json(item) for item in stored)
    named = [(item.model, item.system) for item in stated]
    if sorted(named) != sorted(found):
        raise ReportError(f"sufficiency: stated for {named}, the savings have {sorted(found)}")
    for item in stated:
        where = f"sufficiency of {item.model} on {item.system}"
        led_to = found[item.model, item.system]
        if item.evidence != led_to:
            theirs, ours = item.evidence.to_json(), led_to.to_json()
            name = next(name for name in ours if ours[name] != theirs[name])
            raise ReportError(
                f"{where}: {name}: stated {theirs[name]!s:.200}, the evidence gives"
                f" {ours[name]!s:.200}"
            )
        for override in item.overrides:
            if not override.is_by(contract.auditor):
                raise ReportError(
                    f"{where}: {override.name} is overridden by {override.auditor}, who does not"
                    f" speak for the contract's auditor {contract.auditor}"
                )
    return tuple(replace(item, evidence=found[item.model, item.system]) for item in stated)


def require_printed(examined: Sequence[Sufficiency], notes: Sequence[str]) -> None:
    """ReportError unless the invoice prints every rule that did not hold and did not block."""
    for item in examined:
        for line in item.verdict.noted:
            if line not in notes:
                raise ReportError(f"invoice notes: {line!r:.200} is not among them")


def sufficiency_facts(examined: Sequence[Sufficiency]) -> tuple[SufficiencyFacts, ...]:
    """What a report prints of each examination."""
    return tuple(_facts(item) for item in examined)


def _facts(item: Sufficiency) -> SufficiencyFacts:
    evidence = item.evidence
    by_name = {override.name: override for override in item.overrides}
    return SufficiencyFacts(
        model=item.model,
        system=item.system,
        baseline_runs=str(len(evidence.run_days)),
        baseline_days=str(len(set(evidence.run_days))),
        metered_hours=to_text(evidence.metered_hours),
        period_hours=to_text(evidence.period_hours),
        conflicts=str(evidence.conflicts),
        disqualifications=tuple(
            _disqualification(rule, by_name.get(rule.name)) for rule in item.disqualifications
        ),
        gate=item.verdict.gate,
    )


def _disqualification(rule: Disqualification, override: Override | None) -> DisqualificationFacts:
    said = None
    if override is not None:
        said = OverrideFacts(auditor=override.auditor, reason=override.reason)
    return DisqualificationFacts(
        name=rule.name, description=rule.description, blocks=rule.blocks, override=said
    )
