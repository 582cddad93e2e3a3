"""Sufficiency worked out again, from the evidence alone: runs by their logs, hours by their events.

In: an evidence folder, what is stored about sufficiency, how much of the period the usage covers.
Out: the same examination made anew, or an error that names the first difference. Of what is stored
only the auditor's overrides are taken over, and only where they speak for the contract's auditor
and a rule needs them. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from metering.baseline import Baseline, load
from metering.baseline.comparability import key_of
from metering.baseline.registry import measured
from metering.contract import Contract
from metering.decimals import to_text
from metering.loadgen.days import run_days
from metering.loadgen.verdict import DETAIL
from metering.plan import MeasurementPlan
from metering.savings import Disqualification, Override, Sufficiency, evidence_of
from metering.uplift.pairs import RUNS
from metering.usage import Coverage
from reports.canonical import sha256_file
from reports.errors import ReportError
from reports.facts import DisqualificationFacts, OverrideFacts, SufficiencyFacts

# Re-measured baselines whose runs count: a folder each, with plan, system, mix and baseline.
REMEASURED = "remeasured"


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
    again = _remeasured(evidence, baseline, contract, plan)
    found = {
        (cover.model, cover.system): evidence_of(
            cover,
            [*days, *(day for each in again.values() for day in each)],
            contract=contract,
            meter_zone=plan.zone,
            remeasured=list(again),
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
            name = next(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
            raise ReportError(
                f"{where}: {name}: stated {theirs.get(name)!s:.200}, the evidence gives"
                f" {ours.get(name)!s:.200}"
            )
        for override in item.overrides:
            if not override.is_by(contract.auditor):
                raise ReportError(
                    f"{where}: {override.name} is overridden by {override.auditor}, who does not"
                    f" speak for the contract's auditor {contract.auditor}"
                )
    return tuple(replace(item, evidence=found[item.model, item.system]) for item in stated)


def _remeasured(
    evidence: Path, baseline: Baseline, contract: Contract, plan: MeasurementPlan
) -> dict[str, tuple[date, ...]]:
    """Days of the runs of each re-measured baseline of the folder, by its digest.

    Each is worked out from its own runs, was measured under this plan on what the first one was
    measured on, and counts no run that counts already.
    """
    root = evidence / REMEASURED
    folders = sorted(root.iterdir()) if root.is_dir() else []
    logs = [evidence / "baseline" / RUNS / run_id / DETAIL for run_id in baseline.runs]
    found = {}
    for folder in folders:
        entry = measured(folder)
        key_of(evidence).require(entry.key)
        if entry.plan_digest != plan.digest:
            raise ReportError(f"{REMEASURED}/{folder.name}: measured under another plan")
        runs = load(folder / "baseline").runs
        logs += [folder / "baseline" / RUNS / run_id / DETAIL for run_id in runs]
        found[entry.baseline_sha256] = run_days(folder / "baseline" / RUNS, runs, contract.zone)
    if len({sha256_file(log) for log in logs}) != len(logs):
        raise ReportError(f"{REMEASURED}: a run of the baseline is counted twice")
    return found


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
