"""The dispute flow on its pages: opened by the customer, ended by finance, read by the auditor."""

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from portal.accounts.models import Membership
from portal.billing.models import Correction, Dispute, Invoice, JournalEntry
from portal.events.models import Event
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage
from tests.portal.test_web_invoice import billed, page, terms


@pytest.fixture
def settled(stage) -> Settled:
    """A contract with two tiers, holdback, tax and a search pool."""
    return Settled(stage, (terms(),), "C-web")


def post(client: Client, member: Membership, route: str, pk: object, **data: Any) -> Any:
    client.force_login(member.user)
    return client.post(reverse(f"billing:{route}", args=[pk]), data)


def written() -> dict[str, int]:
    models = (Invoice, JournalEntry, Correction, Dispute, Event)
    return {model.__name__: model.objects.count() for model in models}


def test_a_dispute_is_shown_before_it_is_opened(settled, client):
    """The split of the first answer is the one that is stored by the second."""
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    assert "Dispute lines" in page(client, cast.owner, invoice)
    before = written()
    given = {"lines": ["2"], "reason": "The volume of M1 is ours to prove."}
    shown = post(client, cast.owner, "dispute-open", invoice.pk, **given)
    assert (shown.status_code, written()) == (200, before)
    split = shown.context["split"]
    answer = post(client, cast.owner, "dispute-open", invoice.pk, **given, confirmed="on")
    row = Dispute.objects.get()
    assert answer.url == reverse("billing:dispute", args=[row.pk])
    assert (row.collectible, row.disputed) == (split.collectible, split.disputed)
    assert row.collectible + row.disputed == invoice.gross
    assert Event.objects.filter(action="dispute.open", subject_id=str(row.pk)).count() == 1
    text = page(client, cast.auditor, invoice)
    assert "Disputed</a>" in text
    assert given["reason"] in text
    assert "Dispute lines" not in page(client, cast.owner, invoice)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "lines"),
        ({"lines": ["1"]}, "reason"),
        ({"lines": ["9"], "reason": "x"}, "lines"),
        ({"lines": ["1"], "reason": "x" * 301}, "reason"),
    ],
)
def test_a_bad_dispute_comes_back_with_its_words(settled, client, given, field):
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    before = written()
    answer = post(client, cast.owner, "dispute-open", invoice.pk, **given, confirmed="on")
    assert (answer.status_code, written()) == (400, before)
    assert (
        list(answer.context["form"].errors) == [field]
        if given
        else "lines" in (answer.context["form"].errors)
    )
    text = answer.content.decode()
    assert given.get("reason", "")[:40] in text
    if given.get("lines") == ["1"]:
        assert 'value="1" id="id_lines_0" checked' in text.replace('" aria-invalid="true"', '"')


def test_finance_releases(settled, client):
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    given = {"lines": ["1"], "reason": "volume", "confirmed": "on"}
    post(client, cast.owner, "dispute-open", invoice.pk, **given)
    row = Dispute.objects.get()
    client.force_login(cast.auditor.user)
    text = client.get(reverse("billing:dispute", args=[row.pk])).content.decode()
    assert "Release the lines" not in text
    assert "dispute.open" in text
    assert post(client, cast.owner, "dispute-release", row.pk).status_code == 403
    assert post(client, cast.finance, "dispute-release", row.pk).status_code == 302
    row.refresh_from_db()
    assert row.outcome == "released"
    text = client.get(reverse("billing:dispute", args=[row.pk])).content.decode()
    for words in ("released", "dispute.open", "dispute.resolve"):
        assert words in text
    events = Event.objects.count()
    again = post(client, cast.finance, "dispute-release", row.pk)
    text = client.get(again.url).content.decode()
    assert "no open dispute to resolve" in text
    assert Event.objects.count() == events
    assert sum(entry.amount for entry in invoice.journal_entries.all()) == 0


def test_finance_credits_a_disputed_line(settled, client):
    """Shown first, stored as shown; the dispute ends with it, its history names the note."""
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    post(client, cast.owner, "dispute-open", invoice.pk, lines=["2"], reason="volume",
         confirmed="on")  # fmt: skip
    before = written()
    given = {"amount_2": "10.50", "reason": "agreed with the customer"}
    shown = post(client, cast.finance, "credit", invoice.pk, **given)
    assert (shown.status_code, written()) == (200, before)
    note = shown.context["note"]
    answer = post(client, cast.finance, "credit", invoice.pk, **given, confirmed=0)
    stored = Invoice.objects.get(kind="credit_note")
    assert answer.url == reverse("billing:invoice", args=[stored.pk])
    assert (stored.net, stored.tax, stored.gross) == (note.net, note.tax, note.payable)
    assert stored.corrects == invoice
    row = Dispute.objects.get()
    assert row.outcome == "credited"
    text = client.get(reverse("billing:dispute", args=[row.pk])).content.decode()
    assert stored.number in text
    assert "agreed with the customer" in text
    event = Event.objects.get(action="invoice.credit")
    assert event.data["ended_dispute"] == str(row.pk)


