"""Facts to verified savings: what a period's usage saved at the costs in force, line by line.

In: a case and one of its periods.
Out: `VerifiedSavings` as `fee` takes them, with the joint standard error; what never billed.
Never here: proration by days (a reset inside a period splits its volume by date of use into
segments, each at its own baseline); usage that vanishes.

    savings of a segment = units x (effective baseline cost - optimised cost)
    counterfactual       = units x effective baseline cost
    standard error       = units x sqrt(se(baseline)^2 + se(optimised)^2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from metering.cases.case import Case
from metering.cases.facts import Stated, UnitCost, Usage
from metering.contract import (
    BaselinePolicy,
    Contract,
    VerifiedLine,
    VerifiedSavings,
    effective_baselines,
    in_force,
)
from metering.decimals import exact
from metering.fields import instant_text
from metering.money import carried
from metering.plan import Period
from metering.refusal import Refusal
from metering.savings import (
    Estimate,
    Evidence,
    Verdict,
    adjusted,
    bounds,
    combine_standard_errors,
    examine,
    joint_standard_error,
    settle,
    unit_cost_savings,
)

__all__ = [
    "BaselineInForce",
    "Unbilled",
    "baseline_history",
    "contract_of",
    "sufficiency",
    "unbilled",
    "verify",
]


@dataclass(frozen=True)
class BaselineInForce:
    """One measured baseline and the cost that counts from its date under the contract's policy.

    `source` is the measurement whose error the effective cost carries.
    """

    measured: UnitCost
    effective: Decimal
    source: UnitCost


@dataclass(frozen=True)
class Unbilled:
    """Usage that bills in no period of the case, and why."""

    usage: Usage
    reason: str


def contract_of(case: Case, period: Period) -> Contract:
    """The version in force at the period's start, or the first to start inside it."""
    started = [contract for contract in case.contracts if contract.valid_from <= period.start]
    first = min(contract.valid_from for contract in case.contracts)
    return in_force(case.contracts, period.start if started else first)


def baseline_history(
    costs: Sequence[UnitCost], policy: BaselinePolicy, model: str, system: str
) -> list[BaselineInForce]:
    """Every baseline of a model on a system, oldest first, with its effective cost."""
    measured = _costs(costs, "baseline", model, system)
    if not measured:
        return []
    history: list[BaselineInForce] = []
    for cost, effective in zip(
        measured, effective_baselines(policy, [cost.cost for cost in measured]), strict=True
    ):
        kept = bool(history) and history[-1].effective == effective
        history.append(BaselineInForce(cost, effective, history[-1].source if kept else cost))
    return history


def verify(
    case: Case, period: Period, stated: Sequence[Stated] | None = None
) -> tuple[VerifiedSavings, Decimal]:
    """Verified savings of a period and the standard error of their sum.

    `stated` replaces what the case says about the period: the lines an audit found.
    """
    if stated is None:
        rows = [row for row in case.savings if row.period == period.label]
        rows += _computed(case, period)
    else:
        rows = list(stated)
    gates = _gates(case, period)
    unknown = sorted(set(gates) - {(row.model, row.system) for row in rows})
    if unknown and stated is None:
        raise Refusal(
            "case.gates", " on ".join(unknown[0]), f"a model with savings in {period.label}"
        )
    estimates = [row.estimate for row in rows]
    counted = [
        estimate
        for row, estimate in zip(rows, estimates, strict=True)
        if (row.model, row.system) not in gates
    ]
    lines = tuple(
        VerifiedLine(
            model=row.model,
            system=row.system,
            point=row.estimate.point,
            bound=bound,
            counterfactual=row.counterfactual,
            gate=gates.get((row.model, row.system)),
            segment=row.segment,
            baseline_id=row.estimate.baseline_id,
            uplift_id=row.uplift_id,
            volume=row.volume,
            corrects=row.corrects,
        )
        for row, bound in zip(rows, _bounds(rows, gates, case.uncertainty), strict=True)
    )
    if stated is None:
        lines = tuple(adjusted(lines, case.adjustments, period.label))
    currency = case.contracts[0].currency
    savings = VerifiedSavings(period, currency, lines, evidence_digest=case.digest)
    return savings, joint_standard_error(counted)


def sufficiency(case: Case, period: Period) -> dict[tuple[str, str], Verdict]:
    """Whether the evidence behind each model and system is enough, rule by rule."""
    return {
        (row.model, row.system): settle(
            examine(
                Evidence(
                    run_days=row.run_days,
                    period_hours=period.hours,
                    metered_hours=row.metered_hours,
                    volumes=row.volumes,
                    conflicts=row.conflicts,
                    zones=(period.zone, row.zone),
                )
            ),
            row.overrides,
        )
        for row in case.evidence
        if row.period == period.label
    }


def _gates(case: Case, period: Period) -> dict[tuple[str, str], str]:
    """Stated gates, and those that evidence leads to."""
    gates = {
        key: verdict.gate
        for key, verdict in sufficiency(case, period).items()
        if verdict.gate is not None
    }
    named = [gate for gate in case.gates if gate.period == period.label]
    return gates | {(gate.model, gate.system): gate.reason for gate in named}


