"""One small, complete portal for the tests of its pages, made through the services alone.

In: an empty home. Out: two organisations with their people; the first with a system, a mix, two
signed contracts (one approved, invoiced and reported, one under review), a draft, jobs in several
states and usage with repetitions. Figures are chosen, logs are short; nothing here is measured.
"""

import base64
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.utils import timezone

from metering.contract import Contract, Party, flat_share
from metering.export import focus_csv, journal_csv, ubl_xml
from metering.ledger import Invoice as InvoiceDocument
from metering.plan import PriceBook, Seeds, short_run_plan
from metering.uplift import estimate
from portal import workspace
from portal.accounts.access import Platform
from portal.accounts.models import Membership, Organisation
from portal.accounts.services import member_add, organisation_create
from portal.audits.models import Review
from portal.audits.overrides import override_state
from portal.audits.services import (
    auditor_key_register,
    finding_raise,
    review_approve,
    review_open,
)
from portal.billing.corrections import dispute_open, dispute_release
from portal.billing.models import BillingPeriod, Invoice
from portal.billing.services import export_write, invoice_issue, period_open, savings_compute
from portal.billing.sufficiency import preview
from portal.billing.usage import usage_ingest
from portal.contracts.agreement import signed_bytes
from portal.contracts.models import ContractVersion
from portal.contracts.services import contract_draft, party_key_register, plan_sign
from portal.documents.models import Report
from portal.documents.services import report_issue
from portal.registry.models import ModelMix, System
from portal.registry.services import (
    mix_register,
    model_register,
    price_book_publish,
    system_register,
)
from portal.runs import jobs
from portal.runs.models import Baseline, Job, Measurement, Tuning
from portal.runs.services import (
    BaselineFigures,
    MeasuredFigures,
    baseline_freeze,
    measurement_open,
    measurement_record,
    package_store,
    tuning_open,
    tuning_record,
)
from reports.canonical import canonical_json, sha256_bytes
from reports.envelope import add, sign
from reports.keys import key_id, public_pem
from tests.portal.web_evidence import (
    baseline_document,
    machine,
    pairs,
    trials,
    usage_lines,
)

PASSWORD = "a long enough test password"
FROZEN_AT = datetime(2026, 8, 3, 9, 30, tzinfo=UTC)
GAINS = (0.243, 0.251, 0.237, 0.262, 0.248, 0.255, 0.241, 0.259, 0.246, 0.252)
NOISE = (0.002, -0.003, 0.001, -0.001, 0.003, -0.002)


@dataclass(frozen=True)
class Stage:
    """Who may knock, and one object of each kind to knock at."""

    home: Path
    owner: Membership
    colleague: Membership
    auditor: Membership
    finance: Membership
    operator: Membership
    outsider: Membership
    host: Membership
    auditor_private: Ed25519PrivateKey
    system: System
    mix: ModelMix
    contract: ContractVersion
    draft: ContractVersion
    baseline: Baseline
    tuning: Tuning
    measurement: Measurement
    open_review: Review
    approved_review: Review
    invoice: Invoice
    report: Report
    job: Job
    open_period: BillingPeriod

    @property
    def organisation(self) -> Organisation:
        return self.owner.organisation