def test_credit_never_exceeds_what_is_left_and_keeps_what_was_typed(settled, client):
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    whole = Decimal(invoice.document["lines"][1]["fee_line"]["amount"])
    post(client, cast.finance, "credit", invoice.pk, amount_2="1.00", reason="x", confirmed=0)
    before = written()
    wrong = {
        "amount_2": (str(whole), f"at most the {whole - 1} left of it"),
        "amount_1": ("12,5", "wanted decimal text"),
        "everything": ("", "Give an amount of at least one line"),
    }
    for field, (typed, message) in wrong.items():
        data = {"reason": "too much", "confirmed": 1} | ({field: typed} if typed else {})
        answer = post(client, cast.finance, "credit", invoice.pk, **data)
        assert (answer.status_code, written()) == (400, before), field
        assert message in str(answer.context["form"].errors[field]), field
        text = answer.content.decode()
        assert "too much" in text
        assert typed in text


def test_full_credit_leaves_nothing_and_closes_the_form(settled, client):
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    post(client, cast.finance, "credit", invoice.pk, amount_1="7.00", reason="part",
         confirmed=0)  # fmt: skip
    post(client, cast.finance, "credit", invoice.pk, everything="on", reason="rest",
         confirmed=1)  # fmt: skip
    notes = Invoice.objects.filter(kind="credit_note")
    assert sum(note.gross for note in notes) == -invoice.gross
    url = reverse("billing:credit-new", args=[invoice.pk])
    assert "nothing is left to credit" in client.get(url).content.decode()
    before = written()
    answer = post(client, cast.finance, "credit", invoice.pk, everything="on", reason="again",
                  confirmed=2)  # fmt: skip
    assert (answer.status_code, written()) == (400, before)


def test_a_form_sent_twice_credits_once(settled, client):
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    given = {"amount_1": "5.00", "reason": "price", "confirmed": 0}
    assert post(client, cast.finance, "credit", invoice.pk, **given).status_code == 302
    before = written()
    again = post(client, cast.finance, "credit", invoice.pk, **given)
    assert (again.status_code, written()) == (400, before)
    assert "has 1 credit notes by now, 0 when these figures were shown" in again.content.decode()


def test_only_named_fields_are_taken(settled, client):
    """Amounts, outcome and organisation in a POST change nothing but what the forms name."""
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    extra = {
        "collectible": "0", "disputed": "1", "outcome": "credited", "opened_on": "2020-01-01",
        "organisation": str(cast.outsider.organisation_id), "invoice": str(invoice.pk),
    }  # fmt: skip
    post(client, cast.owner, "dispute-open", invoice.pk, lines=["1"], reason="x", confirmed="on",
         **extra)  # fmt: skip
    row = Dispute.objects.get()
    assert (row.outcome, row.organisation) == ("open", cast.organisation)
    assert row.opened_on.year > 2020
    assert row.collectible + row.disputed == invoice.gross
    post(client, cast.finance, "credit", invoice.pk, amount_1="1.00", reason="x", confirmed=0,
         number="CN-999999", net="-1000", issued_at="2020-01-01T00:00:00Z")  # fmt: skip
    note = Invoice.objects.get(kind="credit_note")
    assert (note.number, note.document["fee"]) == ("CN-000001", "-1.00")
    assert note.issued_at.year > 2020


def test_a_corrected_invoice_is_not_disputed_and_says_why(settled, client):
    cast = settled.stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    post(client, cast.finance, "credit", invoice.pk, amount_1="1.00", reason="x", confirmed=0)
    client.force_login(cast.owner.user)
    text = client.get(reverse("billing:dispute-new", args=[invoice.pk])).content.decode()
    assert "corrected already" in text
    answer = post(client, cast.owner, "dispute-open", invoice.pk, lines=["1"], reason="x",
                  confirmed="on")  # fmt: skip
    assert answer.status_code == 400
    assert not Dispute.objects.exists()


def test_the_list_filters_by_state(settled, client):
    cast = settled.stage.cast
    for month in ("2026-01", "2026-02"):
        invoice = billed(settled, month, 2500, 700)
        post(client, cast.owner, "dispute-open", invoice.pk, lines=["1"], reason=month,
             confirmed="on")  # fmt: skip
    first = Dispute.objects.get(reason="2026-01")
    post(client, cast.finance, "dispute-release", first.pk)
    client.force_login(cast.auditor.user)
    text = client.get(reverse("billing:disputes"), {"outcome": "open"}).content.decode()
    assert "1 in all" in text
    listed = client.get(reverse("billing:disputes"), {"format": "csv"}).content.decode()
    assert listed.count("INV-") == 2
