"""Periods on the pages: states, what blocks them, the job, the close, totals, the archive."""

import csv
import io
import json
import zipfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from metering.ledger import Totals
from portal.billing.corrections import audit_settle
from portal.billing.exports import exports_write
from portal.billing.models import BillingPeriod, Invoice, PeriodClose
from portal.billing.periods import Facts, State, month_list, standing_of
from portal.documents.models import Download
from portal.runs.models import Job
from portal.workspace import absolute
from reports.canonical import sha256_bytes
from tests.portal.web_data import Stage
from tests.portal.web_stage import stage  # noqa: F401

pytestmark = pytest.mark.django_db
AFTER = datetime(2026, 10, 1, tzinfo=UTC)


def facts(**changes: Any) -> Facts:
    """A month that ended a day ago, opened."""
    start = AFTER - timedelta(days=30)
    given: dict[str, Any] = {
        "now": AFTER + timedelta(days=1), "start": start, "end": AFTER,
        "period": BillingPeriod(label="2026-09", created_at=start),
    }  # fmt: skip
    return Facts(**{**given, **changes})


ISSUED = Invoice(number="INV-1", gross=Decimal("10"), currency="EUR", issued_at=AFTER)


@pytest.mark.parametrize(
    ("changes", "state", "who"),
    [
        ({"now": AFTER - timedelta(days=2), "period": None}, State.NOT_ENDED, "nobody"),
        ({"now": AFTER - timedelta(days=2)}, State.OPEN, "nobody"),
        ({"period": None}, State.OPEN, "finance"),
        ({}, State.OPEN, "auditor"),
        ({"approved_at": AFTER}, State.MEASURED, "finance"),
        ({"savings_at": AFTER}, State.COMPUTED, "finance"),
        ({"savings_at": AFTER, "invoice": ISSUED, "holdback": Decimal(1)}, State.ISSUED, "finance"),
        ({"invoice": ISSUED}, State.SETTLED, "finance"),
        ({"invoice": ISSUED, "holdback": Decimal(1), "audited_at": AFTER}, State.SETTLED,
         "finance"),
        ({"invoice": ISSUED, "audited_at": AFTER, "disputed_at": AFTER}, State.DISPUTED,
         "finance"),
        ({"invoice": ISSUED, "closed_at": AFTER}, State.CLOSED, "nobody"),
        ({"skipped": True, "period": None}, State.OPEN, "nobody"),
        ({"skipped": True}, State.OPEN, "finance"),
    ],
)  # fmt: skip
def test_the_latest_thing_that_happened_decides(changes, state, who):
    found = standing_of(facts(**changes))
    assert (found.state, found.who) == (state, who)
    assert found.next
    assert found.why


def test_usage_that_arrives_is_named():
    found = standing_of(
        facts(now=AFTER - timedelta(days=1), last_usage=AFTER - timedelta(days=2), period=None)
    )
    assert found.state == State.OPEN
    assert "usage is arriving, the last of 2026-09-29" in found.why


def test_every_month_of_every_signed_contract_is_there(stage: Stage):  # noqa: F811
    """From August on, for both signed contracts; the draft has no months."""
    now = datetime(2026, 11, 15, tzinfo=UTC)
    months = month_list(actor=stage.finance, now=now)
    names = [(month.version.contract_id, month.label) for month in months]
    labels = ["2026-11", "2026-10", "2026-09", "2026-08"]
    assert sorted(names) == sorted((c, m) for c in ("LUMEN-1", "LUMEN-2") for m in labels)
    states = {name: month.standing.state for name, month in zip(names, months, strict=True)}
    assert states["LUMEN-1", "2026-11"] == State.NOT_ENDED
    assert states["LUMEN-1", "2026-08"] == State.OPEN
    assert month_list(actor=stage.outsider, now=now) == []


def get(client: Client, name: str, stage: Stage, *more: str, **query: str) -> Any:  # noqa: F811
    return client.get(reverse(f"billing:{name}", args=[stage.invoice.period_id, *more]), query)


def post(client: Client, name: str, stage: Stage, **given: str) -> Any:  # noqa: F811
    return client.post(reverse(f"billing:{name}", args=[stage.invoice.period_id]), given)


