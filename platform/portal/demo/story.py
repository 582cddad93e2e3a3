"""The main job in nine steps, as the parties live it.

In: options. Out: an exit status, `var/demo/summary.json`, and everything the portal then shows.
Each step calls services or works through jobs; running it again finds what is done and adds the
next month. A signal or a kill at any point leaves a state the next run continues from.
"""

import time
from dataclasses import dataclass

from portal.audits.models import Review
from portal.audits.services import review_approve
from portal.billing.models import BillingPeriod, Invoice
from portal.billing.services import period_open
from portal.contracts.models import ContractVersion
from portal.demo import parties, scenario, summary
from portal.demo.parties import Cast
from portal.demo.terminal import Terminal
from portal.documents.models import Report
from portal.runs import jobs
from portal.runs.handlers import handler_for
from portal.runs.models import Job, Measurement
from portal.runs.pipeline.report import staging_folder
from portal.runs.requests import bill_request, measure_request, seal_request
from portal.workspace import absolute, home, remove_stale
from reports.bundle import auditor_sign, sign_statement

DONE, NO = 0, 1
# Steps of the "measure" job and what they are among the nine.
MEASURE_STEPS = {
    "baseline": (3, "Fix the baseline: LoadGen on the stock stacks, the fastest correct one"),
    "tune": (4, "Generate kernels: propose, compile, judge, measure, keep what wins"),
    "measure": (5, "Measure the uplift: A/A gate, interleaved pairs, accuracy"),
}
FOLLOW_EVERY_S = 1.0
UNFINISHED_UNDER = ("evidence", "packages", "documents", "portal/mixes", "keys", "demo")


class DemoStopped(Exception):
    """The demonstration cannot go on; the message says why and what to do."""


@dataclass(frozen=True)
class Options:
    """What the command line may change; only the first run's values reach the signed plan."""

    budget_s: int = 60
    pairs: int = 24
    cores: int = 2


def run(options: Options, terminal: Terminal) -> int:
    """Play the demonstration once; 0 when a month was billed, or none is left to bill."""
    started = time.monotonic()
    jobs.sweep()
    jobs.reclaim_dead()
    _clear_leftovers()
    with terminal.step(1, "Register the customer, this machine, the model and its traffic"):
        cast = parties.gather()
        registered = scenario.register(cast)
        machine = registered.system.machine
        terminal.hear(
            f"{registered.system}: {machine['cpu_model']}, {machine['cores']} cores,"
            f" {machine['memory_bytes'] / 2**30:.0f} GiB, {registered.mix.sample_count} sentences"
        )
    with terminal.step(2, "Agree on plan and contract; provider, customer and auditor sign"):
        parties.make_keys(cast)
        version = scenario.agree(
            cast,
            registered,
            budget_s=options.budget_s,
            pairs=options.pairs,
            cores=options.cores,
        )
        parties.sign_agreement(cast, version)
        version.refresh_from_db()
        terminal.hear(
            f"{version}: short-run plan {version.plan['plan_id']}, {version.plan['pairs']} pairs of"
            f" {version.plan['run_seconds']} s, share 20 % on the lower bound, {version.status}"
        )
    measured = _measure(cast, version, terminal)
    with terminal.step(6, "Let the auditor recompute, and sign with keys the portal never sees"):
        terminal.hear(_audit(cast, measured))
    measured.refresh_from_db()
    if measured.state != Measurement.State.APPROVED:
        raise DemoStopped(f"{measured}: the auditor has rejected it; nothing is billed")
    month = scenario.next_month(version)
    if month is None:
        terminal.say("Every month that has ended is billed; here is the last one once more.")
        report = Report.objects.filter(organisation=cast.organisation).latest("issued_at")
        return _hand_over(report, terminal, started)
    with terminal.step(7, f"Meter {month.label}: usage, savings, fee, invoice, journal"):
        batch = scenario.meter(cast, version, month)
        period = period_open(actor=cast.finance, contract_version=version, label=month.label)
        for stated in scenario.override_pilot(cast, period, measured):
            terminal.hear(f"{stated.rule}: {stated.found}; overridden by {stated.stated_by}")
        invoice = _bill(cast, period, measured, terminal)
        terminal.hear(
            f"{batch.lines} events ({batch.duplicates} duplicates),"
            f" {invoice.savings.volume_samples} sentences; invoice {invoice.number}:"
            f" {invoice.document['fee']}"
            f" {invoice.currency} fee, {invoice.document['payable']} payable"
        )
    with terminal.step(8, "Report: certify, countersign, seal, verify offline"):
        report = _report(cast, invoice, terminal)
        checks = report.verification["checks"]
        terminal.hear(
            f"{sum(check['ok'] for check in checks)} of {len(checks)} checks hold;"
            f" bundle {report.bundle.sha256[:16]}, log entry {report.log_index}"
        )
    with terminal.step(9, "Export for finance: FOCUS, UBL, journal"):
        terminal.hear(", ".join(sorted(summary.deliver_exports(invoice))))
    return _hand_over(report, terminal, started)


