"""What a run and a folder are held to: one MLPerf Inference round, or a measurement plan.

In: a round's name, or a signed plan. Out: :class:`Rules`, the numbers every check reads. A round's
rules are facts of MLPerf Inference v6.1; a rehearsal replaces exactly three of them (seeds, length,
benchmark) by those of its plan and says so on every page. Never here: a rule that a folder may
relax about itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from metering.loadgen.calibrate import MARGIN
from metering.loadgen.spec import Seeds
from metering.plan import MeasurementPlan

ROUND = "v6.1"
UNLISTED = "unlisted"
"""The benchmark of a model that belongs to no benchmark of the round: rehearsals only."""

NOTE = "MLPerf LoadGen based, not verified by MLCommons"
_ROUND_DURATION_MS = 600_000

PRIMARY_KEYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "Offline": ("result_samples_per_second", "samples/s"),
        "SingleStream": ("early_stopping_latency_ss", "ns"),
        "MultiStream": ("early_stopping_latency_ms", "ns"),
        "Server": ("result_completed_samples_per_sec", "samples/s"),
    }
)
"""The key of the detail log that a scenario's result is read from, and its unit."""

TOKEN_KEYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "Offline": ("result_tokens_per_second", "tokens/s"),
        # In token mode the early-stopped latency is that of the first token, so it is not taken.
        "SingleStream": ("result_90.00_percentile_latency_ns", "ns"),
        "Server": ("result_completed_tokens_per_second", "tokens/s"),
    }
)
"""The same for a model that generates tokens; MultiStream has none."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: samples in its data set, least samples held in memory, its accuracy line.

    ``dataset`` 0 means: as many as the run's own library has. ``server_latency_ns`` is the longest
    latency bound of the Server scenario, 0 for none. A benchmark that ``generates`` runs in token
    mode; its Server runs keep the 99th percentiles of the time to first token and of the time per
    output token below ``ttft_ns`` and ``tpot_ns``.
    """

    name: str
    dataset: int
    performance_samples: int
    metric: str
    accuracy_line: re.Pattern[str]
    server_latency_ns: int = 0
    generates: bool = False
    ttft_ns: int = 0
    tpot_ns: int = 0


_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"


def _told(first: str, *others: str) -> re.Pattern[str]:
    """A line that tells all of these, as the round's scripts for language models print them."""
    also = "".join(rf"(?=.*'{name}': *'?[0-9]+(?:\.[0-9]+)?'?[,}}])" for name in others)
    return re.compile(rf"{also}.*'{first}': *'?{_NUMBER}'?[,}}].*")


_LINES = {
    "acc": re.compile(rf"accuracy *= *{_NUMBER}\b.*"),
    "F1": re.compile(rf'\{{"exact_match": *[0-9.]+, *"f1": *{_NUMBER}\}}'),
    "DICE": re.compile(rf"Accuracy: *mean *= *{_NUMBER}\b.*"),
    "ACCURACY": re.compile(rf"Word Error Rate: *[^,]*, accuracy={_NUMBER}%"),
    "mAP": re.compile(rf"mAP={_NUMBER}\b.*"),
    "ROUGE1": _told("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len"),
    "ROUGE1 of a chat": _told("rouge1", "rouge2", "rougeL", "tokens_per_sample"),
    "exact_match": _told("exact_match", "tokens_per_sample"),
    "cosine": re.compile(rf"cosine against the reference run: worst=(-?{_NUMBER[1:-1]}) .*"),
}


UNKNOWN = Benchmark(UNLISTED, 0, 1, "cosine", _LINES["cosine"])
"""What a run is held to whose benchmark nobody knows: its own library."""


def _benchmarks() -> dict[str, Benchmark]:
    rows = (
        ("resnet", 50_000, 1_024, "acc", 15_000_000),
        ("bert-99", 10_833, 10_833, "F1", 0),
        ("bert-99.9", 10_833, 10_833, "F1", 0),
        ("3d-unet-99", 43, 43, "DICE", 0),
        ("3d-unet-99.9", 43, 43, "DICE", 0),
        ("rgat", 788_379, 788_379, "acc", 0),
        ("whisper", 1_633, 1_633, "ACCURACY", 0),
        ("yolo-95", 1_525, 64, "mAP", 0),
        ("yolo-99", 1_525, 64, "mAP", 0),
    )
    found = {
        name: Benchmark(name, dataset, held, metric, _LINES[metric], latency)
        for name, dataset, held, metric, latency in rows
    }
    # Bounds of the Server scenario in milliseconds; a benchmark without has no such scenario.
    generating = (
        ("llama3.1-8b", 13_368, "ROUGE1", 2_000, 100),
        ("llama3.1-8b-edge", 5_000, "ROUGE1", 0, 0),
        ("llama2-70b-99.9", 24_576, "ROUGE1 of a chat", 2_000, 200),
        ("deepseek-r1", 4_388, "exact_match", 2_000, 80),
    )
    for name, dataset, metric, ttft, tpot in generating:
        found[name] = Benchmark(
            name, dataset, dataset, metric.split()[0], _LINES[metric], generates=True,
            ttft_ns=ttft * 10**6, tpot_ns=tpot * 10**6,
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Rules:
    """``title`` names them for people. ``floor`` bounds the accuracy of a rehearsal, else None."""

    title: str
    rehearsal: bool
    loadgen: str
    seeds: Seeds
    min_duration_ms: int
    benchmarks: Mapping[str, Benchmark]
    floor: Decimal | None = None
    scenario: str | None = None


V6_1 = Rules(
    title=f"MLPerf Inference {ROUND}, open division",
    rehearsal=False,
    # The wheel that carries this round's settings; another wheel belongs to another round.
    loadgen="6.0.17",
    seeds=Seeds(),
    min_duration_ms=_ROUND_DURATION_MS,
    benchmarks=MappingProxyType(_benchmarks()),
)


def rehearsal(plan: MeasurementPlan) -> Rules:
    """The rules of a folder that shows the form of v6.1 with the runs of a measurement plan.

    Seeds and length are the plan's, the benchmark is none of the round's. Such a folder is no
    submission, and :data:`V6_1` refuses it.
    """
    seeds = plan.seeds
    return Rules(
        title=f"rehearsal of {ROUND}: plan {plan.plan_id}, SHA-256 {plan.digest}",
        rehearsal=True,
        loadgen=V6_1.loadgen,
        seeds=Seeds(seeds.qsl, seeds.sample_index, seeds.schedule),
        min_duration_ms=plan.run_seconds * 1000 // MARGIN,
        benchmarks=MappingProxyType({UNLISTED: UNKNOWN}),
        floor=plan.accuracy_floor_cosine,
        scenario=plan.scenario,
    )
