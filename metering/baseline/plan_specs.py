"""From the signed measurement plan to runnable specs.

In: a :class:`MeasurementPlan`, a system, a model and samples. Out: specs that carry the plan's
cores, seeds, scenario, task and precision. One place, so that the baseline, both arms and the
accuracy runs cannot drift apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from metering.loadgen.spec import Mode, RunSpec, Scenario, Seeds, SpecError, SutSpec, Task
from metering.plan import MeasurementPlan

MEASURABLE = ("Offline", "SingleStream")
_WHY_NOT = {
    "Server": "two Server arms at one rate complete the same number of queries, so a claim has to "
    "rest on the rate each holds within the bound, and no interval of that is made yet",
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
    )