def _hand_over(report: Report, terminal: Terminal, started: float) -> int:
    """Verify what is handed over as its reader does, write the summary, print the table."""
    verified = summary.verify_delivered(report)
    document = summary.write_summary(
        elapsed_s=time.monotonic() - started,
        report=report,
        verified=verified.ok,
        exports=summary.deliver_exports(report.invoice),
    )
    terminal.say()
    terminal.table(summary.table(document, report))
    _tell_sign_ins(terminal)
    return DONE if verified.ok else NO


def _clear_leftovers() -> None:
    """Remove what a killed run left half written, unless a living process works on a job."""
    if Job.objects.filter(state=Job.State.RUNNING).exists():
        return
    for name in UNFINISHED_UNDER:
        folder = home() / name
        if folder.is_dir():
            remove_stale(folder)


def _work(job: Job, listener: jobs.Listener) -> Job:
    """See a job to its end: work on it here, or follow the worker that got it first."""
    told = ("", "")
    while job.state != Job.State.DONE:
        if job.state in (Job.State.FAILED, Job.State.CANCELLED):
            raise DemoStopped(f"job {job.kind}: {job.state} at step {job.step}; {job.error}")
        lease = jobs.claim(owner=jobs.new_owner(), job_id=job.pk)
        if lease is not None:
            lease.listener = listener
            try:
                jobs.work(lease, handler_for(job.kind))
            except Exception as error:
                raise DemoStopped(f"{_place(job)}: {type(error).__name__}: {error}") from error
        else:
            told = _follow(job, listener, told)
        job.refresh_from_db()
    return job


def _place(job: Job) -> str:
    job.refresh_from_db()
    return f"job {job.kind} stopped at step {job.step} and waits to be tried again"


def _follow(job: Job, listener: jobs.Listener, told: tuple[str, str]) -> tuple[str, str]:
    """Pass on what another worker says about a job; take it back should that worker die."""
    time.sleep(FOLLOW_EVERY_S)
    jobs.sweep()
    jobs.reclaim_dead()
    job.refresh_from_db()
    if job.step != told[0]:
        listener(job.step, job.progress)
    elif job.progress != told[1]:
        listener("", job.progress)
    return job.step, job.progress


def _measure(cast: Cast, version: ContractVersion, terminal: Terminal) -> Measurement:
    """Steps 3 to 5 are one job; each opens on the terminal when the job reaches it."""
    told: set[str] = set()

    def listener(step: str, text: str) -> None:
        if step in MEASURE_STEPS and step not in told:
            terminal.end()
            terminal.begin(*MEASURE_STEPS[step])
            told.add(step)
        elif step:
            # "review" opens what step 6 is about, and has no line of its own.
            terminal.end()
        else:
            terminal.hear(text)

    try:
        job = measure_request(
            actor=cast.platform,
            contract_version=version,
            as_found=scenario.as_found(version.plan),
        )
        _work(job, listener)
    finally:
        terminal.end()
    for name, (number, title) in MEASURE_STEPS.items():
        if not told:
            with terminal.step(number, title):
                terminal.hear(f"kept from before: {job.steps.get(name=name).detail}")
    return Measurement.objects.get(contract_version=version, run_number=1)


def _audit(cast: Cast, measured: Measurement) -> str:
    """The auditor takes statement and evidence, recomputes and signs, and uploads the envelope."""
    review = Review.objects.get(measurement=measured)
    if review.state == Review.State.OPEN:
        envelope = sign_statement(
            review.envelope.encode("ascii"),
            parties.auditor_keys_dir(),
            evidence=absolute(measured.evidence_path),
            trust=parties.trust_dir(),
        )
        review = review_approve(actor=cast.auditor, review=review, envelope=envelope)
    key = review.auditor_key.key_id[:16] if review.auditor_key else "no key"
    return f"{review.state} by {review.decided_by} with key {key}"


def _bill(cast: Cast, period: BillingPeriod, measured: Measurement, terminal: Terminal) -> Invoice:
    job = bill_request(
        actor=cast.platform, period=period, measurement=measured, notes=[scenario.NOTE]
    )
    _work(job, lambda _step, text: terminal.hear(text))
    invoice: Invoice = Invoice.objects.select_related("savings", "period", "measurement").get(
        period=period, live=True
    )
    return invoice


def _report(cast: Cast, invoice: Invoice, terminal: Terminal) -> Report:
    """The auditor countersigns the prepared folder with their tool, then the platform seals it."""
    staging = staging_folder(invoice)
    if staging.is_dir() and not Report.objects.filter(invoice=invoice).exists():
        auditor_sign(staging, parties.auditor_keys_dir(), trust=parties.trust_dir())
    job = seal_request(actor=cast.platform, invoice=invoice)
    _work(job, lambda _step, text: terminal.hear(text))
    report: Report = Report.objects.select_related(
        "bundle", "pdf", "invoice__savings", "measurement__contract_version"
    ).get(invoice=invoice)
    return report


def _tell_sign_ins(terminal: Terminal) -> None:
    path = parties.credentials_file()
    terminal.say()
    terminal.say("Open the portal with 'make serve'. Sign in as (role, user, password):")
    for line in path.read_text("utf-8").splitlines():
        terminal.say(f"  {line}")
    terminal.say(f"Kept in {path} (only you can read it).")
