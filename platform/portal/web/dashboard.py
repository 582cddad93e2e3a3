"""What is going on and what comes next, for one actor.

In: an actor. Out: the dashboard's context: the way from machine to invoice with each step's state,
the figures of the newest work, and the one thing this role should do next. Rows come from selectors
only, so a role never sees a figure here that its own pages would refuse.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from portal.accounts.access import sees
from portal.accounts.models import Membership, Role
from portal.audits.models import Review
from portal.audits.selectors import review_list
from portal.billing.periods import FINANCE, month_list
from portal.billing.selectors import invoice_list, savings_list, usage_batch_list
from portal.contracts.models import ContractVersion
from portal.contracts.selectors import contract_list, missing_signatures
from portal.documents.selectors import report_list
from portal.events.selectors import event_list
from portal.registry.selectors import mix_list, system_list
from portal.runs.models import Job, Measurement, Tuning
from portal.runs.selectors import baseline_list, job_list, measurement_list, tuning_list
from portal.web.figures import Figure, Step
from portal.web.formats import duration, fixed, number, signed_percent

INTROS = {
    Role.CUSTOMER: "You are acting as customer: your machines, your traffic, your savings.",
    Role.AUDITOR: "You are acting as auditor: every number opens down to its log line.",
    Role.FINANCE: "You are acting as finance: savings, invoices, journal and exports.",
    Role.OPERATOR: "You are acting as operator: jobs, leases and machines.",
}


@dataclass(frozen=True)
class Next:
    """The one thing to do now."""

    title: str
    detail: str
    url: str = ""
    action: str = ""


def overview(actor: Membership) -> dict[str, Any]:
    """The dashboard's context for one actor."""
    rows = _newest(actor)
    live = job_list(actor=actor).filter(state__in=(Job.State.QUEUED, Job.State.RUNNING))
    return {
        "intro": INTROS[Role(actor.role)],
        "steps": _steps(actor, rows),
        "figures": _figures(rows),
        "next": _next(actor, rows),
        "jobs": list(live[:5]) if sees(actor, "jobs") else None,
        "failed": job_list(actor=actor).filter(state=Job.State.FAILED).count(),
        "events": list(event_list(actor=actor).order_by("-seq")[:7])
        if sees(actor, "events")
        else None,
    }


def _newest(actor: Membership) -> dict[str, Any]:
    """The newest row of each kind the actor sees, None when there is none."""
    lists: dict[str, QuerySet[Any]] = {
        "systems": system_list(actor=actor).order_by("-created_at"),
        "mixes": mix_list(actor=actor).order_by("-created_at"),
        "contracts": contract_list(actor=actor).order_by("-created_at"),
        "baselines": baseline_list(actor=actor),
        "tunings": tuning_list(actor=actor),
        "measurements": measurement_list(actor=actor),
        "reviews": review_list(actor=actor),
        "usage": usage_batch_list(actor=actor),
        "savings": savings_list(actor=actor),
        "invoices": invoice_list(actor=actor),
        "reports": report_list(actor=actor),
    }
    return {name: rows.first() for name, rows in lists.items()}


def _steps(actor: Membership, rows: dict[str, Any]) -> list[Step]:
    """The way from machine to signed report, as far as this role sees it."""
    plan: tuple[tuple[str, str, str, str, str], ...] = (
        ("systems", "systems", "System registered", "registry:systems", "done"),
        ("mixes", "mixes", "Model mix registered", "registry:mixes", "done"),
        ("contracts", "contracts", "Contract and plan signed", "contracts:contracts", ""),
        ("baselines", "baselines", "Baseline frozen", "runs:baselines", "frozen"),
        ("tunings", "tunings", "Kernels searched", "runs:tunings", ""),
        ("measurements", "measurements", "Uplift measured", "runs:measurements", ""),
        ("reviews", "reviews", "Auditor's signature", "audits:reviews", ""),
        ("usage", "usage", "Usage metered", "billing:usage", "done"),
        ("savings", "billing", "Savings computed", "billing:savings-list", "done"),
        ("invoices", "billing", "Invoice issued", "billing:invoices", "issued"),
        ("reports", "reports", "Signed report", "documents:files", ""),
    )
    steps = []
    for kind, subject, title, route, state in plan:
        if not sees(actor, subject):
            continue
        row = rows[kind]
        steps.append(Step(title, _state(kind, row, state), _detail(kind, row), reverse(route)))
    return steps


def _state(kind: str, row: Any, fixed_state: str) -> str:
    if row is None:
        return "not yet"
    if kind == "contracts":
        return str(row.status)
    if kind == "reports":
        return "verified" if row.verified else "not verified"
    return fixed_state or str(row.state)


def _detail(kind: str, row: Any) -> str:
    """What the newest row of a kind is, in few words."""
    if row is None:
        return ""
    if kind == "baselines":
        return f"{row.stack} {row.stack_version}, {number(row.samples_per_second)} samples/s"
    if kind == "tunings":
        return f"trials: {row.trials}, accepted: {row.accepted}, in {duration(row.seconds)}"
    if kind == "measurements":
        kept = "" if row.kept else ", not kept"
        return f"{signed_percent(row.uplift_lower_95)} at the lower bound{kept}"
    if kind == "reviews":
        return f"measurement for {row.measurement.contract_version}"
    if kind == "savings":
        return f"{row.period.label}: {fixed(row.billable, 2)} {row.currency} on the lower bound"
    return f"on {row.invoice.number}" if kind == "reports" else str(row)


