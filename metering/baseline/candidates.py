"""Which stock configurations compete for the baseline.

In: the sweep space of the signed plan and what is installed. Out: distinct systems under test.
Pure. Configurations that would run the same code are listed once; a stack without systems of the
plan's task does not compete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from metering import stacks
from metering.loadgen.spec import Arrangement, GraphOptimization, SutSpec, Task
from metering.plan import MeasurementPlan
from metering.stacks import StackInfo


def candidates(plan: MeasurementPlan, available: Sequence[StackInfo]) -> tuple[SutSpec, ...]:
    """Every configuration of the plan's sweep that the machine can run.

    Instances are as many as fit: cores // threads. ``ragged`` needs a stack that does not pad, and
    no stock stack is one. A batch of one is ``single`` in every arrangement.
    """
    found: dict[SutSpec, None] = {}
    names = [
        info.name
        for info in available
        if info.available
        and info.name in plan.sweep.stacks
        and stacks.offers(info.name, cast(Task, plan.task))
    ]
    for name in names:
        levels = _levels(name, plan.sweep.graph_optimizations)
        for threads in plan.sweep.threads:
            if threads > len(plan.cores):
                continue
            for arrangement, batch in _batches(plan):
                for level in levels:
                    sut = SutSpec(
                        stack=name,
                        threads=threads,
                        instances=len(plan.cores) // threads,
                        arrangement=arrangement,
                        batch=batch,
                        graph_optimization=level,
                    )
                    found.setdefault(sut)
    return tuple(found)


def _batches(plan: MeasurementPlan) -> list[tuple[Arrangement, int]]:
    found: dict[tuple[Arrangement, int], None] = {}
    for arrangement in plan.sweep.arrangements:
        if arrangement == "ragged":
            continue
        for batch in plan.sweep.batches:
            single = arrangement == "single" or batch == 1 or plan.scenario == "SingleStream"
            name = "single" if single else arrangement
            found.setdefault((cast(Arrangement, name), 1 if single else batch))
    return list(found)


def _levels(name: str, asked: Sequence[str]) -> list[GraphOptimization]:
    offered = stacks.graph_optimizations(name)
    levels = [level for level in offered if level in asked]
    # A stack without levels runs as it is.
    return levels or [offered[0]]