def _bounds(
    rows: Sequence[Stated], gates: dict[tuple[str, str], str], uncertainty: str
) -> list[Decimal]:
    """A gated line bills nothing, so it takes no part in the joint margin either."""
    free = [index for index, row in enumerate(rows) if (row.model, row.system) not in gates]
    found = [row.estimate.own_bound for row in rows]
    joint = bounds([rows[index].estimate for index in free], uncertainty)
    for index, bound in zip(free, joint, strict=True):
        found[index] = bound
    return found


def unbilled(case: Case) -> list[Unbilled]:
    """Usage outside every period, and usage that came after the last cutoff."""
    found = []
    for usage in case.usage:
        if _occurred(case, usage) is None:
            found.append(Unbilled(usage, "outside the periods of the case"))
        elif _billed(case, usage) is None:
            found.append(Unbilled(usage, "received after the cutoff of the last period"))
        elif usage.at < min(contract.valid_from for contract in case.contracts):
            found.append(Unbilled(usage, "before the contract's start"))
    return found


def _occurred(case: Case, usage: Usage) -> Period | None:
    return next((period for period in case.periods if period.contains(usage.at)), None)


def _billed(case: Case, usage: Usage) -> Period | None:
    """The period usage bills in: its own, or after its cutoff the next one still open."""
    own = _occurred(case, usage)
    if own is None or case.cutoff_days is None or usage.received is None:
        return own
    grace = timedelta(days=case.cutoff_days)
    later = [period for period in case.periods if period.start >= own.start]
    return next((period for period in later if usage.received < period.end + grace), None)


def _computed(case: Case, period: Period) -> list[Stated]:
    """One line per model, system, baseline, optimised cost and month of use."""
    terms = contract_of(case, period)
    start = min(contract.valid_from for contract in case.contracts)
    sums: dict[tuple[str, str, int, int, str], Decimal] = {}
    for usage in case.usage:
        own = _occurred(case, usage)
        if own is None or _billed(case, usage) != period or usage.at < start:
            continue
        history = baseline_history(case.costs, terms.baseline_policy, usage.model, usage.system)
        optimised = _costs(case.costs, "optimised", usage.model, usage.system)
        key = (
            usage.model, usage.system,
            _latest([item.measured for item in history], usage, "baseline"),
            _latest(optimised, usage, "optimised"),
            "" if own == period else own.label,
        )  # fmt: skip
        with exact():
            sums[key] = sums.get(key, Decimal(0)) + usage.units
    lines = []
    for key, units in sorted(sums.items()):
        others = [other for other in sums if other[:2] == key[:2] and other[4] == key[4]]
        lines.append(_line(case, period, terms, key, units, split=len(others) > 1))
    return lines


def _line(
    case: Case,
    period: Period,
    terms: Contract,
    key: tuple[str, str, int, int, str],
    units: Decimal,
    *,
    split: bool,
) -> Stated:
    model, system, at_baseline, at_optimised, late = key
    baseline = baseline_history(case.costs, terms.baseline_policy, model, system)[at_baseline]
    optimised = _costs(case.costs, "optimised", model, system)[at_optimised]
    since = instant_text(max(baseline.measured.since, optimised.since))
    dfs = [cost.df for cost in (baseline.source, optimised) if cost.df is not None]
    errors = [
        cost.standard_error
        for cost in (baseline.source, optimised)
        if cost.standard_error is not None
    ]
    with exact():
        error = combine_standard_errors(errors, shared_baseline=False) if errors else None
        error = None if error is None else carried(error * units)
        counterfactual = units * baseline.effective
    whole = units == units.to_integral_value()
    source = baseline.source
    parts = (f"since {since}" if split else "", f"late from {late}" if late else "")
    estimate = Estimate(
        point=unit_cost_savings(units, baseline.effective, optimised.cost),
        standard_error=error,
        df=min(dfs) if dfs else None,
        baseline_id=source.measurement_id or f"{model} on {system}, {instant_text(source.since)}",
    )
    return Stated(
        period=period.label,
        model=model,
        system=system,
        estimate=estimate,
        segment=", ".join(part for part in parts if part),
        counterfactual=counterfactual,
        uplift_id=optimised.measurement_id,
        volume=int(units) if whole else None,
        corrects=late,
    )


def _costs(costs: Sequence[UnitCost], of: str, model: str, system: str) -> list[UnitCost]:
    found = [cost for cost in costs if (cost.of, cost.model, cost.system) == (of, model, system)]
    return sorted(found, key=lambda cost: cost.since)


def _latest(costs: Sequence[UnitCost], usage: Usage, of: str) -> int:
    """Position of the cost in force when the usage occurred."""
    index = sum(cost.since <= usage.at for cost in costs) - 1
    if index < 0:
        raise Refusal(
            "case.costs", f"no {of} of {usage.model} on {usage.system}",
            f"one since {instant_text(usage.at)} or before", "usage without a cost never bills",
        )  # fmt: skip
    return index
