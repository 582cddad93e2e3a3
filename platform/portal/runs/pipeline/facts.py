"""From stored rows to what a report prints, in the reports engine's own records.

In: a measured row, and for a whole report its invoice. Out: `MeasurementFacts`, `ReportFacts`.
Figures are copied as text or rounded once for print; none is computed. The engine refuses facts
that the evidence does not give, so a wrong copy here stops the signature, not the reader.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from metering.baseline import Row, load
from metering.contract import Contract
from metering.decimals import exact, to_text
from metering.fields import instant_text
from metering.ledger import Invoice as InvoiceDocument
from metering.plan import MeasurementPlan
from metering.savings import SavingsLine
from metering.uplift import PairedRuns, load_paired
from metering.usage import UsageTotals
from portal.audits.models import Review
from portal.billing.models import Invoice
from portal.billing.savings import frozen_sufficiency
from portal.contracts.models import ContractVersion
from portal.runs.models import Measurement
from portal.workspace import absolute
from reports import facts as fx
from reports.canonical import sha256_bytes
from reports.energy import energy_facts
from reports.statement import evidence_digest
from reports.sufficiency import sufficiency_facts

MONEY_PLACES = Decimal("0.000001")


def measurement_facts(measurement: Measurement) -> fx.MeasurementFacts:
    """Everything a measurement's statement says."""
    version = measurement.contract_version
    evidence = absolute(measurement.evidence_path)
    plan = MeasurementPlan.from_json(version.plan)
    contract = Contract.from_json(version.contract)
    moment = measurement.measured_at or measurement.created_at
    organisation = measurement.organisation
    return fx.MeasurementFacts(
        measurement_id=str(measurement.pk),
        method_version=plan.method_version,
        organisation=fx.Party(name=organisation.name, reference=organisation.slug),
        auditor=fx.Party(name=contract.auditor, reference=_auditor_key(version)),
        measured_at=_utc(moment),
        system=_system(version),
        mix=_mix(version),
        plan=_plan(plan),
        baseline=_baseline(evidence, measurement.baseline.sha256),
        aa=_aa(evidence, measurement),
        uplift=_uplift(evidence, measurement),
        accuracy=_accuracy(measurement.accuracy),
        search=_search(measurement),
    )


def _auditor_key(version: ContractVersion) -> str:
    """The key with which the auditor signed the plan, shortened for print."""
    signature = version.signatures.filter(party="auditor").first()
    return f"key {signature.key_id[:16]}" if signature else "no key"


def _utc(moment: datetime) -> str:
    return instant_text(moment.astimezone(UTC).replace(microsecond=0))


def _number(value: object) -> str:
    """Plain decimal text without an exponent, at most 18 places."""
    with exact():
        number = Decimal(str(value))
        if -int(number.as_tuple().exponent) > 18:
            number = number.quantize(Decimal("1e-18"), rounding=ROUND_HALF_UP)
    return to_text(number)


def _system(version: ContractVersion) -> fx.SystemFacts:
    system = version.system
    machine = system.machine
    return fx.SystemFacts(
        name=f"{system.name} revision {system.revision}",
        fingerprint=system.fingerprint,
        processor=machine["cpu_model"],
        cores=str(machine["cores"]),
        memory_bytes=str(machine["memory_bytes"]),
        accelerators=tuple(gpu["name"] for gpu in machine["gpus"]),
    )


def _mix(version: ContractVersion) -> fx.MixFacts:
    mix = version.mix
    return fx.MixFacts(
        model=mix.model.name,
        model_sha256=mix.model.sha256,
        samples=str(mix.sample_count),
        samples_sha256=mix.samples_sha256,
        traffic=tuple(
            fx.LengthShare(tokens=str(length), samples=str(count))
            for length, count in sorted(
                (int(length), count) for length, count in mix.length_histogram.items()
            )
        ),
    )


def _plan(plan: MeasurementPlan) -> fx.PlanFacts:
    return fx.PlanFacts(
        plan_id=plan.plan_id,
        digest=plan.digest,
        option=plan.option,
        scenario=plan.scenario,
        precision=plan.precision,
        cores=str(len(plan.cores)),
        run_seconds=str(plan.run_seconds),
        pairs=str(plan.pairs),
        aa_pairs=str(plan.aa_pairs),
        minimum_effect=_number(plan.minimum_effect),
        accuracy_floor_cosine=_number(plan.accuracy_floor_cosine),
        short_run=plan.short_run,
    )


