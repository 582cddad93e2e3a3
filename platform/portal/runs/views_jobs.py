"""Jobs: what long work is doing now, who holds it, and the button that stops it."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import may
from portal.runs import selectors
from portal.runs.filters import JobFilter
from portal.runs.jobs import job_cancel as cancel
from portal.runs.models import Job
from portal.runs.tables import JobTable
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.figures import crumbs
from portal.web.formats import duration
from portal.web.lists import list_page

LIVE = (Job.State.QUEUED, Job.State.RUNNING)


@require_safe
@for_readers_of("jobs")
def jobs(request: ActorRequest) -> HttpResponse:
    """Every job the actor may see, newest first."""
    return list_page(
        request,
        title="Jobs",
        intro="The database is the queue: who holds a job's lease works on it, nobody else.",
        rows=selectors.job_list(actor=request.actor),
        table=JobTable,
        filterset=JobFilter,
        empty="Nothing was asked for yet. `make demo` asks for the main job.",
    )


@require_safe
@for_readers_of("jobs")
def job(request: ActorRequest, job_id: object) -> HttpResponse:
    """One job with its steps; the status part refreshes itself while the job lives."""
    shown = selectors.job_get(actor=request.actor, job_id=job_id)
    return render(request, "portal/runs/job.html", job_context(request, shown))


@require_safe
@for_readers_of("jobs")
def job_status(request: ActorRequest, job_id: object) -> HttpResponse:
    """The status part alone, for polling."""
    shown = selectors.job_get(actor=request.actor, job_id=job_id)
    return render(request, "portal/runs/job_status.html", job_context(request, shown))


def job_context(request: ActorRequest, shown: Job) -> dict[str, Any]:
    """What the job page shows of a job that a selector let the actor see."""
    live = shown.state in LIVE
    return {
        "job": shown,
        "live": live,
        "status_url": reverse("runs:job-status", args=[shown.pk]),
        "steps": shown.steps.all(),
        "elapsed": _elapsed(shown.started_at, shown.finished_at),
        "may_cancel": live
        and shown.cancel_requested_at is None
        and may(request.actor, "job.cancel"),
        "crumbs": crumbs(("Jobs", reverse("runs:jobs"))),
    }


def _elapsed(started: datetime | None, finished: datetime | None) -> str:
    if started is None:
        return "not started"
    return duration(int(((finished or timezone.now()) - started).total_seconds()))


@require_POST
@for_doers_of("job.cancel")
def job_cancel(request: ActorRequest, job_id: object) -> HttpResponse:
    """Ask a job to stop."""
    shown = selectors.job_get(actor=request.actor, job_id=job_id)
    stopped = cancel(actor=request.actor, job=shown)
    if stopped.state == Job.State.CANCELLED:
        messages.success(request, "The job is cancelled; it had not begun.")
    else:
        messages.info(request, "Cancel is asked for; the job stops at its next heartbeat.")
    return redirect("runs:job", shown.pk)
