"""A plan that knows its task: tagged floors, bounds, and the first document untouched."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from metering import canonical
from metering.datasets.reading import ReadingFloor
from metering.export.validate import validate
from metering.loadgen import settings
from metering.plan import (
    CosineFloor,
    MeasurementPlan,
    MultiStreamBounds,
    Seeds,
    ServerBounds,
    short_run_plan,
)
from metering.plan.accuracy_floor import floor_words
from metering.plan.scenario_bounds import MULTI_STREAM_SAMPLES, SERVER_PERCENTILE
from metering.refusal import Refusal
from tests.metering.money_cases import plan

# Written down when there was one document only.
FIRST_DIGEST = "3f7be4fa1f0242162ceb5e153e3fbc0215a4137887f721437202c2794aa07502"


def reader(**changes: Any) -> MeasurementPlan:
    made = short_run_plan(
        "R-1", cores=[0, 1], zone="UTC", seeds=Seeds(1, 2, 3, 4), task="text_recognition"
    )
    return replace(made, **changes)


def server(**changes: Any) -> MeasurementPlan:
    return replace(plan(), scenario="Server", bounds=ServerBounds(15_000_000), **changes)


def again(made: MeasurementPlan) -> MeasurementPlan:
    return MeasurementPlan.from_json(canonical.loads(canonical.dumps(made.to_json())))


def test_what_was_signed_as_the_first_document_keeps_it_and_its_digest() -> None:
    assert plan().schema == "ignition.plan.v1"
    assert replace(plan(), method_version="ignition-method-2").digest == FIRST_DIGEST
    assert {"task", "bounds", "claim", "accuracy_floor"}.isdisjoint(plan().to_json())
    # Such a plan could always name a scenario that nobody could measure; it still loads.
    old = {**plan().to_json(), "scenario": "Server"}
    assert MeasurementPlan.from_json(old).to_json() == old


@pytest.mark.parametrize(
    "made",
    [
        reader(),
        reader(claim=False),
        reader(scenario="SingleStream"),
        reader(scenario="MultiStream", bounds=MultiStreamBounds()),
        server(),
        replace(plan(), claim=False),
    ],
    ids=["lines", "no claim", "single", "multi", "server", "sentences without a claim"],
)
def test_every_other_plan_is_the_second_document_and_survives_it(made: MeasurementPlan) -> None:
    assert made.to_json()["schema"] == "ignition.plan.v2"
    assert again(made) == made
    assert again(made).digest == made.digest
    assert made.digest != plan().digest


def test_the_second_document_has_one_form() -> None:
    """What the first can say is not said twice: two documents would be two digests of one plan."""
    value = {**reader().to_json(), "task": "embedding"}
    value["accuracy_floor"] = {"kind": "cosine", "cosine": "0.9999"}
    with pytest.raises(Refusal, match=r"plan\.schema: .* wanted ignition\.plan\.v1"):
        MeasurementPlan.from_json(value)


def test_floor_bounds_and_task_are_part_of_what_arms_must_share() -> None:
    looser = reader(accuracy_floor=ReadingFloor(Decimal("0.7"), Decimal("0.02"), True))
    keys = {made.comparability_key for made in (plan(), reader(), looser, server())}
    slower = replace(server(), bounds=ServerBounds(30_000_000))
    assert len(keys | {slower.comparability_key}) == 5
    assert reader(pairs=12, claim=False).comparability_key == reader().comparability_key


@pytest.mark.parametrize(
    ("change", "field", "wanted"),
    [
        ({"task": "generation"}, "plan.task", "embedding, text_recognition"),
        ({"accuracy_floor": {"kind": "mean"}}, "plan.accuracy_floor.kind", "cosine, reading"),
        (
            {"accuracy_floor": {"kind": "cosine", "cosine": "0.9"}},
            "plan.accuracy_floor.kind",
            "reading, which the task text_recognition has",
        ),
        (
            {"accuracy_floor": {"kind": "reading", "least_exact": "0.9", "ignore_spaces": True}},
            "plan.accuracy_floor.most_character_errors",
            "this field",
        ),
        (
            {
                "accuracy_floor": {
                    "kind": "reading",
                    "least_exact": "1.2",
                    "most_character_errors": "0",
                    "ignore_spaces": True,
                }
            },
            "plan.accuracy_floor.least_exact",
            "a fraction, 0 to 1",
        ),
        ({"claim": "no"}, "plan.claim", "true or false"),
        ({"bounds": {"target_latency_ns": 5, "percentile": "0.99"}}, "plan.bounds", "Offline"),
        ({"scenario": "Server"}, "plan.bounds", "target_latency_ns and percentile"),
        ({"scenario": "MultiStream"}, "plan.bounds", "samples_per_query"),
        (
            {"scenario": "Server", "bounds": {"target_latency_ns": 0, "percentile": "0.99"}},
            "plan.bounds.target_latency_ns",
            "nanoseconds from 1",
        ),
        (
            {"scenario": "Server", "bounds": {"target_latency_ns": 9, "percentile": "0.95"}},
            "plan.bounds.percentile",
            "LoadGen judges",
        ),
        (
            {"scenario": "MultiStream", "bounds": {"samples_per_query": 4}},
            "plan.bounds.samples_per_query",
            "8, as MLPerf asks",
        ),
        ({"accuracy_floor_cosine": "0.9"}, "plan.accuracy_floor_cosine", "only"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_second_document_names_field_value_and_wish(
    change: dict[str, Any], field: str, wanted: str
) -> None:
    with pytest.raises(Refusal) as refused:
        MeasurementPlan.from_json({**reader().to_json(), **change})
    assert refused.value.field == field
    assert wanted in str(refused.value)


def test_a_plan_made_in_code_is_held_to_the_same() -> None:
    with pytest.raises(Refusal, match="reading, which the task"):
        reader(accuracy_floor=CosineFloor(Decimal("0.9")))
    with pytest.raises(Refusal, match="null: Offline has none"):
        replace(plan(), bounds=ServerBounds(5))
    with pytest.raises(Refusal, match="samples_per_query"):
        reader(scenario="MultiStream")
    with pytest.raises(Refusal, match="one of embedding"):
        short_run_plan("p", cores=[0], zone="UTC", seeds=Seeds(1, 2, 3, 4), task="generation")
    with pytest.raises(Refusal, match="the only task that has a cosine"):
        _ = reader().accuracy_floor_cosine


def test_bounds_are_those_the_harness_runs_with() -> None:
    assert settings.MULTI_STREAM_SAMPLES == MULTI_STREAM_SAMPLES
    assert str(SERVER_PERCENTILE) == settings.SERVER_PERCENTILE


def test_floors_are_worded_for_people() -> None:
    assert floor_words(plan().accuracy_floor).startswith("cosine of at least 0.9999")
    assert floor_words(reader().accuracy_floor) == (
        "at least 80.00% of lines read exactly and at most 2.00% character errors, spaces left "
        "out; no worse than the reference"
    )


def test_the_validator_knows_both_documents(tmp_path: Any) -> None:
    for made in (plan(), reader()):
        path = tmp_path / f"{made.plan_id}.json"
        path.write_bytes(canonical.dumps(made.to_json()))
        assert validate(path) == (made.schema, [])
