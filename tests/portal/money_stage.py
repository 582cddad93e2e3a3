"""A recorded measurement under review, and the jobs that take it to a report.

In: the cast, a recording of real LoadGen runs. Out: rows as the measuring job leaves them, and one
function for each thing that the parties then do. No test is here.
"""

import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from kernelgen.machine import Machine
from metering.evidence import recompute
from metering.plan import MeasurementPlan, Period
from metering.usage import TrafficShare, generate_month
from portal.accounts.access import Platform
from portal.audits.models import Review
from portal.audits.services import PUBLIC_FILES, auditor_key_register, review_approve
from portal.billing.conflicts import contents_of, usage_decide
from portal.billing.models import Invoice, UsageEvent
from portal.billing.services import period_open
from portal.billing.usage import usage_ingest
from portal.contracts.agreement import signed_bytes
from portal.contracts.models import ContractVersion
from portal.contracts.services import contract_draft, party_key_register, plan_sign
from portal.documents.models import Report
from portal.keystore import platform_keys, platform_keys_dir
from portal.registry.models import Model, ModelMix
from portal.registry.services import system_register
from portal.runs import jobs
from portal.runs.handlers import handler_for
from portal.runs.models import Job, Measurement
from portal.runs.pipeline.evidence import (
    evidence_folder,
    measurement_id,
    write_agreement,
)
from portal.runs.pipeline.measure import figures_of
from portal.runs.pipeline.review import present
from portal.runs.services import (
    BaselineFigures,
    baseline_freeze,
    measurement_open,
    measurement_record,
    package_store,
    tuning_open,
    tuning_record,
)
from portal.workspace import absolute, sha256_file
from reports.bundle import sign_statement
from reports.keys import create_auditor_keys, key_id, public_pem
from reports.trust import export_trust
from tests.portal.conftest import Cast, Keys, example_contract
from tests.reports.story import (
    RECORDING,
    unpack_recording,
)


@dataclass(frozen=True)
class Stage:
    """A recorded measurement under review, and the auditor's own folder outside the portal."""

    cast: Cast
    version: ContractVersion
    measurement: Measurement
    review: Review
    auditor: Path
    trust: Path


@pytest.fixture
def packed() -> Path:
    """The recording to unpack: of the first method; a test may ask for another."""
    return RECORDING


@pytest.fixture
def stage(cast: Cast, home: Path, tmp_path: Path, mix, keys: Keys, draft, packed: Path) -> Stage:
    auditor, trust = tmp_path / "auditor", tmp_path / "trust"
    auditor.mkdir()
    theirs = create_auditor_keys(auditor)
    platform_keys()
    export_trust(platform_keys_dir(), auditor, trust)
    statement_pem = public_pem(theirs.statement.public_key()).decode()
    auditor_key_register(
        actor=cast.auditor,
        organisation=cast.organisation,
        public_key_pem=statement_pem,
        public_files={
            name: (auditor / name).read_text() for name in PUBLIC_FILES if (auditor / name).exists()
        },
    )
    recording = tmp_path / "recording"
    unpack_recording(recording, packed)
    baseline = json.loads((recording / "baseline" / "baseline.json").read_bytes())
    recorded_system = json.loads((recording / "system.json").read_text())
    system = system_register(
        actor=cast.owner,
        organisation=cast.organisation,
        name="edge-box",
        machine=Machine.from_dict(recorded_system["machine"]),
    )
    # The registry names what was recorded: the real model and the recording's own sentences.
    Model.objects.filter(pk=mix.model_id).update(sha256=baseline["model_sha256"])
    first = next((recording / "uplift" / "runs").glob("*/spec.json"))
    ModelMix.objects.filter(pk=mix.pk).update(
        samples_sha256=baseline["samples_sha256"],
        held_out_sha256=json.loads(first.read_bytes())["samples_sha256"],
    )
    version = contract_draft(
        actor=cast.owner,
        organisation=cast.organisation,
        contract=example_contract(contract_id="C-REC", holdback=Decimal("0.10")),
        plan=MeasurementPlan.from_json(json.loads((recording / "plan.json").read_bytes())),
        system=system,
        mix=ModelMix.objects.get(pk=mix.pk),
        price_book=draft.price_book,
    )
    for party, actor, key in (
        ("provider", cast.platform, platform_keys().statement),
        ("customer", cast.owner, keys.customer),
        ("auditor", cast.auditor, theirs.statement),
    ):
        pem = public_pem(key.public_key()).decode()
        party_key_register(
            actor=actor, organisation=cast.organisation, party=party, public_key_pem=pem
        )
        plan_sign(
            actor=actor,
            contract_version=version,
            party=party,
            key_id=key_id(key.public_key()),
            signature_b64=base64.b64encode(key.sign(signed_bytes(version))).decode(),
        )
    evidence = evidence_folder(version)
    evidence.parent.mkdir(parents=True)
    recording.rename(evidence)
    write_agreement(version)
    measurement = store(cast.platform, version, evidence, home)
    return Stage(
        cast, version, measurement, present(actor=cast.platform, measurement=measurement),
        auditor, trust,
    )  # fmt: skip