def build(home: Path) -> Stage:
    """Make the whole portal; `settings.IGNITION_HOME` must already be `home`."""
    # WhiteNoise warns about a missing folder, and a warning is an error here.
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)
    people = _people()
    owner, organisation = people["owner"], people["owner"].organisation
    platform = Platform(organisation, owner.user)
    keys = {party: Ed25519PrivateKey.generate() for party in ("provider", "customer", "auditor")}
    actors: dict[str, Any] = {
        "provider": platform, "customer": owner, "auditor": people["auditor"],
    }  # fmt: skip
    system = system_register(
        actor=owner, organisation=organisation, name="search-eu-1", machine=machine("5e", 32)
    )
    system = system_register(
        actor=owner, organisation=organisation, name="search-eu-1", machine=machine("ab", 48)
    )
    mix = _mix(home, owner)
    versions = [_contract(owner, system, mix, number) for number in (1, 2, 3)]
    for version in versions[:2]:
        for party in ("provider", "customer", "auditor"):
            _sign(version, party, actors[party], keys[party])
    for party in ("provider", "customer"):
        _sign(versions[2], party, actors[party], keys[party])
    auditor_key_register(
        actor=people["auditor"],
        organisation=organisation,
        public_key_pem=public_pem(keys["auditor"].public_key()).decode(),
    )
    reviews = [_review(home, platform, version, keys["provider"]) for version in versions[:2]]
    review_approve(
        actor=people["auditor"],
        review=reviews[0],
        envelope=add(reviews[0].envelope.encode(), keys["auditor"]),
    )
    finding_raise(
        actor=people["auditor"],
        review=reviews[1],
        severity="note",
        text="The host ran a backup during pair 3; its ratio does not stand out.",
    )
    measurement = Measurement.objects.get(pk=reviews[0].measurement_id)
    invoice = _bill(home, people, measurement)
    _dispute(people, invoice)
    return Stage(
        home=home,
        auditor_private=keys["auditor"],
        system=system,
        mix=mix,
        contract=ContractVersion.objects.get(pk=versions[0].pk),
        draft=versions[2],
        baseline=measurement.baseline,
        tuning=measurement.package.tuning,
        measurement=measurement,
        open_review=Review.objects.get(pk=reviews[1].pk),
        approved_review=Review.objects.get(pk=reviews[0].pk),
        invoice=invoice,
        report=_report(home, platform, invoice),
        job=_jobs(owner),
        open_period=period_open(
            actor=people["finance"], contract_version=versions[1], label="2026-09"
        ),
        **people,
    )


def _people() -> dict[str, Membership]:
    own = organisation_create(
        slug="lumen", name="Lumen Search GmbH", address="Hafenstr. 7\n20457 Hamburg",
        vat_id="DE123456789",
    )  # fmt: skip
    other = organisation_create(slug="outside", name="Outside Ltd", country="GB")
    host = organisation_create(slug="ignition", name="Ignition", is_operating=True)
    wanted = (("owner", own, "customer"), ("colleague", own, "customer"),
              ("auditor", own, "auditor"), ("finance", own, "finance"),
              ("operator", own, "operator"), ("outsider", other, "customer"),
              ("host", host, "operator"))  # fmt: skip
    return {
        name: member_add(
            actor=Platform(organisation), organisation=organisation, username=name, role=role,
            password=PASSWORD,
        )
        for name, organisation, role in wanted
    }  # fmt: skip


def _mix(home: Path, owner: Membership) -> ModelMix:
    model_file = home / "cache" / "models" / "encoder.onnx"
    workspace.write(model_file, b"onnx bytes of a test")
    lengths = [int(4 + 60 * math.exp(-((index % 40) / 11))) for index in range(400)]
    histogram: dict[int, int] = {}
    for length in lengths:
        histogram[length] = histogram.get(length, 0) + 1
    paths = []
    for name, part in (("samples", lengths[:320]), ("held_out", lengths[320:])):
        offsets = np.cumsum([0, *part], dtype=np.int64)
        path = home / "portal" / "mixes" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, ids=np.ones(int(offsets[-1]), dtype=np.int64), offsets=offsets)
        paths.append(path)
    model = model_register(
        actor=owner, organisation=owner.organisation, name="text-encoder", path=model_file,
        licence="Apache-2.0", source="a pinned wheel",
    )  # fmt: skip
    return mix_register(
        actor=owner, organisation=owner.organisation, name="docstring-sentences", model=model,
        traffic_source="sentences of the standard library's docstrings",
        length_histogram=histogram, samples=paths[0], sample_count=320, held_out=paths[1],
        held_out_count=80,
    )  # fmt: skip


def _contract(owner: Membership, system: System, mix: ModelMix, number: int) -> ContractVersion:
    book = price_book_publish(
        actor=owner,
        organisation=owner.organisation,
        document=PriceBook(
            "EUR", Decimal("0.0480"), datetime(2026, 1, 1, tzinfo=UTC), "framework agreement 2026"
        ),
    )
    provider = Party("ignition", "Ignition", "DE", tax_id="DE999999999")
    customer = Party(
        "lumen", "Lumen Search GmbH", "DE", tax_id="DE123456789", street="Hafenstr. 7",
        postal_code="20457", city="Hamburg",
    )  # fmt: skip
    contract = Contract(
        contract_id=f"LUMEN-{number}", version=1, provider=provider, customer=customer,
        auditor="Vogt Assurance", currency="EUR", zone="Europe/Berlin",
        valid_from=datetime(2026, 8, 1, tzinfo=UTC), tiers=flat_share("0.20"),
        holdback=Decimal("0.10"), vat=Decimal("0.19"),
    )  # fmt: skip
    plan = short_run_plan(
        f"PLAN-{number}", cores=(0, 1), zone="Europe/Berlin", seeds=Seeds(11, 12, 13, 14)
    )
    return contract_draft(
        actor=owner, organisation=owner.organisation, contract=contract, plan=plan, system=system,
        mix=mix, price_book=book,
    )  # fmt: skip


