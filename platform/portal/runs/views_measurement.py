"""Measurements: A/A gate, pairs, estimate with interval, accuracy, and whether it may bill."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import FileResponse, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.access import sees
from portal.runs import selectors
from portal.runs.as_found import BILLING, as_found_figures
from portal.runs.filters import MeasurementFilter
from portal.runs.models import Measurement
from portal.runs.tables import MeasurementTable
from portal.web import charts, formats
from portal.web.access import ActorRequest, chart_page, for_readers_of
from portal.web.answers import csv_file
from portal.web.evidence import evidence_archive, read_run, stored_pairs
from portal.web.figures import Figure, crumbs
from portal.web.lists import list_page

ESTIMATE = (
    "Each pair gives x = ln(samples per second with our kernels / samples per second of the "
    "baseline). The Hodges-Lehmann estimate is the median of the averages of all pairs of x "
    "(each with itself too); the uplift is exp of it, minus 1."
)
BOUND = (
    "The one-sided 95 % lower bound from the exact signed-rank distribution of x, turned back into "
    "a ratio minus 1. Money uses this figure, never the estimate."
)


@require_safe
@for_readers_of("measurements")
def measurements(request: ActorRequest) -> HttpResponse:
    """Every measurement."""
    return list_page(
        request,
        title="Uplift",
        intro="Interleaved pairs of LoadGen runs in fresh processes, on held-out samples.",
        rows=selectors.measurement_list(actor=request.actor),
        table=MeasurementTable,
        filterset=MeasurementFilter,
        empty="Uplift is measured once a baseline is frozen and a kernel package has passed its "
        "judge.",
    )


@require_safe
@chart_page
@for_readers_of("measurements")
def measurement(request: ActorRequest, measurement_id: object) -> HttpResponse:
    """One measurement with every figure open to its runs."""
    shown = selectors.measurement_get(actor=request.actor, measurement_id=measurement_id)
    return render(request, "portal/runs/measurement.html", measurement_context(request, shown))


def measurement_context(request: ActorRequest, shown: Measurement) -> dict[str, Any]:
    """What the measurement page and the review page both show."""
    rows = pair_rows(shown.pairs)
    aa_rows = pair_rows(stored_pairs(shown.evidence_path, "aa"))
    uplift, aa = shown.uplift, shown.aa
    return {
        "measurement": shown,
        "plan": shown.contract_version.plan,
        "figures": uplift_figures(shown) if uplift else (),
        "accuracy": accuracy_figures(shown) if shown.accuracy else (),
        "as_found": as_found_figures(shown.baseline),
        "as_found_billing": BILLING,
        "pairs": rows,
        "aa_pairs": aa_rows,
        "uplift_chart": _chart(rows, uplift, "95 % interval") if rows else None,
        "aa_chart": _chart(aa_rows, aa, "A/A 95 % interval") if aa_rows else None,
        "aa_interval": formats.interval(aa.get("lo"), aa.get("hi"), 2) if aa else formats.ABSENT,
        "sees_kernels": sees(request.actor, "packages"),
        "sees_contract": sees(request.actor, "contracts"),
        "crumbs": crumbs(("Uplift", reverse("runs:measurements"))),
    }


def pair_rows(pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stored pairs as rows: number, both run ids, log ratio, change as a ratio minus 1."""
    return [
        {**pair, "number": number, "change": math.expm1(float(pair["log_ratio"]))}
        for number, pair in enumerate(pairs, start=1)
    ]


def _chart(rows: list[dict[str, Any]], figures: Mapping[str, Any], band: str) -> charts.Chart:
    return charts.paired_changes(
        [100 * row["change"] for row in rows],
        point=_percent(figures.get("point")),
        low=_percent(figures.get("lo")),
        high=_percent(figures.get("hi")),
        band=band,
    )


def _percent(value: Any) -> float | None:
    return None if value is None else 100 * float(value)


def uplift_figures(shown: Measurement) -> tuple[Figure, ...]:
    """The three figures that decide, bound, estimate and verdict, and the energy of both arms."""
    uplift = shown.uplift
    runs = tuple(str(run) for pair in shown.pairs for run in (pair["base"], pair["other"]))
    method = str(shown.contract_version.plan["method_version"])
    band = formats.interval(uplift["lo"], uplift["hi"], 2)
    inputs = (
        ("Pairs", str(uplift["n"])),
        ("Baseline", f"{shown.baseline.stack} {shown.baseline.stack_version}"),
        ("Paired t beside it", _paired_t(uplift)),
        ("Evidence, SHA-256", shown.evidence_sha256),
    )
    api = f"/api/v1/measurements/{shown.pk}"
    verdict = "gate, uplift and accuracy hold" if shown.kept else "the reason stands above"
    label = "Uplift that bills" if shown.kept else "Lower bound, not billed"
    return (
        Figure(label, formats.signed_percent(uplift["lower_95"], 2),
               note="lower bound, one-sided 95 %", formula=BOUND, inputs=inputs, interval=band,
               runs=runs, method_version=method, api=api),
        Figure("Estimate", formats.signed_percent(uplift["point"], 2), note=f"95 %: {band}",
               formula=ESTIMATE, inputs=inputs, interval=band, runs=runs, method_version=method,
               api=api),
        Figure("Verdict", "Kept" if shown.kept else "Not kept",
               note=verdict,
               formula="Kept when the A/A gate passed, the lower bound reaches the plan's smallest "
               "claim, and accuracy and every guard of the method passed. Otherwise the fee is 0.",
               inputs=(("A/A gate", "passed" if shown.aa.get("passed") else "failed"),
                       ("Smallest claim",
                        formats.percent(shown.contract_version.plan["minimum_effect"])),
                       ("Accuracy", "passed" if shown.accuracy.get("passed") else "failed"),
                       *((f"Guard: {name}", "passed" if passed else "failed")
                         for name, passed in uplift.get("guards", {}).items())),
               method_version=method, api=api),
        _energy(uplift.get("energy") or {}, method, api),
    )  # fmt: skip


