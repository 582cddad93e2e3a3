"""A stored plan of either schema in words: every choice has a row, whatever its task."""

from dataclasses import replace
from typing import Any

import pytest

from metering.plan import MeasurementPlan, Seeds, ServerBounds, short_run_plan
from portal.web.wording import plan_rows


def made(**changes: Any) -> MeasurementPlan:
    return short_run_plan("p", cores=(0,), zone="UTC", seeds=Seeds(1, 2, 3, 4), **changes)


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (made(), {"Accuracy floor": "cosine of at least 0.9999 to the stock outputs, per sample"}),
        (
            made(task="text_recognition", claim=False),
            {
                "Task": "text recognition",
                "Bounds of the scenario": "none",
                "Claim": "none: a baseline alone, the model goes on at it, uplift 1.0",
                "Accuracy floor": "at least 80.00% of lines read exactly and at most 2.00% "
                "character errors, spaces left out; no worse than the reference",
            },
        ),
        (
            replace(made(), scenario="Server", bounds=ServerBounds(15_000_000)),
            {"Bounds of the scenario": "latency within 15,000,000 ns and at percentile 0.99"},
        ),
    ],
)
def test_a_plan_is_worded_whatever_its_task(plan: MeasurementPlan, wanted: dict[str, str]) -> None:
    rows = dict(plan_rows(plan.to_json()))
    assert {term: rows.get(term) for term in wanted} == wanted
    assert len(rows) == len(plan_rows(plan.to_json()))
