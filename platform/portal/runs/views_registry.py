"""The registry of one contract's baselines: entries in order, what is in force, what is due."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from metering.contract import Contract
from portal.accounts.access import may, sees
from portal.keystore import platform_keys
from portal.runs import selectors
from portal.runs.forms import MomentForm
from portal.runs.models import Baseline, BaselineEntry, Job
from portal.runs.registry import Standing, differences, due_of, entries_of, standing
from portal.runs.requests import REMEASURE, remeasure_request
from portal.web import formats
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.answers import attachment, csv_file
from portal.web.figures import Figure, crumbs
from reports.keys import public_pem

LIVE = (Job.State.QUEUED, Job.State.RUNNING)
HEADER = (
    "number", "frozen_at", "stack", "version", "samples_per_second", "as_found",
    "core_seconds_per_million", "in_force_from", "effective_core_seconds_per_million",
    "effective_samples_per_second", "baseline_sha256", "line_sha256", "previous",
)  # fmt: skip
COST = (
    "Core-seconds for a million samples: cores in the plan x 1,000,000 / samples per second, at "
    "twelve places. The policy works on this cost; the rate it counts as follows from it."
)


@require_safe
@for_readers_of("baselines")
def registry(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """The registry of the baseline's contract version, as it stands now or on a day."""
    shown = selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    rows = list(selectors.baseline_entries(actor=request.actor, baseline_id=shown.pk))
    plan, now = shown.contract_version.plan, timezone.now()
    asked = MomentForm(request.GET if "at" in request.GET else None)
    moment, status = now, 200
    if asked.is_bound:
        if asked.is_valid():
            day = asked.cleaned_data["at"]
            moment = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(plan["zone"]))
        else:
            status = 400
    context: dict[str, Any] = {
        "baseline": shown,
        "zone": plan["zone"],
        "form": asked,
        "moment": moment,
        "jobs": _jobs(request, shown),
        "may_remeasure": may(request.actor, "job.request"),
        "sees_contract": sees(request.actor, "contracts"),
        "crumbs": crumbs(
            ("Baselines", reverse("runs:baselines")),
            (str(shown.stack), reverse("runs:baseline", args=[shown.pk])),
        ),
    }
    if rows:
        context |= _standing(request, shown, rows, moment, now)
    return render(request, "portal/runs/registry.html", context, status=status)


def _standing(
    request: ActorRequest,
    shown: Baseline,
    rows: list[BaselineEntry],
    moment: datetime,
    now: datetime,
) -> dict[str, Any]:
    entries = entries_of(rows)
    policy = Contract.from_json(shown.contract_version.contract).baseline_policy
    first = entries[0].frozen_at
    found = standing(entries, policy, max(moment, first))
    due = due_of(rows, now)
    counting = {one.entry.number: one for one in found.effective}
    lines = [
        {"row": row, "entry": entry, "effective": counting.get(row.number),
         "in_force": row.number == found.number and moment >= first}
        for row, entry in zip(rows, entries, strict=True)
    ]  # fmt: skip
    mark = getattr(rows[-1], "due", None)
    others = list(selectors.other_first_entries(actor=request.actor, baseline_id=shown.pk))
    return {
        "lines": lines,
        "before_first": moment < first,
        "standing": found,
        "due": due,
        "marked": mark,
        "figures": _figures(shown, found, rows),
        "others": [
            {"entry": other, "reasons": reasons} for other, reasons in differences(rows, others)
        ],
    }


def _figures(shown: Baseline, found: Standing, rows: list[BaselineEntry]) -> tuple[Figure, ...]:
    one = next(item for item in reversed(found.effective) if item.entry.number == found.number)
    inputs = (
        ("Entry", str(found.number)),
        ("Stack", f"{one.entry.stack} {one.entry.version}"),
        ("Measured", f"{one.entry.samples_per_second} samples/s"),
        ("Measured cost", f"{one.measured_cost} core-seconds per million"),
        ("Counts as", f"{one.effective_cost} core-seconds per million"),
        ("Line, SHA-256", rows[found.number].line_sha256),
    )
    api = f"/api/v1/baseline-entries/{rows[found.number].pk}"
    return (
        Figure("In force", f"entry {found.number}", note=f"from {formats.instant(one.counts_from)}",
               formula=found.reason, inputs=inputs, api=api),
        Figure("Counts as", formats.number(one.samples_per_second, 5), "samples per second",
               note=f"measured {formats.number(one.entry.samples_per_second, 5)}", formula=COST,
               inputs=inputs, method_version=str(shown.contract_version.plan["method_version"]),
               api=api),
        Figure("Entries", str(len(rows)), note="signed by the platform, each names the last"),
    )  # fmt: skip


def _jobs(request: ActorRequest, shown: Baseline) -> list[Job]:
    if not sees(request.actor, "jobs"):
        return []
    rows = selectors.job_list(actor=request.actor).filter(kind=REMEASURE)
    return list(rows.filter(key__startswith=f"{shown.contract_version_id} "))


@require_safe
@for_readers_of("baselines")
def lines(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """The signed lines, for `python -m metering baseline show`."""
    rows = selectors.baseline_entries(actor=request.actor, baseline_id=baseline_id)
    data = b"".join(f"{row.line}\n".encode() for row in rows)
    return attachment(data, "registry.jsonl", "application/jsonl")


@require_safe
@for_readers_of("baselines")
def key(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """The public key that the lines are signed with."""
    selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    pem = public_pem(platform_keys().statement.public_key())
    return attachment(pem, "platform.pem", "application/x-pem-file")


@require_safe
@for_readers_of("baselines")
def table(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """The same entries as raw values."""
    shown = selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    rows = list(selectors.baseline_entries(actor=request.actor, baseline_id=shown.pk))
    return csv_file(f"registry-{str(shown.pk)[:8]}.csv", HEADER, _table(shown, rows))


def _table(shown: Baseline, rows: list[BaselineEntry]) -> Iterator[tuple[Any, ...]]:
    if not rows:
        return
    entries = entries_of(rows)
    policy = Contract.from_json(shown.contract_version.contract).baseline_policy
    counting = {
        one.entry.number: one
        for one in standing(entries, policy, datetime.max.replace(tzinfo=UTC)).effective
    }
    for row, entry in zip(rows, entries, strict=True):
        one = counting.get(row.number)
        yield (
            row.number, formats.instant(entry.frozen_at), entry.stack, entry.version,
            entry.samples_per_second, entry.as_found, entry.core_seconds_per_million,
            formats.instant(one.counts_from) if one else "", one.effective_cost if one else "",
            one.samples_per_second if one else "", row.baseline_sha256, row.line_sha256,
            entry.previous,
        )  # fmt: skip


@require_POST
@for_doers_of("job.request")
def remeasure(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """Ask for the sweep to be run again and its result to be entered."""
    shown = selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    job = remeasure_request(actor=request.actor, baseline=shown)
    messages.success(request, "The re-measurement is asked for; a worker takes it in turn.")
    return redirect("runs:job", job.pk)