def _sign(version: ContractVersion, party: str, actor: Any, key: Ed25519PrivateKey) -> None:
    party_key_register(
        actor=actor, organisation=version.organisation, party=party,
        public_key_pem=public_pem(key.public_key()).decode(),
    )  # fmt: skip
    plan_sign(
        actor=actor, contract_version=version, party=party, key_id=key_id(key.public_key()),
        signature_b64=base64.b64encode(key.sign(signed_bytes(version))).decode(),
    )  # fmt: skip


def _review(
    home: Path, platform: Platform, version: ContractVersion, key: Ed25519PrivateKey
) -> Review:
    evidence = home / "evidence" / version.contract_id
    document = baseline_document(evidence)
    path = evidence / "baseline" / "baseline.json"
    workspace.write(path, canonical_json(document))
    baseline = baseline_freeze(
        actor=platform,
        contract_version=version,
        figures=BaselineFigures(
            stack="onnxruntime", stack_version="1.24.1", threads=2, arrangement="grouped",
            batch=16, samples_per_second=Decimal("1012.5"), frozen_at=FROZEN_AT,
            document=document,
        ),
        document_file=path,
        evidence=evidence,
    )  # fmt: skip
    tuning = tuning_open(actor=platform, baseline=baseline, seed=7, budget_s=Decimal(90))
    trials(tuning)
    tuning_record(
        actor=platform, tuning=tuning, trials=60, accepted=21,
        rejected={"wrong output": 8, "not faster": 31}, seconds=Decimal("89.412"),
        cost=Decimal("0.002385"), currency="EUR",
    )  # fmt: skip
    folder = home / "packages" / version.contract_id
    workspace.write(folder / "manifest.json", b"{}")
    operators = [
        {"operator": name, "share": share, "trials": 20, "accepted": 7, "time_ns": time_ns,
         "ratio": ratio, "ratio_lo": ratio - 0.02, "ratio_hi": ratio + 0.02,
         "roofline_fraction": 0.71}
        for name, share, time_ns, ratio in (
            ("gemm_bias", 0.41, 33900.0, 1.31), ("attention", 0.22, 71800.0, 1.18),
            ("gemm_bias_gelu", 0.29, 99100.0, 1.24),
        )
    ]  # fmt: skip
    package = package_store(
        actor=platform, tuning=tuning, manifest={"isa": "avx512"},
        manifest_sha256=sha256_bytes(version.contract_id.encode()),
        model_gate={"correct": True, "reason": "", "ratio": 1.19, "ratio_lo": 1.17,
                    "ratio_hi": 1.21, "rounds": 12},
        operators=operators, path=folder,
    )  # fmt: skip
    measurement = measurement_open(
        actor=platform, contract_version=version, baseline=baseline, package=package,
        evidence=evidence,
    )  # fmt: skip
    rows = pairs(evidence, "uplift", GAINS)
    pairs(evidence, "aa", NOISE)
    found = estimate([float(row["log_ratio"]) for row in rows]).to_dict()
    aa = estimate([math.log1p(value) for value in NOISE]).to_dict()
    measured = measurement_record(
        actor=platform,
        measurement=measurement,
        figures=MeasuredFigures(
            aa={"lo": aa["lo"], "hi": aa["hi"], "claim": found["lower_95"], "passed": True,
                "reason": "", "pairs": len(NOISE)},
            uplift=found, pairs=rows,
            accuracy={"min_cosine": "0.99999987", "mean_cosine": "0.99999996",
                      "max_abs_error": "0.0000021", "samples": 80, "floor": "0.9999",
                      "passed": True},
            uplift_point=Decimal(str(round(float(found["point"]), 9))),
            uplift_lower_95=Decimal(str(round(float(found["lower_95"]), 9))),
            kept=True, reason="",
        ),
        evidence=evidence,
    )  # fmt: skip
    statement = canonical_json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "evidence", "digest": {"sha256": measured.evidence_sha256}}],
            "predicate": {"measurement": str(measured.pk), "lower_95": str(found["lower_95"])},
        }
    )
    return review_open(
        actor=platform, measurement=measured, statement=statement, envelope=sign(statement, key)
    )


