"""From measured evidence to a verified bundle, through the jobs the portal runs.

The evidence is a recording of real LoadGen runs (see tests/reports); everything after it happens
here: review, approval, usage, savings, invoice, report, seal, exports. Each failure is thrown at a
step of the real job, and the job is then simply run again.
"""

# ruff: noqa: F811 - pytest finds the imported fixture by the name of an argument.

from collections.abc import Callable

import pytest

from portal.audits.models import Review
from portal.billing.models import Export, Invoice, UsageBatch, UsageEvent
from portal.documents.models import Report, StoredFile
from portal.documents.services import file_download
from portal.events.services import chain_check
from portal.keystore import transparency_log
from portal.runs.models import Job
from portal.runs.pipeline import report as report_steps
from portal.workspace import WorkspaceError, absolute, sha256_file
from reports.bundle import auditor_sign
from reports.errors import ReportError
from reports.recount import recount_measurement
from reports.verify import verify
from tests.portal.money_stage import (  # noqa: F401
    Stage,
    approve,
    bill,
    contest,
    deliver,
    packed,
    seal,
    stage,
)


def test_the_whole_way(stage: Stage):
    approve(stage)
    deliver(stage, "2026-09")
    volume = sum(UsageEvent.objects.values_list("samples", flat=True)) + contest(stage)
    invoice = bill(stage)
    assert invoice.savings.volume_samples == volume
    decided = report_steps.staging_folder(invoice) / "evidence/usage/2026-09/decisions.json"
    assert "the first reading was cut off" in decided.read_text("utf-8")
    auditor_sign(report_steps.staging_folder(invoice), stage.auditor, trust=stage.trust)
    report = seal(stage, invoice)
    assert report.verified, report.verification["failed"]
    # What a stranger does, with the trust folder they got elsewhere.
    path = file_download(actor=stage.cast.auditor, stored_file=report.bundle)
    checked = verify(path, stage.trust)
    assert checked.ok, checked.failed
    assert {check.name for check in checked.checks} >= {"uplift-recomputed", "fee-recomputed"}
    assert Export.objects.filter(invoice=invoice).count() == len(Export.Format)
    assert not report_steps.staging_folder(invoice).exists()
    assert chain_check().ok
    (entry,) = transparency_log().entries()
    assert entry.startswith(b"ignition-report-bundle/v1\n")


def test_all_again_changes_nothing(stage: Stage):
    approve(stage)
    deliver(stage, "2026-09")
    invoice = bill(stage)
    auditor_sign(report_steps.staging_folder(invoice), stage.auditor, trust=stage.trust)
    report = seal(stage, invoice)
    files = {f.path: f.sha256 for f in StoredFile.objects.all()}
    Job.objects.update(state="queued", finished_at=None)
    assert bill(stage).pk == invoice.pk
    assert seal(stage, invoice).pk == report.pk
    assert {f.path: f.sha256 for f in StoredFile.objects.all()} == files
    assert all(sha256_file(absolute(path)) == digest for path, digest in files.items())


def test_measured_folder_is_not_touched_by_billing(stage: Stage):
    approve(stage)
    deliver(stage, "2026-09")
    invoice = bill(stage)
    from reports.statement import evidence_digest

    folder = absolute(stage.measurement.evidence_path)
    assert evidence_digest(folder) == stage.measurement.evidence_sha256
    assert (report_steps.staging_folder(invoice) / "evidence" / "invoice").is_dir()


def test_no_seal_before_the_auditor(stage: Stage):
    approve(stage)
    deliver(stage, "2026-09")
    invoice = bill(stage)
    with pytest.raises(WorkspaceError, match="has not countersigned"):
        seal(stage, invoice)
    assert Report.objects.count() == 0


def test_no_invoice_before_the_auditor(stage: Stage):
    deliver(stage, "2026-09")
    with pytest.raises(ValueError, match="not approved by the auditor"):
        bill(stage)
    assert Invoice.objects.count() == 0


def test_changed_evidence_is_not_signed(stage: Stage):
    """The auditor's tool recomputes before it signs."""
    folder = absolute(stage.measurement.evidence_path)
    victim = sorted((folder / "uplift" / "runs").glob("*/mlperf_log_detail.txt"))[0]
    victim.write_bytes(victim.read_bytes() + b"\n")
    with pytest.raises(ReportError, match="not about the measured files"):
        approve(stage)
    assert Review.objects.get().state == "open"


@pytest.mark.parametrize(
    "where",
    [
        "portal.runs.pipeline.main.invoice_issue",
        "portal.billing.services.journal_post",
        "portal.runs.pipeline.report.report_facts",
        "reports.bundle.render",
    ],
)
def test_bill_goes_on_after_a_failure(stage: Stage, monkeypatch, where: str):
    approve(stage)
    deliver(stage, "2026-09")
    with monkeypatch.context() as broken:
        broken.setattr(where, failing(where))
        with pytest.raises(RuntimeError, match="the power went"):
            bill(stage)
    invoice = bill(stage)
    assert (invoice.number, Invoice.objects.count()) == ("INV-000001", 1)
    assert (report_steps.staging_folder(invoice) / "report.pdf").is_file()
    leftovers = [path.name for path in report_steps.report_folder(invoice).iterdir()]
    assert leftovers == ["staging"]


@pytest.mark.parametrize(
    "where",
    [
        "reports.bundle.write",
        "portal.runs.pipeline.report.verify",
        "portal.runs.pipeline.report.report_issue",
        "portal.runs.pipeline.main.export_write",
    ],
)
def test_seal_goes_on_after_a_failure(stage: Stage, monkeypatch, where: str):
    approve(stage)
    deliver(stage, "2026-09")
    invoice = bill(stage)
    auditor_sign(report_steps.staging_folder(invoice), stage.auditor, trust=stage.trust)
    with monkeypatch.context() as broken:
        broken.setattr(where, failing(where))
        with pytest.raises(RuntimeError, match="the power went"):
            seal(stage, invoice)
    report = seal(stage, invoice)
    assert report.verified
    assert len(transparency_log().entries()) == 1
    assert sorted(p.name for p in report_steps.report_folder(invoice).iterdir()) == [
        "bundle.zip",
        "report.pdf",
    ]


def failing(where: str) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"the power went at {where}")

    return fail


def test_second_month_follows_the_first(stage: Stage):
    approve(stage)
    for label in ("2026-09", "2026-10"):
        deliver(stage, label)
    first, second = bill(stage, "2026-09"), bill(stage, "2026-10")
    assert [first.number, second.number] == ["INV-000001", "INV-000002"]
    # The same volume at the same uplift costs the same, in every month.
    assert first.document["fee"] == second.document["fee"]
    assert UsageBatch.objects.count() == 2


def test_facts_say_what_the_evidence_gives(stage: Stage):
    from portal.runs.pipeline.facts import measurement_facts

    facts = measurement_facts(stage.measurement)
    recount_measurement(absolute(stage.measurement.evidence_path), facts)
    assert facts.uplift.kept == stage.measurement.kept
    assert facts.auditor.reference.startswith("key ")
