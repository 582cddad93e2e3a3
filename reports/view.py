"""How facts read on paper: the words and rounded numbers the report's template lays out.

In: `ReportFacts`. Out: plain JSON of text and of positions between 0 and 1 for the two plots.
Rounding here is for the eye only and never flatters: a lower bound is rounded down. The exact
numbers stay in facts.json. The template computes nothing and this module lays out nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any
from zoneinfo import ZoneInfo

from metering.money import minor_unit
from reports.facts import (
    DisqualificationFacts,
    EnergyFacts,
    MeasurementFacts,
    Party,
    ReportFacts,
    SavingsFacts,
    SufficiencyFacts,
    SweepRow,
)

MILLION = Decimal(1_000_000)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
# More configurations than this are counted, not listed; all of them are in the evidence.
SWEEP_ROWS = 10


def view(facts: ReportFacts) -> dict[str, Any]:
    """Everything the template prints, as JSON."""
    measured = facts.measurement
    return {
        "document": {
            "title": facts.document.title,
            "number": facts.document.number,
            "version": facts.document.version,
            "status": facts.document.status,
            "issued": moment(facts.document.issued_at),
            "invoice": facts.invoice.number,
            "invoice_status": facts.invoice.status,
            "invoice_issued": day(facts.invoice.issued_on),
            "invoice_due": day(facts.invoice.due_on) if facts.invoice.due_on else None,
        },
        "organisation": _party(measured.organisation),
        "auditor": _party(measured.auditor),
        "period": {
            "label": month(facts.period.label),
            "span": f"{_local(facts.period.start, facts.period.zone)} to "
            f"{_local(facts.period.end, facts.period.zone)} (end not included), "
            f"{facts.period.zone}",
        },
        "headline": _headline(facts),
        "system": _system(measured),
        "plan": _plan(measured),
        "traffic": _traffic(measured),
        "baseline": {
            "stack": f"{measured.baseline.stack} {measured.baseline.version}",
            "configuration": measured.baseline.configuration,
            "rate": number(measured.baseline.samples_per_second, 1),
            "frozen": moment(measured.baseline.frozen_at),
            "sweep": _sweep(measured.baseline.sweep),
            "unlisted": max(0, len(measured.baseline.sweep) - SWEEP_ROWS),
            "as_found": _as_found(measured),
        },
        "aa": {
            "passed": measured.aa.passed,
            "reason": measured.aa.reason,
            "interval": interval(measured.aa.lo, measured.aa.hi),
            "pairs": measured.aa.pairs,
            "plot": plot(measured.aa.ratios, measured.aa.lo, measured.aa.hi),
        },
        "uplift": {
            "kept": measured.uplift.kept,
            "reason": measured.uplift.reason,
            "point": percent(measured.uplift.point),
            "interval": interval(measured.uplift.lo, measured.uplift.hi),
            "lower": percent(measured.uplift.lower_95, floor=True),
            "pairs": measured.uplift.pairs,
            "rate": number(measured.uplift.optimised_samples_per_second, 1),
            "plot": plot(measured.uplift.ratios, measured.uplift.lo, measured.uplift.hi),
            "energy": _energy(measured.uplift.energy),
        },
        "accuracy": {
            "passed": measured.accuracy.passed,
            "samples": number(measured.accuracy.samples),
            "min_cosine": measured.accuracy.min_cosine,
            "mean_cosine": measured.accuracy.mean_cosine,
            "max_abs_error": measured.accuracy.max_abs_error,
            "floor": measured.accuracy.floor_cosine,
        },
        "search": _search(measured),
        "usage": _usage(facts),
        "sufficiency": [_sufficiency(item) for item in facts.sufficiency],
        "gated": _gated(facts),
        "savings": _savings(facts.savings),
        "fee": {
            "contract": facts.fee.contract,
            "lines": [
                [line.label, money(line.amount, facts.fee.currency)] for line in facts.fee.lines
            ],
            "net": money(facts.fee.net, facts.fee.currency),
            "tax": money(facts.fee.tax, facts.fee.currency),
            "total": money(facts.fee.total, facts.fee.currency),
        },
        "exports": [
            [item.name, item.format, f"{number(item.size_bytes)} bytes", item.sha256]
            for item in facts.exports
        ],
        "limits": list(facts.limits),
        "digests": [
            ["Evidence, all files", facts.evidence_digest],
            ["Measurement statement", facts.measurement_statement_sha256],
            ["Measurement plan", measured.plan.digest],
            ["Baseline record", measured.baseline.sha256],
            ["Model", measured.mix.model_sha256],
            ["Traffic sample", measured.mix.samples_sha256],
            ["Kernel package", measured.search.package_manifest_sha256],
            ["System fingerprint", measured.system.fingerprint],
        ],
        "method": measured.method_version,
        "short_run": measured.plan.short_run,
    }


def number(text: str, places: int | None = None) -> str:
    """Grouped by thousands; rounded half-even to `places` when given, else as stated."""
    value = Decimal(text)
    if places is not None:
        value = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    return f"{value:,f}".replace("-", "\u2212")


def money(text: str, currency: str, places: int = 6) -> str:
    """An amount with its currency: all its decimals up to `places`, never fewer than the cent's.

    Amounts of an invoice are whole cents and print as stated; savings carry more decimals.
    """
    value = Decimal(text)
    smallest = minor_unit(currency)
    if -int(value.as_tuple().exponent) > places:
        value = value.quantize(Decimal(1).scaleb(-max(places, smallest)), ROUND_HALF_EVEN)
    plain = f"{value:f}"
    if "." in plain:
        whole, decimals = plain.split(".")
        plain = f"{whole}.{decimals.rstrip('0').ljust(smallest, '0')}".rstrip(".")
    return f"{number(plain)} {currency}"


def percent(ratio: str, *, floor: bool = False) -> str:
    """A ratio minus one as signed percent with two places; `floor` rounds towards less."""
    value = (Decimal(ratio) * 100).quantize(
        Decimal("0.01"), ROUND_FLOOR if floor else ROUND_HALF_EVEN
    )
    sign = "+" if value > 0 else ""
    return f"{sign}{value:,f} %".replace("-", "\u2212")


def interval(lo: str, hi: str) -> str:
    return f"{percent(lo)} to {percent(hi)}"


def day(date: str) -> str:
    year, month, number_of_day = date.split("-")
    return f"{int(number_of_day)} {_MONTHS[int(month) - 1]} {year}"


def month(label: str) -> str:
    """`2026-11` as `November 2026`; any other label as it is."""
    match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", label)
    return f"{_MONTHS[int(match[2]) - 1]} {match[1]}" if match else label


def moment(utc: str) -> str:
    """`2 December 2026, 09:30 UTC`"""
    return f"{day(utc[:10])}, {utc[11:16]} UTC"


def plot(ratios: Sequence[str], lo: str, hi: str) -> dict[str, Any]:
    """A dot for each pair, the interval, the no-difference line and ticks, as shares of the width.

    The axis is the ratio minus one in percent and always shows zero, so that a small uplift
    looks small.
    """
    values = [Decimal(ratio) - 1 for ratio in ratios]
    ends = [*values, Decimal(lo), Decimal(hi), Decimal(0)]
    low, high = min(ends), max(ends)
    margin = max((high - low) * Decimal("0.08"), Decimal("0.002"))
    low, high = low - margin, high + margin
    span = high - low

    def at(value: Decimal) -> float:
        return round(float((value - low) / span), 4)

    step = _tick_step(span)
    first = (low / step).to_integral_value(rounding="ROUND_CEILING")
    ticks = []
    value = first * step
    while value <= high:
        # Plus zero, or the tick at the origin reads "-0".
        shown = (value * 100).normalize() + 0
        ticks.append([at(value), f"{shown:f} %".replace("-", "\u2212")])
        value += step
    return {
        "dots": [
            [at(value), round((index + 0.5) / max(len(values), 1), 4)]
            for index, value in enumerate(values)
        ],
        "band": [at(Decimal(lo)), at(Decimal(hi))],
        "zero": at(Decimal(0)),
        "ticks": ticks,
    }


def _tick_step(span: Decimal) -> Decimal:
    """1, 2 or 5 times a power of ten, so that four to eight ticks fit."""
    magnitude = Decimal(1).scaleb((span / 5).adjusted())
    for factor in (1, 2, 5, 10):
        if span / (magnitude * factor) <= 7:
            return magnitude * factor
    return magnitude * 20


def _party(party: Party) -> dict[str, str]:
    return {"name": party.name, "reference": party.reference}


def _local(utc: str, zone: str) -> str:
    local = datetime.fromisoformat(utc).astimezone(ZoneInfo(zone))
    clock = "" if local.strftime("%H:%M:%S") == "00:00:00" else local.strftime(" %H:%M")
    return f"{day(local.date().isoformat())}{clock}"


def _headline(facts: ReportFacts) -> dict[str, Any]:
    measured = facts.measurement
    uplift = measured.uplift
    lower = percent(uplift.lower_95, floor=True)
    if uplift.kept:
        sentence = (
            f"On {measured.system.name}, the optimised kernels worked through "
            f"{number(uplift.optimised_samples_per_second, 0)} samples a second; the fastest "
            f"correct stock stack reached {number(measured.baseline.samples_per_second, 0)}. "
            f"With 95 % confidence the gain is at least {lower}. {_billed(facts)}"
        )
    else:
        sentence = (
            f"On {measured.system.name} no gain is claimed: {uplift.reason}. Nothing is billed "
            "for this measurement."
        )
    return {
        "sentence": sentence,
        "uplift": lower if uplift.kept else "none",
        "uplift_note": f"best estimate {percent(uplift.point)}, {uplift.pairs} pairs",
        "savings": money(facts.savings.billable, facts.savings.currency, 2),
        "savings_note": f"for {number(facts.savings.volume_samples)} samples",
        "fee": money(facts.fee.total, facts.fee.currency),
        "fee_note": f"{money(facts.fee.net, facts.fee.currency)} before tax",
    }


def _gated(facts: ReportFacts) -> bool:
    return any(item.gate is not None for item in facts.sufficiency)


def _billed(facts: ReportFacts) -> str:
    if _gated(facts):
        return "It is not billed: the evidence behind it is not sufficient."
    return "Only that bound is billed."


def _system(measured: MeasurementFacts) -> list[list[str]]:
    system, mix = measured.system, measured.mix
    memory = (Decimal(system.memory_bytes) / (1 << 30)).quantize(Decimal("0.1"))
    return [
        ["System", system.name],
        ["Processor", f"{system.processor}, {system.cores} cores"],
        ["Memory", f"{memory:f} GiB"],
        ["Accelerators", ", ".join(system.accelerators) or "none"],
        ["Model", mix.model],
        ["Unit of work", f"one sentence (sample); {number(mix.samples)} distinct ones measured"],
    ]


def _plan(measured: MeasurementFacts) -> list[list[str]]:
    plan = measured.plan
    return [
        ["Plan", f"{plan.plan_id}, option {plan.option}"],
        ["Scenario", f"MLPerf LoadGen {plan.scenario}, {plan.precision} in both arms"],
        ["Run", f"{number(plan.run_seconds)} s each, both arms on the same {plan.cores} cores"],
        ["Pairs", f"{plan.pairs} for the uplift, {plan.aa_pairs} for the A/A gate"],
        ["Smallest claim", percent(plan.minimum_effect)],
        ["Measured", moment(measured.measured_at)],
    ]


def _traffic(measured: MeasurementFacts) -> list[list[Any]]:
    bars = measured.mix.traffic
    most = max((int(bar.samples) for bar in bars), default=0) or 1
    return [[bar.tokens, bar.samples, round(int(bar.samples) / most, 4)] for bar in bars]


def _energy(found: EnergyFacts | None) -> str:
    """One sentence about the energy of both arms; empty in reports from before it was printed."""
    if found is None:
        return ""
    if found.reason is not None:
        return f"Energy: not measured ({found.reason})."
    optimised, baseline = (
        number(str(joules))
        for joules in (found.optimised_j_per_sample, found.baseline_j_per_sample)
    )
    return (
        f"Energy: {optimised} J a sample, baseline {baseline} J: baseline over optimised "
        f"{percent(str(found.point))}, 95 % interval {interval(str(found.lo), str(found.hi))}; "
        f"read from {found.source}, off by up to {percent(str(found.uncertainty))[1:]}. "
        "No fee rests on it."
    )


def _as_found(measured: MeasurementFacts) -> str:
    """One sentence that sets what was found beside the best stock stack."""
    found = measured.baseline.as_found
    if found is None:
        return "As found: not stated by the customer."
    what = f"{found.stack} {found.version}, {found.configuration}"
    if found.samples_per_second is None:
        return f"As found: {what}: no rate ({found.state})."
    return f"As found: {what}: {number(found.samples_per_second, 1)} samples/s."


def _sweep(rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    def rate(row: SweepRow) -> Decimal:
        return Decimal(row.samples_per_second or 0)

    best = max((rate(row) for row in rows), default=Decimal(0))
    fastest = sorted(rows, key=lambda row: (row.chosen, rate(row)), reverse=True)
    return [
        {
            "stack": f"{row.stack} {row.version}",
            "configuration": row.configuration,
            "rate": number(row.samples_per_second, 1) if row.samples_per_second else "none",
            "share": round(float(rate(row) / best), 4) if best else 0,
            "state": row.state,
            "chosen": row.chosen,
        }
        for row in fastest[:SWEEP_ROWS]
    ]


def _search(measured: MeasurementFacts) -> dict[str, Any]:
    search = measured.search
    return {
        "trials": number(search.trials),
        "accepted": number(search.accepted),
        "rejected": [[item.reason, number(item.trials)] for item in search.rejected],
        "minutes": number(str(Decimal(search.seconds) / 60), 1),
        "cost": money(search.cost, search.currency),
    }


def _usage(facts: ReportFacts) -> dict[str, Any]:
    usage = facts.usage
    return {
        "rows": [[row.model, row.system, number(row.samples)] for row in usage.rows],
        "total": number(usage.samples),
        "events": [
            ["accepted", number(usage.accepted)],
            ["duplicates, not counted twice", number(usage.duplicates)],
            ["conflicts, parked", number(usage.conflicts)],
            ["late, corrected in a later line", number(usage.late)],
            ["early, kept for their period", number(usage.early)],
            ["rejected with a reason", number(usage.rejected)],
        ],
    }


def _sufficiency(item: SufficiencyFacts) -> dict[str, Any]:
    hours = f"{number(item.metered_hours)} of {number(item.period_hours)}"
    return {
        "line": f"{item.model} on {item.system}",
        "evidence": f"{_counted(item.baseline_runs, 'valid baseline run')} of "
        f"{_counted(item.baseline_days, 'day')}; {hours} hours of the period metered; "
        f"{_counted(item.conflicts, 'undecided conflict')}",
        "rules": [
            {
                "name": rule.name,
                "description": rule.description,
                "state": _rule_state(rule),
                "override": None
                if rule.override is None
                else f"{rule.override.auditor}: {rule.override.reason}",
            }
            for rule in item.disqualifications
        ],
        "gated": item.gate is not None,
    }


def _counted(count: str, what: str) -> str:
    return f"{number(count)} {what}" if count == "1" else f"{number(count)} {what}s"


def _rule_state(rule: DisqualificationFacts) -> str:
    if rule.override is not None:
        return "overridden"
    return "blocks" if rule.blocks else "flagged"


def _savings(savings: SavingsFacts) -> dict[str, Any]:
    per_million = Decimal(savings.baseline_cost_per_sample) * MILLION
    currency = savings.currency
    return {
        "inputs": [
            ["Accepted volume", f"{number(savings.volume_samples)} samples"],
            ["Price of a core hour", money(savings.price_per_core_hour, currency)],
            ["Cores", savings.cores],
            ["Baseline rate", f"{number(savings.baseline_samples_per_second)} samples/s"],
            ["Baseline cost", f"{number(str(per_million), 6)} {currency} per million samples"],
        ],
        "volume": number(savings.volume_samples),
        "unit_cost": number(str(per_million), 6),
        "currency": currency,
        "lower": number(savings.uplift_lower_95),
        "counterfactual": money(savings.counterfactual, currency),
        "point": money(savings.point, currency),
        "bound": money(savings.bound, currency),
        "billable": money(savings.billable, currency),
        "point_uplift": percent(savings.uplift_point),
        "lower_uplift": percent(savings.uplift_lower_95, floor=True),
        "reason": savings.reason,
    }
