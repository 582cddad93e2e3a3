"""The kinds of job: what each does, step by step, under a lease.

In: a lease on a job row. Out: finished steps. A handler may be called again at any time; steps
that are done return what is there. Long engine calls renew the lease from a thread; each step
begins with a look at it, so that a job that was cancelled or taken over stops there.
"""

from collections.abc import Mapping

from django.utils import timezone

from metering.loadgen.spec import SutSpec
from portal.accounts.access import Platform
from portal.billing.exports import export_formats, export_path
from portal.billing.models import BillingPeriod, Invoice
from portal.billing.services import export_write, invoice_issue, savings_compute
from portal.contracts.models import ContractVersion
from portal.runs.jobs import Lease
from portal.runs.models import Measurement
from portal.runs.pipeline import baseline, measure, report, review, tune


def _actor(lease: Lease) -> Platform:
    return Platform(lease.job.organisation, lease.job.requested_by)


def run_measure(lease: Lease) -> None:
    """Baseline, search, measurement, review: arguments contract_version, maybe as_found."""
    version = ContractVersion.objects.select_related(
        "organisation", "system", "mix__model", "price_book"
    ).get(pk=lease.job.arguments["contract_version"], organisation=lease.job.organisation)
    actor = _actor(lease)
    with lease.step(1, "baseline", "Fix the baseline") as line:
        given = lease.job.arguments.get("as_found")
        frozen = baseline.fix_baseline(
            actor=actor,
            contract_version=version,
            line=line,
            as_found=None if given is None else SutSpec.from_dict(given),
        )
        line(f"{frozen} ({frozen.threads} threads, {frozen.arrangement} {frozen.batch})")
    with lease.step(2, "tune", "Generate kernels") as line:
        package = tune.generate_kernels(actor=actor, baseline=frozen, line=line)
        line(f"{package.tuning.trials} trials in {package.tuning.seconds} s")
    with lease.step(3, "measure", "Measure the uplift") as line:
        measured = measure.measure_package(actor=actor, package=package, line=line)
        line(_verdict(measured))
    with lease.step(4, "review", "Ask the auditor") as line:
        opened = review.present(actor=actor, measurement=measured)
        line(f"review {opened.state}, statement {opened.statement_sha256[:12]}")


def run_remeasure(lease: Lease) -> None:
    """Measure a baseline again and register it: arguments contract_version, number."""
    arguments = lease.job.arguments
    version = ContractVersion.objects.select_related(
        "organisation", "system", "mix__model", "price_book"
    ).get(pk=arguments["contract_version"], organisation=lease.job.organisation)
    with lease.step(1, "remeasure", "Measure the baseline again") as line:
        entry = baseline.remeasure(
            actor=_actor(lease), contract_version=version, number=arguments["number"], line=line
        )
        line(f"{entry}, {entry.stack_version}")


def _verdict(measured: Measurement) -> str:
    uplift: Mapping[str, str] = measured.uplift
    verdict = "kept" if measured.kept else f"not kept: {measured.reason}"
    return (
        f"uplift {float(uplift['point']):+.2%}, 95 % from {float(uplift['lo']):+.2%} to"
        f" {float(uplift['hi']):+.2%}, lower bound {float(uplift['lower_95']):+.2%}: {verdict}"
    )


def run_bill(lease: Lease) -> None:
    """Savings, invoice and the report for countersigning: arguments period, measurement, notes."""
    arguments = lease.job.arguments
    organisation = lease.job.organisation
    actor = _actor(lease)
    period = BillingPeriod.objects.get(pk=arguments["period"], organisation=organisation)
    measured = Measurement.objects.get(pk=arguments["measurement"], organisation=organisation)
    with lease.step(1, "savings", "Compute the savings") as line:
        savings = savings_compute(actor=actor, period=period, measurement=measured)
        line(f"{savings.volume_samples} samples, {savings.billable} {savings.currency} billable")
    with lease.step(2, "invoice", "Issue the invoice") as line:
        invoice = invoice_issue(
            actor=actor,
            savings=savings,
            issued_at=timezone.now(),
            notes=arguments.get("notes", []),
        )
        line(f"{invoice.number}: {invoice.gross} {invoice.currency}")
    with lease.step(3, "prepare", "Prepare the report") as line:
        report.prepare(invoice=invoice)
        line(f"report on {invoice.number} is signed by the platform and waits for the auditor")


def run_seal(lease: Lease) -> None:
    """Seal, verify, export once the auditor has countersigned: arguments {"invoice": id}."""
    invoice = Invoice.objects.get(
        pk=lease.job.arguments["invoice"], organisation=lease.job.organisation
    )
    actor = _actor(lease)
    with lease.step(1, "seal", "Seal and verify the bundle") as line:
        issued = report.seal(actor=actor, invoice=invoice)
        checks = issued.verification["checks"]
        good = sum(check["ok"] for check in checks)
        line(f"{good} of {len(checks)} checks hold, log entry {issued.log_index}")
    with lease.step(2, "export", "Write the exports") as line:
        formats = export_formats(invoice)
        for file_format in formats:
            export_write(
                actor=actor,
                invoice=invoice,
                file_format=file_format,
                path=export_path(invoice, file_format),
            )
        line(f"{len(formats)} exports of {invoice.number}")