def store(platform: Platform, version: ContractVersion, evidence: Path, home: Path) -> Measurement:
    """Give the recorded files their rows, as the measuring job does."""
    found = recompute(evidence)
    frozen = found.baseline
    baseline = baseline_freeze(
        actor=platform,
        contract_version=version,
        figures=BaselineFigures(
            stack=frozen.stack,
            stack_version=frozen.version,
            threads=frozen.sut.threads,
            arrangement=frozen.sut.arrangement,
            batch=frozen.sut.batch,
            samples_per_second=frozen.samples_per_second,
            frozen_at=frozen.frozen_at,
            document=frozen.to_dict(),
        ),
        document_file=evidence / "baseline" / "baseline.json",
        evidence=evidence,
    )
    tuning = tuning_open(actor=platform, baseline=baseline, seed=1, budget_s=Decimal(10))
    tuning = tuning_record(
        actor=platform, tuning=tuning, trials=12, accepted=3, rejected={"slower": 9},
        seconds=Decimal("9.5"), cost=Decimal("0.000132"), currency="EUR",
    )  # fmt: skip
    package = package_store(
        actor=platform,
        tuning=tuning,
        manifest=json.loads((evidence / "kernel" / "manifest.json").read_bytes()),
        manifest_sha256=sha256_file(evidence / "kernel" / "manifest.json"),
        model_gate={"correct": True},
        operators=[],
        path=home / "packages" / "p",
    )
    measurement = measurement_open(
        actor=platform,
        contract_version=version,
        baseline=baseline,
        package=package,
        evidence=evidence,
        measurement_id=measurement_id(version),
    )
    return measurement_record(
        actor=platform,
        measurement=measurement,
        figures=figures_of(evidence, found),
        evidence=evidence,
    )


def approve(stage: Stage) -> Measurement:
    """The auditor recomputes and signs with their own tool, then uploads."""
    envelope = sign_statement(
        stage.review.envelope.encode(),
        stage.auditor,
        evidence=absolute(stage.measurement.evidence_path),
        trust=stage.trust,
    )
    review_approve(actor=stage.cast.auditor, review=stage.review, envelope=envelope)
    return Measurement.objects.get(pk=stage.measurement.pk)


def deliver(stage: Stage, label: str) -> None:
    version = stage.version
    lines = generate_month(
        [TrafficShare(version.mix.model.name, version.system.name)],
        Period.month(label, "Europe/Berlin"),
        samples=20_000_000_000,
        seed=7,
    )
    usage_ingest(
        actor=stage.cast.owner, organisation=stage.cast.organisation, lines=lines, via="file"
    )


def work(stage: Stage, kind: str, key: str, arguments: dict[str, object]) -> Job:
    """Ask for a job and work on it, as a worker does; errors come through."""
    job = jobs.job_request(
        actor=stage.cast.platform,
        organisation=stage.cast.organisation,
        kind=kind,
        key=key,
        arguments=arguments,
    )
    lease = jobs.claim(owner=jobs.new_owner(), job_id=job.pk)
    if lease is not None:
        jobs.work(lease, handler_for(kind))
    job.refresh_from_db()
    return job


def bill(stage: Stage, label: str = "2026-09") -> Invoice:
    period = period_open(actor=stage.cast.finance, contract_version=stage.version, label=label)
    arguments = {"period": str(period.pk), "measurement": str(stage.measurement.pk)}
    assert work(stage, "bill", label, arguments).state == "done"
    return Invoice.objects.get(period=period)


def seal(stage: Stage, invoice: Invoice) -> Report:
    assert work(stage, "seal", invoice.number, {"invoice": str(invoice.pk)}).state == "done"
    return Report.objects.get(invoice=invoice)


def contest(stage: Stage) -> int:
    """Other content under the first key, decided for by the customer; the samples it adds."""
    organisation = stage.cast.organisation
    stored = UsageEvent.objects.filter(organisation=organisation).earliest("pk")
    line = json.loads(stored.line)
    line["data"]["samples"] += 1_000_000_000
    usage_ingest(
        actor=stage.cast.owner, organisation=organisation, lines=[json.dumps(line)], via="file"
    )
    contents = contents_of(stored)
    usage_decide(
        actor=stage.cast.owner, stored=stored, choice=contents[1].choice,
        reason="the first reading was cut off", seen=[c.event.content for c in contents],
    )  # fmt: skip
    return 1_000_000_000
