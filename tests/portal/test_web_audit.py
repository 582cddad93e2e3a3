"""An invoice settled by the auditor on a stored measurement: shown first, settled once."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from portal.accounts.models import Membership
from portal.audits.services import review_approve, review_open
from portal.billing.corrections import dispute_open
from portal.billing.models import Correction, Invoice, JournalEntry
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.usage import usage_ingest
from portal.events.models import Event
from portal.runs.models import Measurement
from portal.runs.services import MeasuredFigures, measurement_record
from reports.canonical import canonical_json
from reports.envelope import add, sign
from tests.portal.conftest import example_contract
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage
from tests.portal.test_web_invoice import billed, terms


@pytest.fixture
def draft(cast, system, mix, draft) -> Any:
    """The contract of these tests holds a tenth back."""
    held = example_contract(holdback=Decimal("0.10"))
    type(draft).objects.filter(pk=draft.pk).update(
        contract=held.to_json(), contract_sha256=held.digest
    )
    draft.refresh_from_db()
    return draft


@pytest.fixture
def invoice(cast, approved) -> Invoice:
    """The invoice of a month with 6e11 counted samples."""
    event = {
        "specversion": "1.0", "type": "ignition.usage.v1", "source": "gateway-1", "id": "e1",
        "time": "2026-10-03T08:00:00Z",
        "data": {"model": "text-encoder", "system": "search-1", "samples": 600_000_000_000},
    }  # fmt: skip
    usage_ingest(
        actor=cast.owner, organisation=cast.organisation, lines=[json.dumps(event)], via="test"
    )
    period = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-10"
    )
    record = savings_compute(actor=cast.finance, period=period, measurement=approved)
    return invoice_issue(actor=cast.finance, savings=record)


@pytest.fixture
def measured_again(cast, approved, keys, home: Path) -> Measurement:
    """A second run of the same kernel on the same baseline: half the uplift, approved."""
    evidence = home / "evidence" / "m2"
    evidence.mkdir()
    (evidence / "note.txt").write_text("a second run")
    row = Measurement.objects.create(
        organisation=cast.organisation, contract_version=approved.contract_version,
        baseline=approved.baseline, package=approved.package, run_number=2,
        evidence_path=str(evidence.relative_to(home)),
    )  # fmt: skip
    row = measurement_record(
        actor=cast.platform,
        measurement=row,
        figures=MeasuredFigures(
            aa={"lo": "-0.004", "hi": "0.003", "passed": True, "reason": "", "pairs": 6},
            uplift={"point": "0.12", "lo": "0.09", "hi": "0.15", "lower_95": "0.1", "n": 6},
            pairs=[], accuracy={"min_cosine": "0.999999", "passed": True},
            uplift_point=Decimal("0.12"), uplift_lower_95=Decimal("0.10"), kept=True, reason="",
        ),
        evidence=evidence,
    )  # fmt: skip
    statement = canonical_json({"measurement": str(row.pk), "uplift": "0.12"})
    review = review_open(
        actor=cast.platform, measurement=row, statement=statement,
        envelope=sign(statement, keys.provider),
    )  # fmt: skip
    review_approve(
        actor=cast.auditor, review=review, envelope=add(review.envelope.encode(), keys.auditor)
    )
    return Measurement.objects.get(pk=row.pk)


def post(client: Client, member: Membership, invoice: Invoice, **data: Any) -> Any:
    client.force_login(member.user)
    return client.post(reverse("billing:audit-confirm", args=[invoice.pk]), data)


def written() -> list[int]:
    models = (Invoice, JournalEntry, Correction, Event)
    return [model.objects.count() for model in models]


def test_the_measurement_that_was_billed_releases_the_holdback(cast, invoice, client):
    given = {"measurement": str(invoice.measurement_id)}
    before = written()
    shown = post(client, cast.auditor, invoice, **given)
    assert (shown.status_code, written()) == (200, before)
    outcome = shown.context["told"].outcome
    assert (outcome.document, outcome.fee_change) == ("release", 0)
    assert outcome.holdback_released == Decimal(invoice.document["holdback"]) > 0
    answer = post(client, cast.auditor, invoice, **given, confirmed=0)
    release = Invoice.objects.get(kind="release")
    assert answer.url == reverse("billing:invoice", args=[release.pk])
    assert release.gross == outcome.gross
    assert Event.objects.filter(action="invoice.audit").count() == 1
    before = written()
    again = post(client, cast.auditor, invoice, **given, confirmed=0)
    assert (again.status_code, written()) == (400, before)
    client.force_login(cast.auditor.user)
    page = client.get(reverse("billing:audit", args=[invoice.pk])).content.decode()
    assert "audited already" in page


def test_a_lower_measurement_credits_down_to_its_fee(cast, invoice, measured_again, client):
    """20 % of V x c0 x (1 - 1/1.1), V x c0 = 6e11 x 0.05 / 3600 x 2 / 400 = 41,666.666...

    Invoiced 20 % of (1 - 1/1.2): 1,388.89; audited 757.58.
    """
    shown = post(client, cast.auditor, invoice, measurement=str(measured_again.pk))
    told = shown.context["told"]
    assert (told.invoiced.fee, told.audited.fee) == (Decimal("1388.89"), Decimal("757.58"))
    post(client, cast.auditor, invoice, measurement=str(measured_again.pk), confirmed=0)
    note = Invoice.objects.get(kind="credit_note")
    assert note.gross == told.outcome.gross < 0
    assert invoice.gross + note.gross == Decimal("901.52")  # 757.58 with 19 % VAT
    assert Correction.objects.get().details["measurement"] == str(measured_again.pk)


def test_who_may_not_and_what_cannot_be_settled(cast, invoice, client):
    given = {"measurement": str(invoice.measurement_id), "confirmed": 0}
    before = written()
    for member in (cast.owner, cast.finance, cast.outsider):
        assert post(client, member, invoice, **given).status_code == 403
    assert post(client, cast.auditor, invoice, measurement="x").status_code == 400
    assert written() == before
    dispute_open(actor=cast.owner, invoice=invoice, lines=["1"], reason="volume")
    before = written()
    answer = post(client, cast.auditor, invoice, **given)
    assert (answer.status_code, written()) == (400, before)
    assert "resolve the dispute before the audit" in answer.content.decode()


def test_stated_savings_say_why_no_measurement_settles_them(stage, client):
    invoice = billed(Settled(stage, (terms(),), "C-stated"), "2026-01", 2500)
    client.force_login(stage.cast.auditor.user)
    page = client.get(reverse("billing:audit", args=[invoice.pk])).content.decode()
    assert "amounts the auditor stated" in page
    answer = post(client, stage.cast.auditor, invoice, measurement=str(invoice.measurement_id),
                  confirmed=0)  # fmt: skip
    assert answer.status_code == 400
    assert not Correction.objects.exists()
