"""The API: tokens, scopes, one organisation, one golden document."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from portal.accounts.services import AccountsError, token_create, token_revoke
from portal.api.root import api
from portal.audits.models import SufficiencyOverride
from portal.billing.closing import period_close
from portal.billing.corrections import dispute_open, dispute_release
from portal.billing.exports import exports_write
from portal.billing.models import UsageEvent
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.usage import usage_ingest
from portal.runs.models import BaselineEntry

MONEY = {
    "usage/batches", "savings", "invoices", "disputes", "periods", "period-closes",
    "sufficiency-overrides",
}  # fmt: skip
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "openapi.json"


def event(number: int, samples: object = 10) -> dict[str, object]:
    return {
        "specversion": "1.0",
        "type": "ignition.usage.v1",
        "source": "gateway-1",
        "id": f"e{number}",
        "time": "2026-10-03T08:00:00Z",
        "data": {"model": "text-encoder", "system": "search-1", "samples": samples},
    }


@pytest.fixture
def call(client: Client):
    """Send one request with a member's fresh token."""

    def act(member, path: str, method: str = "get", scopes=("read",), **more):
        _, text = token_create(actor=member, name="test", scopes=list(scopes))
        return getattr(client, method)(
            f"/api/v1{path}", headers={"Authorization": f"Bearer {text}"}, **more
        )

    return act


@pytest.fixture
def rows(cast, approved) -> dict[str, str]:
    """One row of every kind the API shows, by path."""
    batch, _ = usage_ingest(
        actor=cast.owner,
        organisation=cast.organisation,
        lines=[json.dumps(event(1, 10**12))],
        via="test",
    )
    version = approved.contract_version
    period = period_open(actor=cast.finance, contract_version=version, label="2026-10")
    record = savings_compute(actor=cast.finance, period=period, measurement=approved)
    invoice = invoice_issue(actor=cast.finance, savings=record)
    dispute = dispute_open(actor=cast.owner, invoice=invoice, lines=["1"], reason="volume")
    dispute_release(actor=cast.finance, invoice=invoice)
    exports_write(actor=cast.finance, invoice=invoice)
    close = period_close(actor=cast.finance, period=period)
    override = SufficiencyOverride(
        organisation=cast.organisation, period=period, measurement=approved,
        rule="sufficiency.usage.hours", found="1 of 745 hours metered, 0.9 of them needed",
        auditor=cast.auditor.user, stated_by="auditor, auditor", reason="a pilot",
    )  # fmt: skip
    override.save(force_insert=True)
    entry = BaselineEntry(
        organisation=cast.organisation, contract_version=version, number=0, line="{}",
        line_sha256="1" * 64, baseline_sha256=approved.baseline.sha256, stack="onnxruntime",
        stack_version="1.24", samples_per_second="400", evidence_path="evidence/m1",
        frozen_at=approved.baseline.frozen_at,
    )  # fmt: skip
    entry.save(force_insert=True)
    return {
        "systems": version.system_id,
        "mixes": version.mix_id,
        "baselines": approved.baseline_id,
        "baseline-entries": entry.pk,
        "tunings": approved.package.tuning_id,
        "measurements": approved.pk,
        "usage/batches": batch.pk,
        "savings": record.pk,
        "invoices": invoice.pk,
        "disputes": dispute.pk,
        "periods": period.pk,
        "period-closes": close.pk,
        "sufficiency-overrides": override.pk,
    }


def test_golden_document():
    """A change of the API shows here first; write the new document when it is meant."""
    document = json.loads(json.dumps(api.get_openapi_schema()))
    assert document == json.loads(GOLDEN.read_text("utf-8")), (
        "the OpenAPI document changed: if that is meant, run"
        " 'python manage.py openapi > tests/golden/openapi.json'"
    )


@pytest.mark.parametrize("who", ["owner", "colleague", "auditor"])
def test_members_read_their_own(call, cast, rows, who):
    for path, pk in rows.items():
        listed = call(getattr(cast, who), f"/{path}").json()
        assert [item["id"] for item in listed["items"]] == [str(pk)], path
        one = call(getattr(cast, who), f"/{path}/{pk}")
        assert one.status_code == 200, path
        assert one.json()["id"] == str(pk)


def test_every_route_is_404_and_empty_for_outsiders(call, cast, rows):
    for path, pk in rows.items():
        assert call(cast.outsider, f"/{path}").json() == {"items": [], "count": 0}, path
        found = call(cast.outsider, f"/{path}/{pk}")
        assert (found.status_code, found.json()) == (404, {"error": "not found"}), path


def test_rows_cover_every_route(rows):
    """A new route without a tenancy check fails here."""
    routes = {path.removeprefix("/api/v1/") for path in api.get_openapi_schema()["paths"]}
    details = {route for route in routes if "{" in route}
    assert {route.rsplit("/", 1)[0] for route in details} == set(rows)
    assert routes - details == {*rows, "usage/events", "usage/volumes"}


@pytest.mark.parametrize(
    ("who", "hidden"),
    [
        ("finance", {"tunings"}),
        ("operator", MONEY),
        ("host", {"measurements", *MONEY}),
    ],
)
def test_roles_see_what_is_theirs(call, cast, rows, who, hidden):
    for path, pk in rows.items():
        wanted = 404 if path in hidden else 200
        assert call(getattr(cast, who), f"/{path}/{pk}").status_code == wanted, path


