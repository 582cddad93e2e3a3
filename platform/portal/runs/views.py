"""Baselines and searches: every configuration that was tried, every trial that was made."""

from collections.abc import Iterable
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.runs import selectors
from portal.runs.as_found import BILLING, as_found_figures
from portal.runs.baseline_rows import SWEEP_HEADER, sweep_csv, sweep_rows
from portal.runs.filters import TrialFilter
from portal.runs.models import Baseline, KernelPackage, Tuning, TuningEvent
from portal.runs.tables import BaselineTable, TrialTable, TuningTable
from portal.web import charts, formats
from portal.web.access import ActorRequest, chart_page, for_readers_of
from portal.web.answers import csv_file
from portal.web.evidence import read_run
from portal.web.figures import Figure, crumbs
from portal.web.lists import list_page

# Lines that stand for a kernel that was built and judged; the rest tell of the search itself.
TRIED = ("trial", "kept", "resumed")


@require_safe
@for_readers_of("baselines")
def baselines(request: ActorRequest) -> HttpResponse:
    """Every frozen baseline."""
    return list_page(
        request,
        title="Baselines",
        intro="The fastest correct stock configuration, frozen before any of our kernels exists.",
        rows=selectors.baseline_list(actor=request.actor),
        table=BaselineTable,
        empty="A baseline is measured once provider, customer and auditor have signed the plan.",
    )