def configuration(sut: Any) -> str:
    """A system under test in words."""
    batch = "one by one" if sut.arrangement == "single" else f"{sut.arrangement}, batch {sut.batch}"
    return (
        f"{sut.instances} x {sut.threads} threads, {batch}, graph optimisation"
        f" {sut.graph_optimization}"
    )


def _baseline(evidence: Path, sha256: str) -> fx.BaselineFacts:
    frozen = load(evidence / "baseline")
    versions = {info["name"]: str(info["version"]) for info in frozen.stacks}
    return fx.BaselineFacts(
        stack=frozen.stack,
        version=frozen.version,
        configuration=configuration(frozen.sut),
        samples_per_second=_number(frozen.samples_per_second),
        frozen_at=_utc(frozen.frozen_at),
        sha256=sha256,
        sweep=tuple(
            fx.SweepRow(
                stack=row.sut.stack,
                version=versions.get(row.sut.stack) or "unknown",
                configuration=configuration(row.sut),
                samples_per_second=(
                    None if row.samples_per_second is None else _number(row.samples_per_second)
                ),
                state=row.state,
                chosen=row.sut == frozen.sut,
            )
            for row in frozen.table
        ),
        as_found=as_found_facts(frozen.as_found, versions),
    )


def as_found_facts(row: Row | None, versions: Mapping[str, str]) -> fx.AsFoundFacts | None:
    """The customer's own configuration as measured; None when none was stated."""
    if row is None:
        return None
    rate = row.samples_per_second
    return fx.AsFoundFacts(
        stack=row.sut.stack,
        version=versions.get(row.sut.stack) or "unknown",
        configuration=configuration(row.sut),
        samples_per_second=None if rate is None else _number(rate),
        state=row.state,
    )


def _ratios(paired: PairedRuns) -> tuple[str, ...]:
    if not paired.complete:
        return ()
    return tuple(f"{math.exp(ratio):.9f}" for ratio in paired.log_ratios())


def _aa(evidence: Path, measurement: Measurement) -> fx.AaFacts:
    aa = measurement.aa
    return fx.AaFacts(
        passed=aa["passed"],
        lo=aa["lo"],
        hi=aa["hi"],
        pairs=str(aa["pairs"]),
        ratios=_ratios(load_paired(evidence / "aa")),
        reason=aa["reason"] or "the interval holds zero and is narrower than half the claim",
    )


def _uplift(evidence: Path, measurement: Measurement) -> fx.UpliftFacts:
    uplift = measurement.uplift
    paired = load_paired(evidence / "uplift")
    with exact():
        rate = Decimal(str(measurement.baseline.samples_per_second)) * (
            1 + Decimal(uplift["point"])
        )
    return fx.UpliftFacts(
        kept=measurement.kept,
        reason=(measurement.reason or "gate, accuracy and lower bound hold")[:400],
        point=uplift["point"],
        lo=uplift["lo"],
        hi=uplift["hi"],
        lower_95=uplift["lower_95"],
        pairs=str(paired.planned),
        ratios=_ratios(paired),
        optimised_samples_per_second=_number(rate.quantize(Decimal("0.01"))),
        energy=None if "energy" not in uplift else energy_facts(uplift["energy"]),
    )


def _accuracy(accuracy: Mapping[str, Any]) -> fx.AccuracyFacts:
    return fx.AccuracyFacts(
        passed=accuracy["passed"],
        samples=str(accuracy["samples"]),
        min_cosine=accuracy["min_cosine"],
        mean_cosine=accuracy["mean_cosine"],
        max_abs_error=accuracy["max_abs_error"],
        floor_cosine=accuracy["floor"],
    )


def _search(measurement: Measurement) -> fx.SearchFacts:
    tuning = measurement.package.tuning
    return fx.SearchFacts(
        trials=str(tuning.trials),
        accepted=str(tuning.accepted),
        rejected=tuple(
            fx.RejectionCount(reason=reason, trials=str(count))
            for reason, count in sorted(tuning.rejected.items())
        ),
        seconds=_number(tuning.seconds),
        cost=_number(tuning.cost),
        currency=tuning.currency,
        package_manifest_sha256=measurement.package.manifest_sha256,
    )


