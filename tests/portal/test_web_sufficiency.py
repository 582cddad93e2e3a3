"""The auditor's page of a period: what is missing, with figures, and the form that overrides it."""

import pytest
from django.test import Client
from django.urls import reverse

from portal.audits.models import SufficiencyOverride
from tests.portal.web_data import Stage
from tests.portal.web_stage import stage  # noqa: F401

pytestmark = pytest.mark.django_db
RULES = (
    "data.usage.conflict", "sufficiency.baseline.days", "sufficiency.baseline.runs",
    "sufficiency.usage.hours",
)  # fmt: skip


def url(stage: Stage, name: str = "sufficiency") -> str:  # noqa: F811
    return reverse(f"audits:{name}", args=[stage.open_review.pk, stage.open_period.pk])


def text_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    return response.content.decode()


def test_what_is_missing_is_shown_with_its_figures(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.colleague.user)
    text = text_of(client, url(stage))
    for found in (
        *RULES, "3 valid baseline runs, 5 needed", "baseline runs of 1 day, 3 needed",
        "27 of 720 hours metered, 0.90 of them needed", "1 event came twice",
        "/api/v1/usage/volumes?start=2026-09-01&amp;end=2026-10-01&amp;zone=Europe%2FBerlin",
        "final-05-r0", "None. Only the auditor",
    ):  # fmt: skip
        assert found in text, found
    assert "Override this rule" not in text, "a customer overrides nothing"
    assert reverse("audits:sufficiency", args=[stage.open_review.pk, stage.open_period.pk]) in (
        text_of(client, reverse("audits:review", args=[stage.open_review.pk]))
    )
    assert url(stage) in text_of(client, reverse("billing:period", args=[stage.open_period.pk]))


def test_the_auditor_overrides_one_rule(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    text = text_of(client, url(stage))
    assert [rule for rule in RULES if f'<option value="{rule}"' in text] == list(RULES)
    sent = {
        "rule": RULES[3], "reason": "Gateway\nreplaced in week 36.",
        "stated_by": "somebody else", "found": "nothing", "auditor": stage.owner.user.pk,
    }  # fmt: skip
    answer = client.post(url(stage, "override"), sent)
    assert (answer.status_code, answer.url) == (302, url(stage))
    row = SufficiencyOverride.objects.get(period=stage.open_period)
    assert (row.rule, row.reason) == (RULES[3], "Gateway replaced in week 36.")
    assert row.stated_by == "auditor, Vogt Assurance"
    assert row.found == "27 of 720 hours metered, 0.90 of them needed"
    text = text_of(client, url(stage))
    assert "auditor, Vogt Assurance: Gateway replaced in week 36." in text
    assert f'<option value="{RULES[3]}"' not in text


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"rule": RULES[0], "reason": ""}, "This field is required"),
        ({"rule": RULES[0], "reason": "x" * 501}, "has 501"),
        ({"rule": "no.rule", "reason": "kept as typed"}, "not one of the available choices"),
        ({"rule": "data.volume.extreme", "reason": "kept as typed"}, "not one of the available"),
    ],
)
def test_bad_input_gives_the_form_again(
    stage: Stage,  # noqa: F811
    client: Client,
    sent: dict[str, str],
    message: str,
):
    client.force_login(stage.auditor.user)
    answer = client.post(url(stage, "override"), sent)
    assert answer.status_code == 400
    text = answer.content.decode()
    assert message in text
    assert sent["reason"] in text
    assert not SufficiencyOverride.objects.filter(period=stage.open_period).exists()


def test_what_is_frozen_is_shown_and_not_overridden(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    where = [stage.approved_review.pk, stage.invoice.period_id]
    text = text_of(client, reverse("audits:sufficiency", args=where))
    assert "Frozen." in text
    assert text.count("A pilot: both parties agreed") >= 4
    answer = client.post(
        reverse("audits:override", args=where), {"rule": RULES[0], "reason": "too late"}
    )
    assert answer.status_code == 400
    assert "too late" in answer.content.decode()


def test_review_and_period_are_of_one_contract(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    where = [stage.open_review.pk, stage.invoice.period_id]
    text_of(client, reverse("audits:sufficiency", args=where), 404)


def test_savings_invoice_and_report_print_the_overrides(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.finance.user)
    for address in (
        reverse("billing:savings", args=[stage.invoice.savings_id]),
        reverse("billing:invoice", args=[stage.invoice.pk]),
        reverse("documents:report", args=[stage.report.pk]),
    ):
        text = text_of(client, address)
        assert "3 valid baseline runs, 5 needed" in text, address
        assert "auditor, Vogt Assurance: A pilot" in text, address
