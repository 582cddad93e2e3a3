"""Pages of systems and model mixes: what was registered, as it was described."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.access import sees
from portal.registry import selectors
from portal.registry.filters import MixFilter, SystemFilter
from portal.registry.models import ModelMix, System
from portal.registry.tables import MixTable, SystemTable
from portal.runs.selectors import baseline_list
from portal.web import charts, formats
from portal.web.access import ActorRequest, chart_page, for_readers_of
from portal.web.answers import csv_file
from portal.web.figures import Figure, crumbs
from portal.web.lists import list_page


@require_safe
@for_readers_of("systems")
def systems(request: ActorRequest) -> HttpResponse:
    """Every revision of every system."""
    return list_page(
        request,
        title="Systems",
        intro="Machines known by a fingerprint of stable facts, never by their host name.",
        rows=selectors.system_list(actor=request.actor),
        table=SystemTable,
        filterset=SystemFilter,
        empty="Describe a machine with `python -m kernelgen machine --json` and register it "
        "through the API; `make demo` registers this one.",
    )


@require_safe
@for_readers_of("systems")
def system(request: ActorRequest, system_id: object) -> HttpResponse:
    """One revision of a machine: its facts, its measured peaks, the other revisions."""
    shown = selectors.system_get(actor=request.actor, system_id=system_id)
    revisions = selectors.system_list(actor=request.actor).filter(
        name=shown.name, organisation=shown.organisation
    )
    context = {
        "system": shown,
        "facts": _machine_facts(shown.machine),
        "gpus": shown.machine.get("gpus", []),
        "peaks": _peaks(shown),
        "revisions": revisions,
        "baselines": baseline_list(actor=request.actor).filter(system=shown),
        "crumbs": crumbs(("Systems", reverse("registry:systems"))),
    }
    return render(request, "portal/registry/system.html", context)


def _machine_facts(machine: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return (
        ("Processor", str(machine.get("cpu_model", formats.ABSENT))),
        ("Architecture", str(machine.get("architecture", formats.ABSENT))),
        ("Cores in use", formats.number(machine.get("cores"))),
        ("Instruction sets", ", ".join(machine.get("isa", ()))),
        ("L1 data cache", formats.byte_size(machine.get("l1d_bytes"))),
        ("L2 cache", formats.byte_size(machine.get("l2_bytes"))),
        ("L3 cache", formats.byte_size(machine.get("l3_bytes"))),
        ("Memory", formats.byte_size(machine.get("memory_bytes"))),
        ("Kernel", str(machine.get("kernel", formats.ABSENT))),
    )


def _peaks(shown: System) -> tuple[Figure, ...]:
    machine = shown.machine
    source = (
        ("Machine", shown.name),
        ("Revision", str(shown.revision)),
        ("Fingerprint", shown.fingerprint),
    )
    return (
        Figure(
            label="Peak arithmetic, one core",
            value=formats.number(machine.get("peak_gflops_per_core")),
            unit="GFLOP/s",
            formula="Best of several timed loops of independent float32 fused multiply-adds on "
            "one pinned core: operations divided by seconds.",
            inputs=source,
        ),
        Figure(
            label="Peak memory traffic, one core",
            value=formats.number(machine.get("peak_gbps_per_core")),
            unit="GB/s",
            formula="Best of several timed passes over buffers larger than the last-level cache "
            "on one pinned core: bytes moved divided by seconds.",
            inputs=source,
        ),
    )


@require_safe
@for_readers_of("mixes")
def mixes(request: ActorRequest) -> HttpResponse:
    """Every model mix."""
    return list_page(
        request,
        title="Model mixes",
        intro="A model with the traffic it serves. Uplift is measured on held-out samples.",
        rows=selectors.mix_list(actor=request.actor),
        table=MixTable,
        filterset=MixFilter,
        empty="Register a model and its traffic through the API; `make demo` registers a text "
        "encoder with real sentences.",
    )


@require_safe
@chart_page
@for_readers_of("mixes")
def mix(request: ActorRequest, mix_id: object) -> HttpResponse:
    """One mix: its model, its digests, its length histogram as chart and table."""
    shown = selectors.mix_get(actor=request.actor, mix_id=mix_id)
    rows = _length_rows(shown)
    context = {
        "mix": shown,
        "rows": rows,
        "chart": charts.length_histogram(shown.length_histogram),
        "figures": _traffic_figures(shown, rows),
        "baselines": baseline_list(actor=request.actor).filter(mix=shown)
        if sees(request.actor, "baselines")
        else (),
        "crumbs": crumbs(("Model mixes", reverse("registry:mixes"))),
    }
    return render(request, "portal/registry/mix.html", context)


def _length_rows(shown: ModelMix) -> list[tuple[int, int, str]]:
    """(tokens, samples, share of samples) by rising length."""
    counts = sorted((int(tokens), int(n)) for tokens, n in shown.length_histogram.items())
    total = sum(n for _, n in counts) or 1
    return [(tokens, n, formats.percent(n / total)) for tokens, n in counts]


def _traffic_figures(shown: ModelMix, rows: list[tuple[int, int, str]]) -> tuple[Figure, ...]:
    samples = sum(n for _, n, _ in rows)
    tokens = sum(length * n for length, n, _ in rows)
    longest = max((length for length, _, _ in rows), default=0)
    source = (("Samples file, SHA-256", shown.samples_sha256),)
    return (
        Figure("Samples", formats.number(shown.sample_count), note="seen by search and baseline",
               inputs=source),
        Figure("Held out", formats.number(shown.held_out_count),
               note="never seen by the search; uplift is measured on these",
               inputs=(("Held-out file, SHA-256", shown.held_out_sha256),)),
        Figure("Mean length", formats.number(tokens / samples if samples else None, 3), "tokens",
               formula="Sum over the histogram of length times samples, divided by samples.",
               inputs=(("Tokens", formats.number(tokens)), ("Samples", formats.number(samples)))),
        Figure("Padding avoided", formats.percent(1 - tokens / (samples * longest))
               if samples else formats.ABSENT,
               note="share of a fully padded batch that is no work",
               formula="1 minus tokens divided by samples times the longest length.",
               inputs=(("Longest", f"{longest} tokens"),)),
    )  # fmt: skip


@require_safe
@for_readers_of("mixes")
def mix_lengths(request: ActorRequest, mix_id: object) -> HttpResponse:
    """The histogram as CSV."""
    shown = selectors.mix_get(actor=request.actor, mix_id=mix_id)
    rows = [(tokens, n) for tokens, n, _ in _length_rows(shown)]
    return csv_file("mix-lengths.csv", ("length_tokens", "samples"), rows)
