"""Break-even on the pages: what a search will cost, the gain it needs, and what it really cost."""

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from metering.contract import Contract, break_even, savings_at, search_price
from portal.billing.models import SavingsRecord
from portal.contracts.break_even import SEEN_SCHEMA, known_cost, search_outlook
from portal.events.models import Event
from portal.runs.models import Job, Tuning
from tests.portal.web_data import Stage
from tests.portal.web_stage import stage  # noqa: F401

pytestmark = pytest.mark.django_db


def page(client: Client, version: Any, **query: str) -> Any:
    return client.get(reverse("contracts:break-even", args=[version.pk]), query)


def test_the_outlook_is_the_engines(stage: Stage):  # noqa: F811
    """90 s on one core at 0.0480 an hour; the months are those of `break_even` itself."""
    version = stage.contract
    found = search_outlook(actor=stage.owner, version=version, monthly_cost=Decimal("0.01"))
    budget = search_price(version.plan["search_budget_s"], 1, "0.0480")
    assert found.budget_price == budget
    assert found.price == budget  # Its one search stayed within its budget.
    contract = Contract.from_json(version.contract)
    for row in found.rows:
        assert row.savings == savings_at("0.01", row.uplift)
        assert row.found == break_even(contract, found.price, row.savings)
    assert [months for months, _ in found.needed] == [1, 3, 12]


def test_an_overrun_of_earlier_searches_raises_the_price(stage: Stage):  # noqa: F811
    version = stage.contract
    before = search_outlook(actor=stage.owner, version=version)
    Tuning.objects.filter(pk=stage.tuning.pk).update(seconds=Decimal(135))
    after = search_outlook(actor=stage.owner, version=version)
    assert (before.overrun, after.overrun) == (1, Decimal("1.5"))
    assert after.price == before.price * Decimal("1.5")


def test_the_known_cost_is_the_newest_counterfactual(stage: Stage):  # noqa: F811
    billed = known_cost(actor=stage.finance, version=stage.contract)
    assert billed.amount == SavingsRecord.objects.get(invoices=stage.invoice).counterfactual
    assert "counterfactual of 2026-09" in billed.source
    idle = known_cost(actor=stage.owner, version=stage.draft)
    assert "2 cores around the clock" in idle.source
    # 672 to 745 hours of two cores.
    assert Decimal(64) < idle.amount < Decimal("71.6")


@pytest.mark.parametrize("who", ["owner", "auditor", "finance"])
def test_readers_of_money_see_it_opened_and_what_searches_cost(
    who: str,
    stage: Stage,  # noqa: F811
    client: Client,
):
    client.force_login(getattr(stage, who).user)
    text = page(client, stage.contract, monthly_cost="2.5").content.decode()
    assert "2.50000 EUR</span>; stated by you" in text
    assert "Savings a month = monthly cost" in text
    assert "0.002385 EUR" in text  # What the search of the stage really cost.
    assert ("Go on to the request" in text) == (who == "owner")


def test_operators_see_no_money_and_others_nothing(stage: Stage, client: Client):  # noqa: F811
    for who, status in (("operator", 403), ("host", 403), ("outsider", 404)):
        client.force_login(getattr(stage, who).user)
        assert page(client, stage.contract).status_code == status


@pytest.mark.parametrize("wrong", ["-1", "many", "1e400"])
def test_a_wrong_cost_comes_back_at_its_field(wrong: str, stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.owner.user)
    answer = page(client, stage.contract, monthly_cost=wrong)
    assert answer.status_code == 400
    text = answer.content.decode()
    assert 'id="id_monthly_cost_error"' in text
    assert f'value="{wrong}"' in text


def test_the_customer_confirms_having_seen_it(client: Client, cast: Any, agreed: Any):
    client.force_login(cast.owner.user)
    asks = reverse("runs:measure", args=[agreed.pk])
    given = {"answer": "not_stated", "monthly_cost": "3.20"}
    refused = client.post(asks, given)
    text = refused.content.decode()
    assert refused.status_code == 400
    assert "Confirm that you have seen the break-even above." in text
    assert 'value="3.20"' in text
    assert '<option value="not_stated" selected>' in text
    asked = Job.objects.filter(kind="measure", key=str(agreed.pk))
    assert not asked.exists()
    assert client.post(asks, {**given, "seen": "on"}).status_code == 302
    seen = asked.get().arguments["break_even"]
    assert (seen["schema"], seen["monthly_cost"]) == (SEEN_SCHEMA, "3.20")
    told = Event.objects.get(action="break_even.confirm")
    assert told.data == seen
    assert told.subject_id == str(agreed.pk)
    shown = page(client, agreed).content.decode()
    assert "the customer confirmed an expected price of" in shown


def test_the_request_page_carries_the_stated_cost(client: Client, cast: Any, agreed: Any):
    client.force_login(cast.owner.user)
    answer = client.get(
        reverse("runs:measure-request", args=[agreed.pk]), {"monthly_cost": "12.34"}
    )
    text = answer.content.decode()
    assert "12.3400 EUR</span>; stated by you" in text
    assert '<input type="hidden" name="monthly_cost" value="12.34"' in text