def test_the_list_is_also_a_file(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    text = client.get(reverse("billing:periods"), {"format": "csv"}).content.decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["period"] == "2026-09"]
    own = next(row for row in rows if row["contract_id"] == "LUMEN-1")
    assert own["invoice"] == stage.invoice.number
    assert own["period_start"] == "2026-08-31T22:00:00+00:00"
    page = client.get(reverse("billing:periods")).content.decode()
    assert "Open a period" not in page  # Finance does.


def test_finance_opens_a_month_once(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.finance.user)
    where = reverse("billing:period-open")
    given = {"contract_version": str(stage.contract.pk), "label": "2026-10"}
    opened = client.post(where, given)
    period = BillingPeriod.objects.get(contract_id="LUMEN-1", label="2026-10")
    assert opened.url == reverse("billing:period", args=[period.pk])
    assert client.post(where, given).url == opened.url
    for label, words in (("2019-01", "wanted a month of LUMEN-1"), ("soon", "Wanted a month")):
        wrong = client.post(where, {**given, "label": label})
        assert wrong.status_code == 400
        assert words in wrong.content.decode()
    unsigned = client.post(where, {**given, "contract_version": str(stage.draft.pk)})
    assert unsigned.status_code == 400


def test_the_dashboard_sends_finance_to_the_oldest_period_that_waits(
    stage: Stage,  # noqa: F811
    client: Client,
):
    client.force_login(stage.finance.user)
    page = client.get(reverse("home")).content.decode()
    assert "Next: open the period" in page
    assert "LUMEN-2 2026-08: it has ended and nobody has opened it." in page


def test_finance_asks_for_savings_and_invoice_and_follows_the_job(
    stage: Stage,  # noqa: F811
    client: Client,
):
    client.force_login(stage.finance.user)
    client.post(
        reverse("billing:period-open"),
        {"contract_version": str(stage.contract.pk), "label": "2026-10"},
    )
    period = BillingPeriod.objects.get(contract_id="LUMEN-1", label="2026-10")
    page = client.get(reverse("billing:period", args=[period.pk])).content.decode()
    assert "Next: compute the savings and issue the invoice" in page
    assert f'value="{stage.measurement.pk}"' in page
    where = reverse("billing:period-bill", args=[period.pk])
    foreign = stage.open_review.measurement_id  # Of another contract, and not approved.
    wrong = client.post(where, {"measurement": str(foreign)})
    assert wrong.status_code == 400
    assert "Wanted an approved measurement of this contract." in wrong.content.decode()
    asked = client.post(where, {"measurement": str(stage.measurement.pk)})
    job = Job.objects.get(kind="bill", key="LUMEN-1 2026-10")
    assert job.arguments["measurement"] == str(stage.measurement.pk)
    assert job.requested_by == stage.finance.user
    followed = client.get(asked.url).content.decode()
    status = reverse("billing:period-job-status", args=[period.pk])
    assert f'hx-get="{status}"' in followed
    assert "queued" in client.get(status).content.decode()
    # Other jobs speak of kernels: not for finance.
    assert client.get(reverse("runs:job", args=[job.pk])).status_code == 403


def test_a_period_is_closed_from_its_checklist(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.finance.user)
    page = get(client, "period-checks", stage).content.decode()
    assert "Undecided, conflicts or unmatched: 1 parked line of the period" in page
    assert "Missing: FOCUS 1.4 CSV of INV-000001" in page
    refused = post(client, "period-close", stage, final="on", note="the gateway is asked")
    assert refused.status_code == 400
    text = refused.content.decode()
    assert "exports are written: missing: FOCUS 1.4 CSV" in text
    assert "the gateway is asked" in text  # What was typed stays.
    settle_what_is_open(stage)
    no_reason = post(client, "period-close", stage, final="on", note="")
    assert "note: got nothing" in no_reason.content.decode()
    unread = post(client, "period-close", stage, note="the gateway is asked")
    assert "Confirm it: a closed period is never reopened." in unread.content.decode()
    assert not PeriodClose.objects.exists()
    closed = post(
        client, "period-close", stage, final="on", note="the gateway is asked",
        sha256="0" * 64, closed_by="1", organisation=str(stage.outsider.organisation_id),
    )  # fmt: skip
    row = PeriodClose.objects.get()
    assert closed.url == reverse("billing:reconciliation", args=[stage.invoice.period_id])
    assert (row.closed_by, row.organisation) == (stage.finance.user, stage.organisation)
    assert row.note == "the gateway is asked"
    page = client.get(closed.url).content.decode()
    assert "The books are as they were closed." in page
    assert page.count("differs") == 0
    frozen = get(client, "period-checks", stage).content.decode()
    assert "Closed on this checklist" in frozen
    assert "Close the period" not in frozen
    assert State.CLOSED in get(client, "period", stage).content.decode()


