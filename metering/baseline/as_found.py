"""The configuration a customer runs today, held to what the plan's machine can run.

In: the signed plan and what the customer states. Out: the system under test that the sweep measures
beside the others (``as found``), or a refusal that names the field. It never becomes the baseline
unless it is the fastest, so that nobody gains by stating a slow one. Never here: a guess for what
was not stated, or a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from metering import stacks
from metering.loadgen.spec import Arrangement, Precision, SutSpec
from metering.plan import MeasurementPlan
from metering.refusal import Refusal

# No stock stack takes a batch without padding it.
ARRANGEMENTS: tuple[Arrangement, ...] = ("single", "padded", "grouped")


def stated_stacks(plan: MeasurementPlan) -> tuple[str, ...]:
    """What may be stated: the stacks of the plan's sweep, then others that are installed here."""
    here = [info.name for info in stacks.discover_stock() if info.available]
    return tuple(dict.fromkeys([*plan.sweep.stacks, *here]))


def as_found(
    plan: MeasurementPlan,
    *,
    stack: str,
    threads: int,
    instances: int,
    arrangement: str,
    batch: int,
    graph_optimization: str,
    offered: Sequence[str],
) -> SutSpec:
    """The stated configuration; ``offered`` are the stacks that may be stated.

    A batch of one is ``single`` in every arrangement, and a stack without levels runs as it is.
    Raises Refusal, whose field is the parameter's name.
    """
    if stack not in offered:
        raise Refusal("stack", stack, "one of " + ", ".join(offered))
    for name, value in (("threads", threads), ("instances", instances), ("batch", batch)):
        if value < 1:
            raise Refusal(name, value, "a whole number from 1")
    cores = len(plan.cores)
    if threads * instances > cores:
        raise Refusal(
            "threads", f"{instances} x {threads}", f"at most {cores}, the cores of the plan",
            "state what would run on these cores",
        )  # fmt: skip
    if arrangement not in ARRANGEMENTS:
        raise Refusal("arrangement", arrangement, "one of " + ", ".join(ARRANGEMENTS))
    if arrangement == "single" and batch != 1:
        raise Refusal("batch", batch, "1, because samples go one by one")
    levels = stacks.graph_optimizations(stack)
    if graph_optimization not in levels:
        raise Refusal(
            "graph_optimization", graph_optimization, f"one of {', '.join(levels)} with {stack}"
        )
    return SutSpec(
        stack=stack,
        threads=threads,
        instances=instances,
        arrangement="single" if batch == 1 else arrangement,
        batch=batch,
        graph_optimization=graph_optimization,
        precision=cast(Precision, plan.precision),
    )