def _bill(home: Path, people: dict[str, Membership], measurement: Measurement) -> Invoice:
    owner, finance = people["owner"], people["finance"]
    usage_ingest(actor=owner, organisation=owner.organisation, lines=usage_lines(), via="file")
    period = period_open(
        actor=finance, contract_version=measurement.contract_version, label="2026-09"
    )
    for item in preview(period, measurement).disqualifications:
        override_state(
            actor=people["auditor"], period=period, measurement=measurement, rule=item.name,
            reason="A pilot: both parties agreed to bill what one day of runs and reports show.",
        )  # fmt: skip
    savings = savings_compute(actor=finance, period=period, measurement=measurement)
    invoice = invoice_issue(
        actor=finance, savings=savings, issued_at=datetime(2026, 10, 2, 8, 15, tzinfo=UTC)
    )
    document = InvoiceDocument.from_json(invoice.document)
    folder = home / "documents" / "exports"
    files = {
        "focus": ("focus.csv", focus_csv([document])[0].encode()),
        "ubl": ("invoice.xml", ubl_xml(document)),
        "journal": ("journal.csv", journal_csv([document])[0].encode()),
    }
    for file_format, (name, content) in files.items():
        workspace.write(folder / name, content)
        export_write(actor=finance, invoice=invoice, file_format=file_format, path=folder / name)
    return invoice


def _dispute(people: dict[str, Membership], invoice: Invoice) -> None:
    """A dispute that finance has released: the invoice is as it was, with a history."""
    dispute_open(
        actor=people["owner"], invoice=invoice, lines=["1"], reason="volume of 3 September",
        on=date(2026, 10, 5),
    )  # fmt: skip
    dispute_release(
        actor=people["finance"], invoice=invoice, at=datetime(2026, 10, 9, 7, tzinfo=UTC)
    )


def _report(home: Path, platform: Platform, invoice: Invoice) -> Report:
    folder = home / "documents" / "reports"
    workspace.write(folder / f"{invoice.number}.pdf", b"%PDF-1.7 of a test\n")
    workspace.write(folder / "bundle.zip", b"PK of a test")
    checks = [
        {"name": name, "ok": True, "detail": detail}
        for name, detail in (
            ("signatures", "platform and auditor over the same statement"),
            ("evidence", "uplift and fee recomputed from the logs"),
            ("log", "inclusion proof holds for the checkpoint"),
        )
    ]
    return report_issue(
        actor=platform, invoice=invoice, facts={}, facts_sha256="fa" * 32,
        statement_sha256="5a" * 32, pdf=folder / f"{invoice.number}.pdf",
        bundle=folder / "bundle.zip", log_index=0, checkpoint="ignition/log\n1\nAAAA\n",
        verified=True, verification={"ok": True, "checks": checks},
        issued_at=datetime(2026, 10, 2, 8, 16, tzinfo=UTC),
    )  # fmt: skip


def _jobs(owner: Membership) -> Job:
    """A finished, a failed, a waiting and a running job; the running one is returned."""
    made = [
        jobs.job_request(
            actor=owner, organisation=owner.organisation, kind="main", key=key, arguments={}
        )
        for key in ("2026-08", "2026-09", "2026-10", "2026-11")
    ]
    for job, state in zip(made[:2], (Job.State.DONE, Job.State.FAILED), strict=True):
        lease = jobs.claim(owner=jobs.new_owner(), job_id=job.pk)
        assert lease is not None
        with lease.step(1, "register", "Register system and mix") as line:
            line("system search-eu-1 r2")
        error = "" if state == Job.State.DONE else "RunRefused: the host is too busy"
        jobs.finish(lease, state=state, error=error)
    lease = jobs.claim(owner=jobs.new_owner(), job_id=made[2].pk)
    assert lease is not None
    with lease.step(1, "register", "Register system and mix") as line:
        line("system search-eu-1 r2")
    with lease.step(2, "baseline", "Fix the baseline") as line:
        line("screening 4 of 12: onnxruntime, 2 threads, padded")
    Job.objects.filter(pk=made[2].pk).update(lease_until=timezone.now() + timedelta(minutes=5))
    return Job.objects.get(pk=made[2].pk)