def _energy(energy: Mapping[str, Any], method: str, api: str) -> Figure:
    """Joules a sample where a counter or a meter was read; else said so, never a zero."""
    formula = ("Joules a sample of the baseline over those of the candidate, minus 1, by the same "
               "method as the estimate. No fee rests on it.")  # fmt: skip
    if energy.get("state") != "measured":
        return Figure("Energy", "Not measured", note=energy.get("reason", "no reading on record"),
                      formula=formula, method_version=method, api=api)  # fmt: skip
    less = energy["less"]
    return Figure(
        "Energy a sample", f"{formats.number(energy['candidate_j_per_sample'])} J",
        note=f"baseline {formats.number(energy['baseline_j_per_sample'])} J",
        formula=formula, interval=formats.interval(less["lo"], less["hi"], 2),
        inputs=(("Read from", energy["source"]),
                ("Readings may be off by", formats.percent(energy["uncertainty"]))),
        method_version=method, api=api,
    )  # fmt: skip


def _paired_t(uplift: Mapping[str, Any]) -> str:
    if uplift.get("t_point") is None:
        return formats.ABSENT
    words = (
        f"{formats.signed_percent(uplift['t_point'], 2)} "
        f"({formats.interval(uplift['t_lo'], uplift['t_hi'], 2)})"
    )
    return f"{words}; differs by more than a point" if uplift.get("flagged") else words


def accuracy_figures(shown: Measurement) -> tuple[Figure, ...]:
    """How close our outputs are to those of the stock stack."""
    accuracy, floor = shown.accuracy, shown.contract_version.plan["accuracy_floor_cosine"]
    inputs = (("Samples compared", formats.number(accuracy.get("samples"))),
              ("Floor in the plan", str(floor)))  # fmt: skip
    return (
        Figure("Lowest cosine", str(accuracy.get("min_cosine", formats.ABSENT)),
               state="passed" if accuracy.get("passed") else "failed",
               note=f"floor {floor}",
               formula="Cosine between our output and the stock output of each sample; the lowest "
               "of all samples must reach the floor.", inputs=inputs),
        Figure("Mean cosine", str(accuracy.get("mean_cosine", formats.ABSENT)), inputs=inputs),
        Figure("Largest difference", formats.number(accuracy.get("max_abs_error"), 3),
               formula="Largest absolute difference of any output element.", inputs=inputs),
    )  # fmt: skip


@require_safe
@for_readers_of("measurements")
def measurement_pairs(request: ActorRequest, measurement_id: object) -> HttpResponse:
    """A/A and uplift pairs as CSV."""
    shown = selectors.measurement_get(actor=request.actor, measurement_id=measurement_id)
    rows = [
        (part, row["number"], row["base"], row["other"], row["log_ratio"], row["change"])
        for part, pairs in (
            ("aa", stored_pairs(shown.evidence_path, "aa")),
            ("uplift", shown.pairs),
        )
        for row in pair_rows(pairs)
    ]
    header = ("part", "pair", "base_run_id", "other_run_id", "log_ratio", "change_ratio_minus_one")
    return csv_file(f"pairs-{str(shown.pk)[:8]}.csv", header, rows)


@require_safe
@for_readers_of("measurements")
def measurement_run(
    request: ActorRequest, measurement_id: object, part: str, run_id: str
) -> HttpResponse:
    """One run's detail log, line by line."""
    shown = selectors.measurement_get(actor=request.actor, measurement_id=measurement_id)
    context = {
        "run": read_run(shown.evidence_path, part, run_id),
        "crumbs": crumbs(
            ("Uplift", reverse("runs:measurements")),
            ("Measurement", reverse("runs:measurement", args=[shown.pk])),
        ),
    }
    return render(request, "portal/runs/run.html", context)


@require_safe
@for_readers_of("packages")
def measurement_evidence(request: ActorRequest, measurement_id: object) -> FileResponse:
    """The evidence as measured, for whoever works it out again; it holds kernel source."""
    shown = selectors.measurement_get(actor=request.actor, measurement_id=measurement_id)
    archive = evidence_archive(shown.evidence_path)
    response = FileResponse(
        archive, as_attachment=True, filename=f"evidence-{str(shown.pk)[:8]}.zip"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "private, no-store"
    return response
