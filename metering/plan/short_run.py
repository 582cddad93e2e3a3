"""The short plan of pilots and demonstrations, with the sweep that suits its task.

In: cores, seeds, a zone and what may be chosen. Out: a `MeasurementPlan` marked `short_run`. Lines
of text are far larger samples than sentences, so they are tried in smaller batches.
Never here: a plan that passes for a full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from metering.datasets.reading import ReadingFloor
from metering.plan.accuracy_floor import FLOOR_OF_TASK, READING, AccuracyFloor, CosineFloor
from metering.plan.measurement import METHOD_VERSION, MeasurementPlan, Seeds, SweepSpace
from metering.refusal import Refusal

_COSINE = CosineFloor(Decimal("0.9999"))
# PaddleOCR's own metric leaves spaces out; on rendered lines its models misread a few of a hundred.
_READING = ReadingFloor(Decimal("0.8"), Decimal("0.02"), ignore_spaces=True)


def short_run_plan(
    plan_id: str,
    *,
    cores: Sequence[int],
    zone: str,
    seeds: Seeds,
    stacks: Sequence[str] = ("onnxruntime", "openvino"),
    run_seconds: int = 2,
    pairs: int = 10,
    aa_pairs: int = 6,
    search_budget_s: int = 90,
    task: str = "embedding",
    claim: bool = True,
) -> MeasurementPlan:
    """A plan for pilots and demonstrations: short runs, marked `short_run` on every document.

    Raises Refusal for a task that has no plan.
    """
    if task not in FLOOR_OF_TASK:
        raise Refusal("plan.task", repr(task), "one of " + ", ".join(FLOOR_OF_TASK))
    floor: AccuracyFloor = _READING if FLOOR_OF_TASK[task] == READING else _COSINE
    threads = tuple(sorted({1, len(cores)}))
    return MeasurementPlan(
        plan_id=plan_id,
        method_version=METHOD_VERSION,
        option="B",
        scenario="Offline",
        precision="float32",
        cores=tuple(cores),
        run_seconds=run_seconds,
        pairs=pairs,
        aa_pairs=aa_pairs,
        minimum_effect=Decimal("0.02"),
        accuracy_floor=floor,
        seeds=seeds,
        sweep=SweepSpace(
            stacks=tuple(stacks),
            threads=threads,
            arrangements=("padded", "single", "grouped"),
            batches=(4, 8) if task == "text_recognition" else (8, 32),
            graph_optimizations=("basic", "all"),
        ),
        held_out_fraction=Decimal("0.2"),
        search_budget_s=search_budget_s,
        short_run=True,
        zone=zone,
        rounding="ROUND_HALF_UP",
        task=task,
        claim=claim,
    )
