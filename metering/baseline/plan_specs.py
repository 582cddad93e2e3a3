"""From the signed measurement plan to runnable specs.

In: a :class:`MeasurementPlan`, a system, a model and samples. Out: specs that carry the plan's
cores, seeds, scenario, task and precision. One place, so that the baseline, both arms and the
accuracy runs cannot drift apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from metering.loadgen.spec import Mode, RunSpec, Scenario, Seeds, SpecError, SutSpec, Task
from metering.plan import MeasurementPlan, ServerBounds

MEASURABLE = ("Offline", "SingleStream")
_WHY_NOT = {
    "Server": "two Server arms at one rate complete the same number of queries; the command server "
    "compares the rates each holds, and bills nothing",
    "MultiStream": "LoadGen gives it no rate, and a sample is priced by one",
}


def run_spec(
    plan: MeasurementPlan,
    sut: SutSpec,
    *,
    run_id: str,
    model: Path,
    samples: Path,
    mode: Mode = "performance",
) -> RunSpec:
    """A spec of the plan, not yet sized: one sample is enough to end it.

    Raises SpecError for a scenario or precision this release does not measure.
    """
    if plan.scenario not in MEASURABLE:
        raise SpecError(
            f"plan.scenario: got {plan.scenario}, wanted {' or '.join(MEASURABLE)}: "
            f"{_WHY_NOT[plan.scenario]}"
        )
    return _spec(plan, sut, run_id=run_id, model=model, samples=samples, mode=mode)


def server_spec(
    plan: MeasurementPlan, sut: SutSpec, *, run_id: str, model: Path, samples: Path
) -> RunSpec:
    """A Server spec with the plan's bound, not yet sized (see ``loadgen.calibrate.sized``).

    Raises SpecError for a plan of another scenario.
    """
    if not isinstance(plan.bounds, ServerBounds):
        raise SpecError(f"plan.scenario: got {plan.scenario}, wanted Server with its bounds")
    return _spec(
        plan,
        sut,
        run_id=run_id,
        model=model,
        samples=samples,
        target_latency_ns=plan.bounds.target_latency_ns,
        max_async_queries=1,
        # Above any minimum that sizing sets first; it then sets this too.
        max_duration_ms=1000 * plan.run_seconds + 1,
    )


def _spec(
    plan: MeasurementPlan,
    sut: SutSpec,
    *,
    run_id: str,
    model: Path,
    samples: Path,
    mode: Mode = "performance",
    **bounds: int,
) -> RunSpec:
    if plan.precision != sut.precision:
        raise SpecError(f"plan.precision: got {plan.precision}, the system has {sut.precision}")
    seeds = Seeds(plan.seeds.qsl, plan.seeds.sample_index, plan.seeds.schedule)
    return RunSpec(
        run_id=run_id,
        scenario=cast(Scenario, plan.scenario),
        mode=mode,
        sut=sut,
        model=str(model),
        samples=str(samples),
        min_duration_ms=1,
        target_qps=1.0,
        min_query_count=1,
        seeds=seeds,
        cores=plan.cores,
        task=cast(Task, plan.task),
        target_latency_ns=bounds.get("target_latency_ns", 0),
        max_async_queries=bounds.get("max_async_queries", 0),
        max_duration_ms=bounds.get("max_duration_ms", 0),
    )
