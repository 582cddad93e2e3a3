"""The figures of a report worked out again, from the evidence alone.

In: an evidence folder and the facts someone states about it. Out: what the logs, the usage events
and the contract really give, or an error that names the first figure that differs. Uplift comes
from LoadGen's logs, volume from the usage events, money from the contract, to the cent. Nothing
stated is used where it can be recomputed, and nothing here writes.

The folder's part about money, written by `savings_document` and its neighbours:
`contract.json`, `pricebook.json`, `usage/<YYYY-MM>/{events.jsonl,totals.json}` (and
`inputs.json`: `not_before`, `cutoff`, `known`, when the totals were cut with them; and
`decisions.json`: which content counts under a key that came with several, when people decided),
`savings/<YYYY-MM>.json`, `invoice/<number>.json`. Whether a method lets sufficiency decide is in
the signed plan: under the first two `savings/` holds the first schema, after them the second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from metering.contract import Contract, FeeBreakdown, LedgerState, fee
from metering.evidence import Recomputed, recompute
from metering.ledger import Invoice, build_invoice
from metering.money import minor_unit
from metering.plan import MeasurementPlan, PriceBook
from metering.savings import (
    SavingsLine,
    Sufficiency,
    demands_sufficiency,
    savings_line,
    verified_savings,
)
from metering.uplift.accuracy import Accuracy
from metering.uplift.pairs import PairedRuns, load_paired
from metering.usage import Coverage, UsageTotals, metered, read_decisions, read_events
from reports.canonical import canonical_json, sha256_file, strict_json
from reports.energy import require_stated
from reports.errors import ReportError
from reports.facts import MeasurementFacts, ReportFacts
from reports.sufficiency import examined_again, require_printed, sufficiency_facts

SAVINGS_SCHEMA = "ignition.savings-period.v1"
EXAMINED_SCHEMA = "ignition.savings-period.v2"
# Stated ratios and rates may be shortened for print; a millionth is far below any claim.
RATIO_TOLERANCE = Decimal("0.000001")
# A rate that is only shown, never multiplied with.
PRINT_TOLERANCE = Decimal("0.001")
# What measured uplifts are written with: nine places, bounds rounded down.
UPLIFT_TOLERANCE = Decimal("0.000000002")

# A search's price is stated rounded; it may never be stated higher than its ledger.
HALF_A_CENT = Decimal("0.005")


@dataclass(frozen=True)
class MeasuredAgain:
    """The recomputed measurement, with the sentence a check prints."""

    recomputed: Recomputed
    detail: str


def savings_document(
    lines: Sequence[SavingsLine],
    state_before: LedgerState,
    breakdown: FeeBreakdown,
    sufficiency: Sequence[Sufficiency] = (),
) -> bytes:
    """Bytes of `evidence/savings/<YYYY-MM>.json`: what `fee` was given and what it answered.

    `sufficiency` holds what was examined, for each line; nothing under a method without the rules.
    """
    document: dict[str, object] = {
        "breakdown": breakdown.to_json(),
        "lines": [line.to_json() for line in lines],
        "schema": SAVINGS_SCHEMA,
        "state_before": state_before.to_json(),
    }
    if sufficiency:
        document["schema"] = EXAMINED_SCHEMA
        document["sufficiency"] = [item.to_json() for item in sufficiency]
    return canonical_json(document)


def recount_measurement(evidence: Path, facts: MeasurementFacts) -> MeasuredAgain:
    """Baseline, A/A, uplift and accuracy from the logs; raises ReportError where facts differ."""
    found = recompute(evidence)
    plan = _plan(evidence)
    _same("plan digest", facts.plan.digest, plan.digest)
    _same("plan", facts.plan.plan_id, plan.plan_id)
    _same("short_run", facts.plan.short_run, plan.short_run)
    _same("method version", facts.method_version, plan.method_version)
    _same("pairs", facts.uplift.pairs, str(found.pairs))
    _same("model", facts.mix.model_sha256, found.baseline.model_sha256)
    _same("traffic sample", facts.mix.samples_sha256, found.baseline.samples_sha256)
    _same("baseline stack", facts.baseline.stack, found.baseline.stack)
    _same("baseline version", facts.baseline.version, found.baseline.version)
    _same(
        "baseline record", facts.baseline.sha256, sha256_file(evidence / "baseline/baseline.json")
    )
    rate = found.baseline_samples_per_second
    _close("baseline samples/s", facts.baseline.samples_per_second, rate, RATIO_TOLERANCE * rate)
    _as_found(facts, found)
    _same("A/A gate", facts.aa.passed, found.aa.passed)
    for name in ("lo", "hi"):
        _close(f"A/A {name}", getattr(facts.aa, name), Decimal(getattr(found.aa, name)))
    _same("uplift kept", facts.uplift.kept, found.decision.kept)
    if found.uplift is not None:
        for name in ("point", "lo", "hi", "lower_95"):
            stated = getattr(facts.uplift, name)
            _close(f"uplift {name}", stated, Decimal(getattr(found.uplift, name)))
        fast = rate * (1 + Decimal(found.uplift.point))
        stated = facts.uplift.optimised_samples_per_second
        _close("optimised samples/s", stated, fast, PRINT_TOLERANCE * fast)
    require_stated(facts.uplift.energy, found.energy)
    _accuracy(facts, found)
    runs = load_paired(evidence / "uplift")
    _baseline_first(runs, found, facts)
    _ratios("A/A", load_paired(evidence / "aa"), facts.aa.ratios)
    _ratios("uplift", runs, facts.uplift.ratios)
    _package(evidence, runs, facts)
    _subject_of_it_all(evidence, facts)
    uplift = "none" if found.uplift is None else f"{found.uplift.lower_95:.6f}"
    return MeasuredAgain(
        found,
        f"baseline {rate} samples/s, uplift lower bound {uplift}, "
        f"{'kept' if found.decision.kept else 'not kept'}, from {found.pairs} pairs of logs",
    )


def recount_money(evidence: Path, facts: ReportFacts, measured: MeasuredAgain) -> str:
    """Volume, savings, fee and invoice, to the cent; raises ReportError where anything differs."""
    contract = Contract.from_json(_json(evidence / "contract.json"))
    price_book = PriceBook.from_json(_json(evidence / "pricebook.json"))
    plan = _plan(evidence)
    path = _only(evidence / "savings", "*.json")
    stored = _json(path)
    examines = demands_sufficiency(plan.method_version)
    _same("savings schema", stored.get("schema"), EXAMINED_SCHEMA if examines else SAVINGS_SCHEMA)
    lines = [SavingsLine.from_json(item) for item in stored["lines"]]
    totals, coverages = _usage(evidence / "usage" / path.stem, contract, lines, facts)
    examined: tuple[Sufficiency, ...] = ()
    if examines:
        baseline = measured.recomputed.baseline
        examined = examined_again(
            evidence, stored["sufficiency"], coverages, baseline=baseline, contract=contract,
            plan=plan,
        )  # fmt: skip
    _same("sufficiency", facts.sufficiency, sufficiency_facts(examined))
    gates = {(item.model, item.system): item.verdict.gate or "" for item in examined}
    for line in lines:
        gate = gates.get((line.model, line.system), "")
        _line(line, totals, price_book, plan, measured.recomputed, gate)
    verified = verified_savings(lines, evidence_digest=stored["breakdown"]["evidence_digest"])
    breakdown = fee(contract, LedgerState.from_json(stored["state_before"]), verified)
    _same("fee breakdown", stored["breakdown"], breakdown.to_json())
    invoice = _invoice(evidence, facts, contract, plan, breakdown)
    require_printed(examined, invoice.notes)
    _stated_savings(facts, lines, contract.currency)
    _stated_fee(facts, breakdown)
    return (
        f"{totals.samples} samples, fee {breakdown.fee} {breakdown.currency}, "
        f"payable {breakdown.payable} on invoice {invoice.number}"
    )


def _accuracy(facts: MeasurementFacts, found: Recomputed) -> None:
    accuracy = found.accuracy
    _same("accuracy", facts.accuracy.passed, accuracy.passed)
    _same("accuracy samples", facts.accuracy.samples, str(accuracy.samples))
    # Facts word embeddings alone; an account of read lines would have no figure to hold.
    if not isinstance(accuracy, Accuracy):
        raise ReportError(f"accuracy: {accuracy.words}, wanted the cosines of embeddings")
    for name, value in (
        ("min_cosine", accuracy.min_cosine),
        ("mean_cosine", accuracy.mean_cosine),
        ("max_abs_error", accuracy.max_abs_error),
        ("floor_cosine", accuracy.floor),
    ):
        _close(f"accuracy {name}", getattr(facts.accuracy, name), Decimal(value))


def _as_found(facts: MeasurementFacts, found: Recomputed) -> None:
    """What the customer stated is printed as measured, and not left out."""
    stated, row = facts.baseline.as_found, found.baseline.as_found
    _same("as found stated", stated is not None, row is not None)
    if stated is None or row is None:
        return
    _same("as found stack", stated.stack, row.sut.stack)
    _same("as found state", stated.state, row.state)
    rate = row.samples_per_second
    if stated.samples_per_second is None or rate is None:
        _same("as found samples/s", stated.samples_per_second, rate)
    else:
        _close("as found samples/s", stated.samples_per_second, rate, RATIO_TOLERANCE * rate)


def _baseline_first(runs: PairedRuns, found: Recomputed, facts: MeasurementFacts) -> None:
    """The baseline was frozen before any optimised kernel was timed."""
    frozen_at = found.baseline.frozen_at.replace(microsecond=0)
    _same("baseline frozen at", _moment(facts.baseline.frozen_at), frozen_at)
    for pair in runs.pairs:
        if _moment(pair.other.started_at) < frozen_at:
            raise ReportError(
                f"run {pair.other.run_id} of the candidate started at {pair.other.started_at}, "
                f"before the baseline was frozen at {frozen_at.isoformat()}"
            )


def _ratios(part: str, runs: PairedRuns, stated: Sequence[str]) -> None:
    """The dots of a plot are the pairs of the logs, in order."""
    found = [math.exp(ratio) for ratio in runs.log_ratios()] if runs.complete else []
    _same(f"{part} pairs shown", len(stated), len(found))
    for index, (shown, value) in enumerate(zip(stated, found, strict=True)):
        _close(f"{part} pair {index + 1}", shown, Decimal(value))


def _package(evidence: Path, runs: PairedRuns, facts: MeasurementFacts) -> None:
    """The kernel that was timed is the package whose sources and manifest are in the evidence."""
    digest = sha256_file(evidence / "kernel" / "manifest.json")
    _same("kernel package", facts.search.package_manifest_sha256, digest)
    for pair in runs.pairs:
        spec = _json(evidence / "uplift" / "runs" / pair.other.run_id / "spec.json")
        _same(f"package of run {pair.other.run_id}", spec.get("package_sha256"), digest)


def _subject_of_it_all(evidence: Path, facts: MeasurementFacts) -> None:
    """System, traffic and the price of the search are those of the evidence."""
    manifest = _json(evidence / "kernel" / "manifest.json")
    machine = _json(evidence / "system.json")["machine"]
    for where, found in (("system.json", machine), ("kernel manifest", manifest["machine"])):
        _same(f"fingerprint in {where}", facts.system.fingerprint, found["fingerprint"])
    _same("processor", facts.system.processor, machine["cpu_model"])
    lengths = _json(evidence / "mix.json")["length_histogram"]
    traffic = {share.tokens: int(share.samples) for share in facts.mix.traffic}
    _same("traffic", traffic, dict(lengths))
    ledger = (evidence / "kernel" / "ledger.jsonl").read_text("utf-8").splitlines()
    spent = sum((Decimal(strict_json(line)["cost"]) for line in ledger), Decimal(0))
    if Decimal(facts.search.cost) > spent + HALF_A_CENT:
        raise ReportError(f"search cost: stated {facts.search.cost}, the ledger sums to {spent}")


def _usage(
    folder: Path, contract: Contract, lines: Sequence[SavingsLine], facts: ReportFacts
) -> tuple[UsageTotals, tuple[Coverage, ...]]:
    stated = UsageTotals.from_json(_json(folder / "totals.json"))
    options: dict[str, Any] = {"known": None, "not_before": contract.valid_from, "cutoff": None}
    if (folder / "inputs.json").exists():
        given = _json(folder / "inputs.json")
        for name in ("not_before", "cutoff"):
            if given.get(name) is not None:
                options[name] = datetime.fromisoformat(given[name])
        if given.get("known") is not None:
            options["known"] = {(model, system) for model, system in given["known"]}
    if (folder / "decisions.json").exists():
        options["decisions"] = read_decisions(_json(folder / "decisions.json"))
    pairs = sorted({(line.model, line.system) for line in lines})
    with (folder / "events.jsonl").open("rb") as events:
        batch = read_events(events)
    totals, coverages = metered(batch, stated.period, contract.zone, pairs, **options)
    _same("usage totals", stated.to_json(), totals.to_json())
    usage = facts.usage
    for name in ("samples", "accepted", "duplicates", "conflicts", "late", "early", "rejected"):
        _same(f"usage {name}", getattr(usage, name), str(getattr(totals, name)))
    rows = [(row.model, row.system, row.samples) for row in usage.rows]
    _same("usage rows", rows, [(v.model, v.system, str(v.samples)) for v in totals.volumes])
    billed = {(line.model, line.system) for line in lines}
    left = {(v.model, v.system) for v in totals.volumes} - billed
    _same("volumes without a savings line", sorted(left), [])
    for name in ("start", "end"):
        _same(f"period {name}", _moment(getattr(facts.period, name)), getattr(totals.period, name))
    _same("period zone", facts.period.zone, totals.period.zone)
    return totals, coverages


def _line(
    line: SavingsLine,
    totals: UsageTotals,
    price_book: PriceBook,
    plan: MeasurementPlan,
    found: Recomputed,
    gate: str,
) -> None:
    where = f"savings of {line.model} on {line.system}"
    _same(f"{where}: kept", line.kept, found.decision.kept)
    if found.uplift is not None:
        for name, value in (("point", found.uplift.point), ("lower_95", found.uplift.lower_95)):
            stated: Decimal = getattr(line, f"uplift_{name}")
            _close(f"{where}: uplift {name}", str(stated), Decimal(value), UPLIFT_TOLERANCE)
    again = savings_line(
        model=line.model,
        system=line.system,
        segment=line.segment,
        period=totals.period,
        volume=totals.volume(line.model, line.system),
        baseline_samples_per_second=found.baseline_samples_per_second,
        cores=len(plan.cores),
        price_book=price_book,
        uplift_point=line.uplift_point,
        uplift_lower_95=line.uplift_lower_95,
        baseline_id=line.baseline_id,
        uplift_id=line.uplift_id,
        evidence_digest=line.evidence_digest,
        kept=found.decision.kept,
        not_kept_reason="" if line.kept else line.reason.removeprefix("kernel not kept: "),
        gate=gate,
        method_version=plan.method_version,
    )
    _same(where, line.to_json(), again.to_json())


def _invoice(
    evidence: Path,
    facts: ReportFacts,
    contract: Contract,
    plan: MeasurementPlan,
    breakdown: FeeBreakdown,
) -> Invoice:
    path = _only(evidence / "invoice", "*.json")
    invoice = Invoice.from_json(_json(path))
    again = build_invoice(
        breakdown,
        contract=contract,
        plan=plan,
        number=invoice.number,
        series=invoice.series,
        issued_at=invoice.issued_at,
    )
    stored, built = invoice.to_json(), again.to_json()
    notes, own = invoice.notes, again.notes
    _same("invoice notes", notes[: len(own)], own)
    _same("invoice", {**stored, "notes": None}, {**built, "notes": None})
    _same("invoice number", facts.invoice.number, invoice.number)
    _same("invoice date", facts.invoice.issued_on, invoice.issued_on.isoformat())
    if facts.invoice.due_on is not None:
        _same("invoice due date", facts.invoice.due_on, invoice.due_on.isoformat())
    return invoice


def _stated_savings(facts: ReportFacts, lines: Sequence[SavingsLine], currency: str) -> None:
    savings, first = facts.savings, lines[0]
    _same("savings currency", savings.currency, currency)
    _same("savings volume", savings.volume_samples, str(sum(line.volume for line in lines)))
    _same("savings cores", savings.cores, str(first.cores))
    _same("price of a core hour", Decimal(savings.price_per_core_hour), first.price_per_core_hour)
    for name in ("baseline_samples_per_second", "uplift_point", "uplift_lower_95"):
        value: Decimal = getattr(first, name)
        tolerance = RATIO_TOLERANCE * max(Decimal(1), value)
        _close(f"savings {name}", getattr(savings, name), value, tolerance)
    unit_cost = first.cost_per_million_before / 1_000_000
    _close(
        "baseline cost per sample",
        savings.baseline_cost_per_sample,
        unit_cost,
        RATIO_TOLERANCE * unit_cost,
    )
    for name in ("counterfactual", "point", "bound", "billable"):
        exact = sum((getattr(line, name) for line in lines), Decimal(0))
        _rounded(f"savings {name}", getattr(savings, name), exact, currency)


def _stated_fee(facts: ReportFacts, breakdown: FeeBreakdown) -> None:
    stated = facts.fee
    _same("fee currency", stated.currency, breakdown.currency)
    for name, value in (
        ("net", breakdown.net),
        ("tax", breakdown.tax),
        ("total", breakdown.payable),
    ):
        _same(f"fee {name}", Decimal(getattr(stated, name)), value)


def _plan(evidence: Path) -> MeasurementPlan:
    return MeasurementPlan.from_json(_json(evidence / "plan.json"))


def _json(path: Path) -> Mapping[str, Any]:
    value = strict_json(path.read_bytes())
    if not isinstance(value, dict):
        raise ReportError(f"{path.name}: wanted a JSON object")
    return value


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ReportError(f"{folder.name}/: wanted exactly one {pattern}, got {len(found)}")
    return found[0]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _same(what: str, stated: object, found: object) -> None:
    if stated != found:
        if isinstance(stated, Mapping) and isinstance(found, Mapping):
            names = sorted(
                name for name in {*stated, *found} if stated.get(name) != found.get(name)
            )
            first = names[0]
            raise ReportError(
                f"{what} differs in {', '.join(names)}; stated {first} "
                f"{stated.get(first)!r:.200}, the evidence gives {found.get(first)!r:.200}"
            )
        raise ReportError(f"{what}: stated {stated!s:.200}, the evidence gives {found!s:.200}")


def _close(what: str, stated: str, found: Decimal, tolerance: Decimal = RATIO_TOLERANCE) -> None:
    if abs(Decimal(stated) - found) > tolerance:
        raise ReportError(f"{what}: stated {stated}, the evidence gives {found:.12f}")


def _rounded(what: str, stated: str, exact: Decimal, currency: str) -> None:
    """A stated amount must be the exact one, rounded at its own last place, not before the cent."""
    value = Decimal(stated)
    places = -int(value.as_tuple().exponent)
    if places < minor_unit(currency) or abs(value - exact) * 2 > Decimal(1).scaleb(-places):
        raise ReportError(f"{what}: stated {stated}, the evidence gives {exact}")
