"""Writes of baselines, tunings, kernel packages and measurements: one transaction, one event each.

The engines have done the work and left files before any of these is called; here the result gets
its row. Each is safe to call again: the row that is there is returned, never a second one.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.accounts.access import Actor, Platform
from portal.contracts.models import ContractVersion
from portal.events.services import event_record
from portal.runs.models import Baseline, KernelPackage, Measurement, Tuning, TuningEvent
from portal.workspace import relative, sha256_file
from reports.statement import evidence_digest


class RunsError(ValueError):
    """A result that cannot be stored; names what was got and wanted."""


@dataclass(frozen=True)
class BaselineFigures:
    """What the frozen baseline is: the stack, its knobs, samples per second."""

    stack: str
    stack_version: str
    threads: int
    arrangement: str
    batch: int
    samples_per_second: Decimal
    frozen_at: datetime
    document: Mapping[str, object]


@dataclass(frozen=True)
class MeasuredFigures:
    """What one measurement found; ratios minus one as text in the mappings."""

    aa: Mapping[str, object]
    uplift: Mapping[str, object]
    pairs: Sequence[Mapping[str, object]]
    accuracy: Mapping[str, object]
    uplift_point: Decimal | None
    uplift_lower_95: Decimal | None
    kept: bool
    reason: str


def _platform_only(actor: Actor, action: str) -> None:
    if not isinstance(actor, Platform):
        raise RunsError(f"{action}: only the platform's own jobs store results")


def require_signed(contract_version: ContractVersion) -> None:
    """RunsError unless provider, customer and auditor have signed: no run before that."""
    if contract_version.status != ContractVersion.Status.SIGNED:
        raise RunsError(
            f"{contract_version}: not signed by all three parties yet; no run may start"
        )


@transaction.atomic
def baseline_freeze(
    *,
    actor: Actor,
    contract_version: ContractVersion,
    figures: BaselineFigures,
    document_file: Path,
    evidence: Path,
) -> Baseline:
    """Freeze the baseline of a signed plan; a second one for it is never made.

    Refused once a search for this contract version exists without a baseline row: a baseline
    fixed after a candidate was seen is worth nothing.
    """
    _platform_only(actor, "baseline.freeze")
    require_signed(contract_version)
    found = Baseline.objects.filter(contract_version=contract_version).first()
    if found:
        return Baseline.objects.get(pk=found.pk)
    baseline = Baseline(
        organisation=contract_version.organisation,
        contract_version=contract_version,
        system=contract_version.system,
        mix=contract_version.mix,
        stack=figures.stack,
        stack_version=figures.stack_version,
        threads=figures.threads,
        arrangement=figures.arrangement,
        batch=figures.batch,
        samples_per_second=figures.samples_per_second,
        document=dict(figures.document),
        sha256=sha256_file(document_file),
        evidence_path=relative(evidence),
        frozen_at=figures.frozen_at,
    )
    try:
        with transaction.atomic():
            baseline.save(force_insert=True)
    except IntegrityError:
        return Baseline.objects.get(contract_version=contract_version)
    event_record(
        action="baseline.freeze",
        actor=actor,
        subject=baseline,
        organisation=baseline.organisation,
        data={
            "sha256": baseline.sha256,
            "stack": baseline.stack,
            "samples_per_second": str(baseline.samples_per_second),
        },
    )
    return baseline


@transaction.atomic
def tuning_open(*, actor: Actor, baseline: Baseline, seed: int, budget_s: Decimal) -> Tuning:
    """Open the search that follows a frozen baseline; the same one is returned again."""
    _platform_only(actor, "tuning.open")
    tuning, made = Tuning.objects.get_or_create(
        baseline=baseline,
        defaults={
            "organisation": baseline.organisation,
            "system": baseline.system,
            "mix": baseline.mix,
            "seed": seed,
            "budget_s": budget_s,
            "currency": baseline.contract_version.price_book.currency,
        },
    )
    if made:
        event_record(
            action="tuning.open",
            actor=actor,
            subject=tuning,
            organisation=tuning.organisation,
            data={"baseline": str(baseline.pk), "seed": seed, "budget_s": str(budget_s)},
        )
    return tuning


def tuning_events_add(*, tuning: Tuning, events: Sequence[TuningEvent]) -> None:
    """Append progress lines of a running search; no audit event: the trials file is the record."""
    TuningEvent.objects.bulk_create(events, ignore_conflicts=True)


@transaction.atomic
def tuning_record(
    *,
    actor: Actor,
    tuning: Tuning,
    trials: int,
    accepted: int,
    rejected: Mapping[str, int],
    seconds: Decimal,
    cost: Decimal,
    currency: str,
) -> Tuning:
    """Store how a search ended; a second call changes nothing."""
    _platform_only(actor, "tuning.record")
    row = Tuning.objects.select_for_update().get(pk=tuning.pk)
    if row.state == Tuning.State.DONE:
        return row
    row.state = Tuning.State.DONE
    row.trials, row.accepted, row.rejected = trials, accepted, dict(rejected)
    row.seconds, row.cost, row.currency = seconds, cost, currency
    row.finished_at = timezone.now()
    row.save()
    event_record(
        action="tuning.record",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={
            "trials": trials,
            "accepted": accepted,
            "seconds": str(seconds),
            "cost": str(cost),
            "currency": currency,
        },
    )
    return row


@transaction.atomic
def package_store(
    *,
    actor: Actor,
    tuning: Tuning,
    manifest: Mapping[str, object],
    manifest_sha256: str,
    model_gate: Mapping[str, object],
    operators: Sequence[Mapping[str, object]],
    path: Path,
) -> KernelPackage:
    """Store a finished kernel package of a search; the one that is there is returned again."""
    _platform_only(actor, "package.store")
    found = KernelPackage.objects.filter(tuning=tuning).first()
    if found:
        return KernelPackage.objects.get(pk=found.pk)
    package = KernelPackage(
        organisation=tuning.organisation,
        tuning=tuning,
        system=tuning.system,
        model=tuning.mix.model,
        manifest=dict(manifest),
        manifest_sha256=manifest_sha256,
        model_gate=dict(model_gate),
        operators=[dict(operator) for operator in operators],
        path=relative(path),
    )
    package.save(force_insert=True)
    event_record(
        action="package.store",
        actor=actor,
        subject=package,
        organisation=package.organisation,
        data={"manifest_sha256": manifest_sha256, "tuning": str(tuning.pk)},
    )
    return package


@transaction.atomic
def measurement_open(
    *,
    actor: Actor,
    contract_version: ContractVersion,
    baseline: Baseline,
    package: KernelPackage,
    evidence: Path,
    measurement_id: uuid.UUID | None = None,
) -> Measurement:
    """Open the measurement of a package against its baseline; the one that exists is returned."""
    _platform_only(actor, "measurement.open")
    require_signed(contract_version)
    measurement, made = Measurement.objects.get_or_create(
        contract_version=contract_version,
        baseline=baseline,
        package=package,
        run_number=1,
        defaults={
            "id": measurement_id or uuid.uuid4(),
            "organisation": contract_version.organisation,
            "created_by": actor.user,
            "evidence_path": relative(evidence),
        },
    )
    if made:
        event_record(
            action="measurement.open",
            actor=actor,
            subject=measurement,
            organisation=measurement.organisation,
            data={"baseline": baseline.sha256, "package": package.manifest_sha256},
        )
    return measurement


@transaction.atomic
def measurement_record(
    *, actor: Actor, measurement: Measurement, figures: MeasuredFigures, evidence: Path
) -> Measurement:
    """Store what was measured with the digest of its evidence; draft becomes measured, once."""
    _platform_only(actor, "measurement.record")
    row = Measurement.objects.select_for_update().get(pk=measurement.pk)
    if row.state != Measurement.State.DRAFT:
        return row
    row.state = Measurement.State.MEASURED
    row.aa, row.uplift = dict(figures.aa), dict(figures.uplift)
    row.pairs = [dict(pair) for pair in figures.pairs]
    row.accuracy = dict(figures.accuracy)
    row.uplift_point, row.uplift_lower_95 = figures.uplift_point, figures.uplift_lower_95
    row.kept, row.reason = figures.kept, figures.reason
    row.evidence_path = relative(evidence)
    row.evidence_sha256 = evidence_digest(evidence)
    row.measured_at = timezone.now()
    row.save()
    event_record(
        action="measurement.record",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={
            "evidence_sha256": row.evidence_sha256,
            "kept": row.kept,
            "reason": row.reason,
            "lower_95": None if row.uplift_lower_95 is None else str(row.uplift_lower_95),
        },
    )
    return row