def settle_what_is_open(stage: Stage) -> None:  # noqa: F811
    """Exports written; a dispute that the stage may hold on this invoice is ended."""
    from portal.billing.corrections import dispute_release

    exports_write(actor=stage.finance, invoice=stage.invoice)
    if stage.invoice.disputes.filter(outcome="open").exists():
        dispute_release(actor=stage.finance, invoice=stage.invoice)


def closed_period(stage: Stage, client: Client) -> PeriodClose:  # noqa: F811
    client.force_login(stage.finance.user)
    settle_what_is_open(stage)
    post(client, "period-close", stage, final="on", note="the gateway is asked")
    return PeriodClose.objects.get()


def test_the_files_are_the_frozen_ones(stage: Stage, client: Client):  # noqa: F811
    frozen = closed_period(stage, client).document["totals"]
    for name in ("journal", "focus", "lines"):
        data = get(client, "period-csv", stage, name).content
        assert sha256_bytes(data) == frozen[name]["sha256"], name
        assert len(data.splitlines()) == frozen[name]["rows"] + 1
    trial = csv.DictReader(io.StringIO(get(client, "period-csv", stage, "trial").content.decode()))
    assert sum(Decimal(row["balance"]) for row in trial) == 0
    assert get(client, "period-csv", stage, "kernels").status_code == 404


def test_the_archive_holds_what_its_manifest_says(stage: Stage, client: Client):  # noqa: F811
    close = closed_period(stage, client)
    before = Download.objects.count()
    answer = get(client, "period-exports", stage)
    assert get(client, "period-exports", stage).content == answer.content
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    manifest = json.loads(archive.read("manifest.json"))
    assert manifest["close_sha256"] == close.sha256 == sha256_bytes(archive.read("close.json"))
    named = {row["name"] for row in manifest["files"]}
    assert named == set(archive.namelist()) - {"manifest.json", "close.json"}
    for row in manifest["files"]:
        assert sha256_bytes(archive.read(row["name"])) == row["sha256"], row["name"]
        Totals.from_json({key: row[key] for key in ("rows", "sums", "sha256")})
    exports = stage.invoice.exports.count()
    assert Download.objects.count() == before + 2 * exports


def test_a_changed_file_is_named_and_not_handed_out(stage: Stage, client: Client):  # noqa: F811
    closed_period(stage, client)
    path = absolute(stage.invoice.exports.get(file_format="journal").stored_file.path)
    whole = path.read_bytes()
    path.write_bytes(whole + b" ")
    try:
        assert get(client, "period-exports", stage).status_code == 409
        page = get(client, "reconciliation", stage).content.decode()
        assert "the file has digest" in page
    finally:
        path.write_bytes(whole)


def test_the_trial_balance_of_each_month_is_zero(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.finance.user)
    text = client.get(reverse("billing:trial-balance"), {"format": "csv"}).content.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    sums = [row for row in rows if row["account"] == "all accounts"]
    assert sums
    assert {Decimal(row["balance"]) for row in sums} == {0}
    for total in sums:
        own = [r for r in rows if r["month"] == total["month"] and r not in sums]
        assert sum(Decimal(row["debit"]) for row in own) == Decimal(total["debit"])


def test_a_release_after_the_close_is_shown_where_it_is_posted(
    stage: Stage,  # noqa: F811
    client: Client,
):
    closed_period(stage, client)
    from portal.billing.savings import frozen_savings

    correction = audit_settle(
        actor=stage.auditor, invoice=stage.invoice, measurement=stage.measurement,
        verified=frozen_savings(stage.invoice.savings),
    )  # fmt: skip
    assert correction.document is not None
    page = get(client, "period", stage).content.decode()
    assert "Posted in a later period, because this one was closed" in page
    assert correction.document.number in page
    later = correction.document.posted_in
    assert later.label == "2026-10"
    page = client.get(reverse("billing:period", args=[later.pk])).content.decode()
    assert "2026-09, closed before" in page
    assert timezone.now() > later.created_at