def test_a_period_tells_its_state_and_the_totals_its_close_froze(call, cast, rows):
    period = call(cast.finance, f"/periods/{rows['periods']}").json()
    assert (period["state"], period["who"], period["label"]) == ("closed", "nobody", "2026-10")
    close = call(cast.finance, f"/period-closes/{rows['period-closes']}").json()
    assert close["period_id"] == period["id"]
    frozen = close["document"]["totals"]
    assert {one.pop("name"): one for one in period["totals"]} == {
        name: frozen[name] for name in ("journal", "focus", "lines")
    }


def test_amounts_are_text_in_the_documents_digits(call, cast, rows):
    invoice = call(cast.owner, f"/invoices/{rows['invoices']}").json()
    assert invoice["payable"] == invoice["document"]["payable"]
    savings = call(cast.owner, f"/savings/{rows['savings']}").json()
    assert isinstance(savings["counterfactual"], str)
    assert "E" not in savings["counterfactual"]


def test_no_token_no_answer(client, cast):
    assert client.get("/api/v1/systems").status_code == 401
    wrong = client.get("/api/v1/systems", headers={"Authorization": "Bearer ign_x_y"})
    assert wrong.status_code == 401
    assert "error" in wrong.json()


def test_revoked_and_expired_tokens(client, cast):
    token, text = token_create(actor=cast.owner, name="t", scopes=["read"])
    headers = {"Authorization": f"Bearer {text}"}
    assert client.get("/api/v1/systems", headers=headers).status_code == 200
    token_revoke(actor=cast.owner, token=token)
    assert client.get("/api/v1/systems", headers=headers).status_code == 401
    _, late = token_create(
        actor=cast.owner,
        name="t",
        scopes=["read"],
        expires_at=timezone.now() - timedelta(seconds=1),
    )
    headers = {"Authorization": f"Bearer {late}"}
    assert client.get("/api/v1/systems", headers=headers).status_code == 401


def test_token_dies_with_the_membership(client, cast):
    _, text = token_create(actor=cast.auditor, name="t", scopes=["read"])
    cast.auditor.expires_at = timezone.now()
    cast.auditor.save()
    headers = {"Authorization": f"Bearer {text}"}
    assert client.get("/api/v1/systems", headers=headers).status_code == 401


def test_secret_is_not_stored(cast):
    token, text = token_create(actor=cast.owner, name="t", scopes=["read"])
    assert text.split("_", 2)[2] not in json.dumps(
        {field.name: str(getattr(token, field.attname)) for field in token._meta.fields}
    )


def test_scopes(call, cast, rows):
    body = json.dumps([event(9)])
    denied = call(cast.owner, "/usage/events", "post", data=body, content_type="application/json")
    assert denied.status_code == 403
    denied = call(cast.owner, "/systems", scopes=["usage:write"])
    assert denied.status_code == 403
    with pytest.raises(AccountsError, match="usage:write is for customers"):
        token_create(actor=cast.finance, name="t", scopes=["usage:write"])


def test_delivery_of_a_batch(call, cast, agreed):
    body = json.dumps([event(1), event(1), event(1, samples=11), event(2, samples=-5)])
    send = {"data": body, "content_type": "application/cloudevents-batch+json"}
    answer = call(cast.owner, "/usage/events", "post", scopes=["usage:write"], **send)
    assert answer.status_code == 200, answer.content
    receipt = answer.json()
    assert [fate["fate"] for fate in receipt["fates"]] == [
        "stored", "duplicate", "conflict", "negative",
    ]  # fmt: skip
    assert receipt["batch"]["stored"] == 1
    stored = UsageEvent.objects.get()
    assert stored.received_at is not None
    assert timezone.now() - stored.received_at < timedelta(minutes=1)
    again = call(cast.owner, "/usage/events", "post", scopes=["usage:write"], **send).json()
    assert again["batch"]["stored"] == 0


def test_delivery_of_lines_and_of_one_event(call, cast, agreed):
    lines = "\n".join([json.dumps(event(1)), "oops", json.dumps(event(2))])
    answer = call(
        cast.owner, "/usage/events", "post", scopes=["usage:write"],
        data=lines, content_type="application/x-ndjson",
    ).json()  # fmt: skip
    assert [fate["fate"] for fate in answer["fates"]] == ["stored", "malformed", "stored"]
    answer = call(
        cast.owner, "/usage/events", "post", scopes=["usage:write"],
        data=json.dumps(event(3)), content_type="application/cloudevents+json",
    ).json()  # fmt: skip
    assert [fate["fate"] for fate in answer["fates"]] == ["stored"]


@pytest.mark.parametrize("body", ["", "[", '[{"a": 1.5}]', '[{"a": 1, "a": 2}]', "\xff"])
def test_bad_bodies_are_refused_whole(call, cast, agreed, body):
    answer = call(
        cast.owner, "/usage/events", "post", scopes=["usage:write"],
        data=body.encode("latin-1"), content_type="application/json",
    )  # fmt: skip
    assert answer.status_code == 422
    assert "wanted" in answer.json()["error"]
    assert UsageEvent.objects.count() == 0


def test_too_many_events_at_once(call, cast, agreed, monkeypatch):
    from portal.api import usage

    monkeypatch.setattr(usage, "MAX_EVENTS", 2)
    answer = call(
        cast.owner, "/usage/events", "post", scopes=["usage:write"],
        data=json.dumps([event(n) for n in range(3)]), content_type="application/json",
    )  # fmt: skip
    assert answer.status_code == 413
    assert UsageEvent.objects.count() == 0
