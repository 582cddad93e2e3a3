"""What the customer runs today: stated by form, held to the plan, shown beside the best stock."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from metering.baseline import Row
from metering.baseline.as_found import as_found, stated_stacks
from metering.loadgen.spec import SutSpec
from metering.plan import MeasurementPlan
from metering.refusal import Refusal
from portal.accounts.access import NotAllowed
from portal.demo import scenario
from portal.demo.summary import found_document, found_words
from portal.runs.as_found import BILLING, as_found_figures
from portal.runs.models import Baseline, Job
from portal.runs.pipeline.facts import as_found_facts
from portal.runs.requests import measure_request
from tests.portal.web_data import Stage
from tests.portal.web_stage import stage  # noqa: F401

GIVEN = {
    "answer": "stated", "stack": "onnxruntime", "threads": "2", "instances": "1",
    "arrangement": "padded", "batch": "32", "graph_optimization": "all",
}  # fmt: skip
OURS = SutSpec("onnxruntime", threads=2, arrangement="padded", batch=32, graph_optimization="all")


@pytest.fixture
def plan(agreed: Any) -> MeasurementPlan:
    return MeasurementPlan.from_json(agreed.plan)


def ask(client: Client, version: Any, given: Mapping[str, str]) -> Any:
    return client.post(reverse("runs:measure", args=[version.pk]), {"seen": "on", **given})


def test_a_stated_configuration_goes_to_the_job(client: Client, cast: Any, agreed: Any) -> None:
    client.force_login(cast.owner.user)
    page = client.get(reverse("runs:measure-request", args=[agreed.pk])).content.decode()
    assert "What do you run today?" in page
    assert 'value="32"' not in page  # Nothing is filled in for the customer.
    answer = ask(client, agreed, GIVEN)
    job = Job.objects.get(kind="measure")
    assert (answer.status_code, answer.url) == (302, reverse("runs:job", args=[job.pk]))
    assert SutSpec.from_dict(job.arguments["as_found"]) == OURS
    page = client.get(reverse("runs:measure-request", args=[agreed.pk])).content.decode()
    assert "onnxruntime, 2 threads, padded, batches of 32, graph all" in page
    assert "Ask for the measurement" not in page


def test_not_stated_is_an_answer_and_silence_is_none(
    client: Client, cast: Any, agreed: Any
) -> None:
    client.force_login(cast.owner.user)
    assert ask(client, agreed, {}).status_code == 400
    assert not Job.objects.exists()
    assert ask(client, agreed, {"answer": "not_stated"}).status_code == 302
    assert "as_found" not in Job.objects.get().arguments
    page = client.get(reverse("runs:measure-request", args=[agreed.pk])).content.decode()
    assert "<dd>not stated</dd>" in page


WRONG = [
    ({"threads": "3"}, "threads", "wanted at most 2, the cores of the plan"),
    ({"instances": "2"}, "threads", "wanted at most 2"),
    ({"stack": "sklearn"}, "stack", "not one of the available choices"),
    ({"arrangement": "single"}, "batch", "wanted 1, because samples go one by one"),
    ({"graph_optimization": ""}, "graph_optimization", "Wanted, so that"),
    ({"graph_optimization": "default", "stack": "openvino", "batch": "0"}, "batch", "greater"),
    ({"stack": "openvino"}, "graph_optimization", "wanted one of default with openvino"),
    ({"threads": "many"}, "threads", "whole number"),
    ({"answer": "not_stated"}, "stack", "Leave this empty"),
]


@pytest.mark.parametrize(("change", "name", "message"), WRONG)
def test_what_cannot_be_measured_comes_back_at_its_field(
    client: Client, cast: Any, agreed: Any, change: dict[str, str], name: str, message: str
) -> None:
    client.force_login(cast.owner.user)
    answer = ask(client, agreed, {**GIVEN, **change})
    assert answer.status_code == 400
    form = answer.context["form"]
    assert message in " ".join(form.errors[name])
    # What was typed stays.
    assert form["batch"].value() == change.get("batch", "32")
    assert not Job.objects.exists()


def test_only_the_customer_asks_and_only_for_a_signed_contract(
    client: Client, cast: Any, draft: Any
) -> None:
    for who, status in (("auditor", 403), ("finance", 403), ("operator", 403), ("outsider", 404)):
        client.force_login(getattr(cast, who).user)
        assert ask(client, draft, GIVEN).status_code == status, who
    with pytest.raises(NotAllowed, match=r"measurement\.request: role finance"):
        measure_request(actor=cast.finance, contract_version=draft)
    client.force_login(cast.owner.user)
    answer = ask(client, draft, GIVEN)
    assert answer.status_code == 400
    assert "not signed by all three parties" in answer.content.decode()
    assert not Job.objects.exists()


def test_a_failed_job_is_asked_again_with_the_first_statement(
    client: Client, cast: Any, agreed: Any
) -> None:
    client.force_login(cast.owner.user)
    ask(client, agreed, GIVEN)
    Job.objects.update(state=Job.State.FAILED)
    page = client.get(reverse("runs:measure-request", args=[agreed.pk])).content.decode()
    assert "Ask again" in page
    assert ask(client, agreed, {"answer": "not_stated"}).status_code == 302
    job = Job.objects.get()
    assert job.state == Job.State.QUEUED
    assert SutSpec.from_dict(job.arguments["as_found"]) == OURS


def test_unnamed_fields_are_not_taken(client: Client, cast: Any, agreed: Any) -> None:
    client.force_login(cast.owner.user)
    ask(client, agreed, {**GIVEN, "precision": "as_stored", "package": "/x", "key": "k"})
    job = Job.objects.get()
    assert job.arguments["as_found"] == OURS.to_dict()
    assert job.key == str(agreed.pk)


def test_the_engine_names_the_field(plan: MeasurementPlan) -> None:
    offered = stated_stacks(plan)
    assert "onnxruntime" in offered
    given: dict[str, Any] = {
        "stack": "onnxruntime", "threads": 1, "instances": 2, "arrangement": "grouped",
        "batch": 1, "graph_optimization": "none", "offered": offered,
    }  # fmt: skip
    # A batch of one is single, as in the sweep: no configuration is measured under two names.
    assert as_found(plan, **given).arrangement == "single"
    for change, name in (
        ({"threads": 0}, "threads"),
        ({"arrangement": "ragged"}, "arrangement"),
        ({"stack": "kernelgen"}, "stack"),
    ):
        with pytest.raises(Refusal) as caught:
            as_found(plan, **{**given, **change})
        assert caught.value.field == name


@pytest.mark.django_db
@pytest.mark.parametrize("page", ["runs:baseline", "runs:measurement", "audits:review"])
def test_pages_set_what_was_found_beside_the_best(
    client: Client,
    stage: Stage,  # noqa: F811
    page: str,
) -> None:
    client.force_login(stage.auditor.user)
    which = {
        "runs:baseline": stage.baseline, "runs:measurement": stage.measurement,
        "audits:review": stage.open_review,
    }[page]  # fmt: skip
    text = client.get(reverse(page, args=[which.pk])).content.decode()
    assert BILLING in text
    row = stage.baseline.document["as_found"]
    ahead = Decimal("1012.5") / Decimal(row["samples_per_second"]) - 1
    assert f"{ahead:+.1%}".replace("%", " %") in text
    for run in row["final_runs"] or [row["screening_run"]]:
        assert run in text


@pytest.mark.django_db
def test_without_a_statement_or_a_rate_pages_say_so(
    client: Client,
    stage: Stage,  # noqa: F811
) -> None:
    baseline = copy.copy(stage.baseline)
    baseline.document = {**baseline.document, "as_found": None}
    assert as_found_figures(baseline) == ()
    row = {**stage.baseline.document["as_found"], "samples_per_second": None, "state": "HUNG"}
    baseline.document = {**baseline.document, "as_found": row}
    figures = as_found_figures(baseline)
    assert [figure.value for figure in figures] == ["no rate", "1,012.5", "no rate"]
    assert "HUNG" in figures[0].note


def test_report_and_summary_carry_the_same_figure() -> None:
    row = Row(OURS, "VALID", Decimal("812.4"), "screen-03", ("final-03-r0",), None, None)
    facts = as_found_facts(row, {"onnxruntime": "1.2"})
    assert facts is not None
    assert (facts.samples_per_second, facts.state) == ("812.4", "VALID")
    assert "padded, batch 32" in facts.configuration
    nothing = as_found_facts(replace(row, samples_per_second=None, state="HUNG"), {})
    assert nothing is not None
    assert nothing.samples_per_second is None
    assert as_found_facts(None, {}) is None

    summary = found_document(Baseline(document={"as_found": row.to_dict()}))
    assert summary is not None
    assert summary["samples_per_second"] == "812.4"
    assert found_words(summary).endswith("812.4 sentences/s; billing uses the baseline")
    assert found_words(None) == "not stated; billing uses the baseline"


def test_the_demonstration_states_what_a_plain_script_runs() -> None:
    assert scenario.as_found({"cores": [0, 1]}) == OURS