def _figures(rows: dict[str, Any]) -> list[Figure]:
    """Baseline, uplift, savings and fee of the newest work."""
    figures = []
    baseline, measurement = rows["baselines"], rows["measurements"]
    savings, tuning = rows["savings"], rows["tunings"]
    if baseline:
        figures.append(
            Figure("Baseline", number(baseline.samples_per_second, 4), "samples/s",
                   note=f"{baseline.stack} {baseline.stack_version}")
        )  # fmt: skip
    if measurement and measurement.uplift_lower_95 is not None:
        label = "Uplift that bills" if measurement.kept else "Lower bound, not billed"
        figures.append(
            Figure(label, signed_percent(measurement.uplift_lower_95),
                   note=f"estimate {signed_percent(measurement.uplift_point)}",
                   state="kept" if measurement.kept else "not kept")
        )  # fmt: skip
    if savings:
        figures.append(
            Figure(f"Billable savings, {savings.period.label}", fixed(savings.billable, 2),
                   savings.currency, note=f"fee {fixed(savings.fee, 2)} {savings.currency}")
        )  # fmt: skip
    elif tuning:
        figures.append(
            Figure("Search", number(tuning.trials), "trials", note=f"{tuning.accepted} accepted",
                   state=tuning.state)
        )  # fmt: skip
    return figures


def _next(actor: Membership, rows: dict[str, Any]) -> Next | None:
    """The next step of this role, or what everybody waits for."""
    chosen = {
        Role.CUSTOMER: _next_customer,
        Role.AUDITOR: _next_auditor,
        Role.FINANCE: _next_finance,
        Role.OPERATOR: _next_operator,
    }
    return chosen[Role(actor.role)](actor, rows)


def _unsigned(actor: Membership, rows: dict[str, Any]) -> Next | None:
    version: ContractVersion | None = rows["contracts"]
    if version is None or version.status == ContractVersion.Status.SIGNED:
        return None
    missing = missing_signatures(contract_version=version)
    if str(actor.role) not in missing:
        return Next("wait for signatures", f"{version} still lacks: {', '.join(missing)}.")
    url = reverse("contracts:contract", args=[version.pk])
    return Next("sign the plan", f"{version} waits for your signature.", url, "Open the contract")


def _next_customer(actor: Membership, rows: dict[str, Any]) -> Next:
    if rows["systems"] is None:
        return Next(
            "register a system",
            "Describe the machine with `python -m kernelgen machine --json` and register it "
            "through the API, then a model mix and a price book.",
        )
    if rows["mixes"] is None:
        return Next("register a model mix", "A model with the traffic it serves.")
    if rows["contracts"] is None:
        return Next("draft a contract", "With its measurement plan, through the API.")
    unsigned = _unsigned(actor, rows)
    if unsigned:
        return unsigned
    tuning, measurement = rows["tunings"], rows["measurements"]
    if tuning and tuning.state == Tuning.State.RUNNING:
        url = reverse("runs:tuning", args=[tuning.pk])
        return Next("watch the search", "Kernels are being searched.", url, "Open the search")
    if measurement is None:
        return Next("run the main job", "Baseline, search and measurement follow the signed plan.")
    if measurement.state == Measurement.State.MEASURED:
        return Next("wait for the auditor", "The measurement is under review; nothing bills yet.")
    if rows["usage"] is None:
        return Next("send usage", "CloudEvents lines through the API; each id counts once.")
    if rows["invoices"]:
        url = reverse("billing:invoice", args=[rows["invoices"].pk])
        return Next("check the newest invoice", "Each line opens to its inputs.", url, "Open it")
    return Next("wait for finance", "The period's invoice is issued by finance.")


def _next_auditor(actor: Membership, rows: dict[str, Any]) -> Next:
    unsigned = _unsigned(actor, rows)
    if unsigned:
        return unsigned
    queue = review_list(actor=actor).filter(state=Review.State.OPEN).order_by("created_at")
    first = queue.first()
    if first is not None:
        url = reverse("audits:review", args=[first.pk])
        return Next(
            "review a measurement",
            f"{queue.count()} in the queue, the oldest first.",
            url,
            "Open the review",
        )
    return Next("nothing waits for you", "A review opens by itself when a measurement is done.")


def _next_finance(actor: Membership, rows: dict[str, Any]) -> Next:
    waiting = [month for month in month_list(actor=actor) if month.standing.who == FINANCE]
    if waiting:
        oldest = waiting[-1]
        url = (
            reverse("billing:period", args=[oldest.period.pk])
            if oldest.period
            else reverse("billing:periods")
        )
        told = f"{oldest.version.contract_id} {oldest.label}: {oldest.standing.why}."
        return Next(oldest.standing.next, told, url, "Open the period")
    invoice = rows["invoices"]
    if invoice:
        url = reverse("billing:invoice", args=[invoice.pk])
        return Next(
            "book the newest invoice",
            f"{invoice.number}: take the journal export and compare its totals.",
            url,
            "Open the invoice",
        )
    return Next(
        "wait for an approved measurement",
        "An invoice gets its number only when the auditor has signed.",
    )


def _next_operator(actor: Membership, rows: dict[str, Any]) -> Next:
    failed = job_list(actor=actor).filter(state=Job.State.FAILED).count()
    if failed:
        url = f"{reverse('runs:jobs')}?state=failed"
        return Next("look at failed jobs", f"{failed} failed.", url, "Open the list")
    return Next("nothing failed", "Queued and running jobs are listed below.")