@require_safe
@for_readers_of("baselines")
def baseline(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """One baseline with its whole sweep."""
    shown = selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    context = {
        "baseline": shown,
        "figures": _baseline_figures(shown),
        "rows": sweep_rows(shown),
        "as_found": as_found_figures(shown),
        "as_found_billing": BILLING,
        "due": selectors.baseline_due(actor=request.actor, baseline_id=shown.pk),
        "crumbs": crumbs(("Baselines", reverse("runs:baselines"))),
    }
    return render(request, "portal/runs/baseline.html", context)


def _baseline_figures(shown: Baseline) -> tuple[Figure, ...]:
    runs = tuple(str(run) for run in shown.document["runs"])
    plan = shown.contract_version.plan
    inputs = (
        ("Stack", f"{shown.stack} {shown.stack_version}"),
        ("Threads", str(shown.threads)),
        ("Arrangement", f"{shown.arrangement}, batches of {shown.batch}"),
        ("Plan", shown.contract_version.plan_sha256),
    )
    return (
        Figure(
            "Baseline", formats.number(shown.samples_per_second, 5), "samples per second",
            formula="Median over the final runs of result_samples_per_second, read from LoadGen's "
            "detail log, of the fastest configuration whose outputs are correct.",
            inputs=inputs, runs=runs, method_version=str(plan["method_version"]),
            api=f"/api/v1/baselines/{shown.pk}",
        ),
        Figure("Stack", shown.stack, shown.stack_version,
               note=f"{shown.threads} threads, {shown.arrangement}, batches of {shown.batch}"),
        Figure("Frozen", formats.instant(shown.frozen_at),
               note="a search for this contract begins only after this"),
    )  # fmt: skip


@require_safe
@for_readers_of("baselines")
def baseline_sweep(request: ActorRequest, baseline_id: object) -> HttpResponse:
    """The sweep as CSV."""
    shown = selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    return csv_file(f"sweep-{str(shown.pk)[:8]}.csv", SWEEP_HEADER, sweep_csv(shown))


@require_safe
@for_readers_of("baselines")
def baseline_run(request: ActorRequest, baseline_id: object, run_id: str) -> HttpResponse:
    """One run of the sweep, line by line."""
    shown = selectors.baseline_get(actor=request.actor, baseline_id=baseline_id)
    context = {
        "run": read_run(shown.evidence_path, "baseline", run_id),
        "crumbs": crumbs(
            ("Baselines", reverse("runs:baselines")),
            (str(shown.stack), reverse("runs:baseline", args=[shown.pk])),
        ),
    }
    return render(request, "portal/runs/run.html", context)


@require_safe
@for_readers_of("tunings")
def tunings(request: ActorRequest) -> HttpResponse:
    """Every search."""
    return list_page(
        request,
        title="Kernel search",
        intro="Propose, compile, judge against a float64 oracle, time interleaved, adjust.",
        rows=selectors.tuning_list(actor=request.actor),
        table=TuningTable,
        empty="A search begins once a baseline is frozen.",
    )


@require_safe
@chart_page
@for_readers_of("tunings")
def tuning(request: ActorRequest, tuning_id: object) -> HttpResponse:
    """One search: progress, outcomes, cost; refreshes itself while it runs."""
    shown = selectors.tuning_get(actor=request.actor, tuning_id=tuning_id)
    context = {
        **_progress(request, shown),
        "package": _package(request, shown),
        "crumbs": crumbs(("Kernel search", reverse("runs:tunings"))),
    }
    return render(request, "portal/runs/tuning.html", context)


@require_safe
@chart_page
@for_readers_of("tunings")
def tuning_progress(request: ActorRequest, tuning_id: object) -> HttpResponse:
    """The part that refreshes itself."""
    shown = selectors.tuning_get(actor=request.actor, tuning_id=tuning_id)
    return render(request, "portal/runs/tuning_progress.html", _progress(request, shown))


@require_safe
@for_readers_of("tunings")
def trials(request: ActorRequest, tuning_id: object) -> HttpResponse:
    """Every trial of one search."""
    shown = selectors.tuning_get(actor=request.actor, tuning_id=tuning_id)
    return list_page(
        request,
        title="Trials",
        intro=f"Search of {formats.instant(shown.created_at)}, seed {shown.seed}.",
        rows=selectors.tuning_events(actor=request.actor, tuning_id=shown.pk),
        table=TrialTable,
        filterset=TrialFilter,
        empty="No trial has been made yet.",
        crumbs=crumbs(
            ("Kernel search", reverse("runs:tunings")),
            ("Search", reverse("runs:tuning", args=[shown.pk])),
        ),
    )


def _package(request: ActorRequest, shown: Tuning) -> KernelPackage | None:
    return selectors.package_list(actor=request.actor).filter(tuning=shown).first()


def _progress(request: ActorRequest, shown: Tuning) -> dict[str, Any]:
    events = list(selectors.tuning_events(actor=request.actor, tuning_id=shown.pk))
    series = speed_series(events)
    return {
        "tuning": shown,
        "live": shown.state == Tuning.State.RUNNING,
        "figures": _tuning_figures(shown, events),
        "outcomes": _outcomes(shown, events),
        "chart": charts.search_progress(series) if any(series.values()) else None,
        "series": [
            (operator, len(points) - 1, points[-1][1])
            for operator, points in sorted(series.items())
        ],
    }


def speed_series(events: Iterable[TuningEvent]) -> dict[str, list[tuple[float, float]]]:
    """Per operator, one point per improvement: (elapsed seconds, speed against its first kernel).

    A kept kernel's ratio is the incumbent's time over its own, so the speed is the running product.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if not event.operator or event.kind not in TRIED:
            continue
        points = series.setdefault(event.operator, [(event.elapsed_s, 1.0)])
        if event.kind == "kept" and event.ratio is not None and event.ratio > 1:
            points.append((event.elapsed_s, points[-1][1] * event.ratio))
    return series


def _outcomes(shown: Tuning, events: list[TuningEvent]) -> list[tuple[str, int]]:
    """Trials by outcome: accepted first, then each reason of refusal once the search is done."""
    if shown.state == Tuning.State.DONE:
        refused = sorted(shown.rejected.items(), key=lambda item: -item[1])
        return [("accepted", shown.accepted), *refused]
    return [("accepted", sum(event.kind == "kept" for event in events))]


def _tuning_figures(shown: Tuning, events: list[TuningEvent]) -> tuple[Figure, ...]:
    done = shown.state == Tuning.State.DONE
    tried = sum(event.kind in TRIED for event in events)
    elapsed = shown.seconds if done else max((event.elapsed_s for event in events), default=0)
    price = shown.baseline.contract_version.price_book
    cores = len(shown.baseline.contract_version.plan["cores"])
    return (
        Figure("Trials", formats.number(shown.trials if done else tried),
               note=f"{shown.accepted} accepted" if done else "so far"),
        Figure("Time", formats.duration(elapsed),
               note=f"of a budget of {formats.duration(shown.budget_s)}",
               inputs=(("Seed", str(shown.seed)),)),
        Figure("Cost of the search", formats.money(shown.cost, shown.currency) if done
               else formats.ABSENT,
               formula="Seconds of the search / 3600 x price of a core-hour x cores in use.",
               inputs=(("Seconds", str(shown.seconds)),
                       ("Price of a core-hour", f"{price.price_per_core_hour} {price.currency}"),
                       ("Cores in the plan", str(cores))),
               api=f"/api/v1/tunings/{shown.pk}"),
    )  # fmt: skip