def report_facts(
    *,
    invoice: Invoice,
    review: Review,
    evidence: Path,
    exports: Mapping[str, tuple[str, bytes]],
    limits: Sequence[str],
) -> fx.ReportFacts:
    """Everything the report on one invoice prints; `exports` are (format, bytes) by file name."""
    document = InvoiceDocument.from_json(invoice.document)
    totals = UsageTotals.from_json(invoice.savings.usage)
    period = invoice.period
    return fx.ReportFacts(
        facts_version="ignition-facts/v1",
        document=fx.DocumentFacts(
            number=f"R-{invoice.number}",
            version="1",
            title="Measured savings report",
            status="issued",
            # The invoice's own time: a report that is built again after a crash is the same one.
            issued_at=_utc(invoice.issued_at),
        ),
        invoice=fx.InvoiceFacts(
            number=invoice.number,
            status=document.status,
            issued_on=document.issued_on.isoformat(),
            due_on=document.due_on.isoformat(),
        ),
        period=fx.Period(
            label=period.label,
            zone=period.zone,
            start=_utc(period.starts_at),
            end=_utc(period.ends_at),
        ),
        measurement=measurement_facts(invoice.measurement),
        usage=_usage(totals),
        savings=_savings(invoice),
        fee=_fee(document),
        exports=tuple(
            fx.ExportFacts(
                name=name, format=kind, sha256=sha256_bytes(data), size_bytes=str(len(data))
            )
            for name, (kind, data) in sorted(exports.items())
        ),
        limits=tuple(limits),
        evidence_digest=evidence_digest(evidence),
        measurement_statement_sha256=review.statement_sha256,
        sufficiency=sufficiency_facts(frozen_sufficiency(invoice.savings)),
    )


def _usage(totals: UsageTotals) -> fx.UsageFacts:
    return fx.UsageFacts(
        samples=str(totals.samples),
        accepted=str(totals.accepted),
        duplicates=str(totals.duplicates),
        conflicts=str(totals.conflicts),
        late=str(totals.late),
        early=str(totals.early),
        rejected=str(totals.rejected),
        rows=tuple(
            fx.UsageRow(model=volume.model, system=volume.system, samples=str(volume.samples))
            for volume in totals.volumes
        ),
    )


def _money(value: Decimal) -> str:
    """An amount before its invoice line, at six places: enough to follow, rounded for print."""
    with exact():
        return to_text(value.quantize(MONEY_PLACES, rounding=ROUND_HALF_UP))


def _savings(invoice: Invoice) -> fx.SavingsFacts:
    line = SavingsLine.from_json(invoice.savings.document["lines"][0])
    with exact():
        per_sample = line.cost_per_million_before / 1_000_000
    return fx.SavingsFacts(
        currency=line.currency,
        volume_samples=str(line.volume),
        price_per_core_hour=_number(line.price_per_core_hour),
        cores=str(line.cores),
        baseline_samples_per_second=_number(line.baseline_samples_per_second),
        baseline_cost_per_sample=_number(per_sample),
        uplift_point=_number(line.uplift_point),
        uplift_lower_95=_number(line.uplift_lower_95),
        counterfactual=_money(line.counterfactual),
        point=_money(line.point),
        bound=_money(line.bound),
        billable=_money(line.billable),
        reason=line.reason or None,
    )


def _fee(document: InvoiceDocument) -> fx.FeeFacts:
    lines = [
        fx.FeeLine(label=line.description, amount=_number(line.amount)) for line in document.lines
    ]
    if document.holdback:
        with exact():
            lines.append(
                fx.FeeLine(
                    label="Holdback, released after the next audit",
                    amount=_number(-document.holdback),
                )
            )
    return fx.FeeFacts(
        contract=f"{document.contract_id} version {document.contract_version}",
        currency=document.currency,
        lines=tuple(lines),
        net=_number(document.net),
        tax=_number(document.tax),
        total=_number(document.payable),
    )


def limits_of(invoice: Invoice, *, sqlite: bool, notes: Sequence[str] = ()) -> list[str]:
    """What this report cannot promise, in full sentences: limits are stated, not hidden."""
    plan = invoice.measurement.contract_version.plan
    found = []
    if plan["short_run"]:
        found.append(
            f"Short-run plan: each run lasted about {plan['run_seconds']} s, shorter than an MLPerf"
            " submission asks for."
        )
    if not invoice.measurement.kept:
        found.append(f"Nothing is billed: {invoice.measurement.reason}"[:1200])
    for item in frozen_sufficiency(invoice.savings):
        if item.verdict.gate is not None:
            found.append(
                f"Nothing is billed for {item.model} on {item.system}: the evidence is not"
                " sufficient."
            )
    found += [
        "MLPerf LoadGen based, not verified by MLCommons.",
        f"Method {plan['method_version']}; docs/method.md says how each figure is made.",
        "Software keys: the signing keys are files, not held in a hardware module.",
        "Self-asserted time: no independent time stamp was taken.",
        "Missing witness: no second party cosigned the log's checkpoint.",
    ]
    if sqlite:
        found.append(
            "SQLite mode: the database has no roles; only the log and the signatures show a change."
        )
    return [*found, *notes]
