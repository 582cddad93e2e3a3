"""Closing a period: what must hold, what is frozen, and where postings go afterwards."""

import json
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from metering.ledger import Totals, differences, trial_balance
from portal.accounts.access import NotAllowed
from portal.billing import reconciliation as books
from portal.billing.closing import NoteMissingError, close_checks, period_close
from portal.billing.conflicts import contents_of, usage_decide
from portal.billing.corrections import audit_settle, credit_issue, dispute_open, dispute_release
from portal.billing.exports import exports_write
from portal.billing.models import (
    BillingPeriod,
    Invoice,
    JournalEntry,
    PeriodClose,
    SavingsRecord,
    UsageEvent,
)
from portal.billing.posting import entries_of, following, invoices_of
from portal.billing.savings import BillingError, savings_verify
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.usage import usage_ingest
from portal.events.models import Event
from portal.records import IssuedError
from portal.workspace import absolute
from reports.canonical import canonical_json, sha256_bytes
from tests.metering.money_cases import contract, line
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage
from tests.portal.test_api import event
from tests.portal.test_billing_corrections import billed, stated


@pytest.fixture
def settled(stage) -> Settled:
    """A contract with holdback and tax, and an approved measurement of it."""
    return Settled(stage, (contract(holdback=Decimal("0.10"), vat=Decimal("0.19")),), "C-close")


def ready(settled: Settled, month: str, *savings: int) -> Invoice:
    """A month's invoice with its exports: all that a close needs."""
    invoice = billed(settled, month, *savings)
    exports_write(actor=settled.stage.cast.finance, invoice=invoice)
    return invoice


def closed(settled: Settled, invoice: Invoice, note: str = "") -> PeriodClose:
    row = period_close(actor=settled.stage.cast.finance, period=invoice.period, note=note)
    return PeriodClose.objects.get(pk=row.pk)


def open_points(period: BillingPeriod) -> set[str]:
    return {check.name for check in close_checks(period) if not check.ok}


def test_a_close_freezes_rows_sums_and_digests(settled):
    invoice = ready(settled, "2026-01", 1000, 2000)
    row = closed(settled, invoice)
    assert row.sha256 == sha256_bytes(canonical_json(row.document))
    totals = {name: Totals.from_json(value) for name, value in row.document["totals"].items()}
    text, journal = books.journal_file(invoice.period)
    assert journal == totals["journal"]
    assert journal.sha256 == sha256_bytes(text.encode())
    assert (journal.rows, journal.sums) == (4, {"EUR": Decimal("702.60")})  # 600 + 19 % of 540
    assert totals["lines"].sums == {"EUR": Decimal("600.00")}
    assert totals["focus"].sums == {"EUR": invoice.gross.quantize(Decimal("0.01"))}
    assert [one["number"] for one in row.document["documents"]] == [invoice.number]
    assert {one["format"] for one in row.document["exports"]} == {
        export.file_format for export in invoice.exports.all()
    }
    assert {check["state"] for check in row.document["checks"]} == {"done"}
    told = Event.objects.get(action="period.close")
    assert (told.data["sha256"], told.data["left_open"]) == (row.sha256, [])


def test_a_period_is_closed_once_and_by_finance_alone(settled):
    cast = settled.stage.cast
    invoice = ready(settled, "2026-01", 1000)
    for actor in (cast.owner, cast.auditor, cast.operator):
        with pytest.raises(NotAllowed):
            period_close(actor=actor, period=invoice.period)
    first = closed(settled, invoice)
    assert closed(settled, invoice, note="again") == first
    assert PeriodClose.objects.count() == Event.objects.filter(action="period.close").count() == 1


def test_what_is_missing_is_named_and_nothing_is_written(settled):
    cast = settled.stage.cast
    finance, measurement = cast.finance, settled.measurement
    first = period_open(actor=finance, contract_version=settled.versions[0], label="2026-01")
    assert open_points(first) == {"invoice"}
    with pytest.raises(BillingError, match="no savings are computed"):
        period_close(actor=finance, period=first)
    record = savings_verify(
        actor=cast.auditor, period=first, measurement=measurement,
        verified=stated(settled, "2026-01", [line(1000)]),
    )  # fmt: skip
    with pytest.raises(BillingError, match="no invoice is issued"):
        period_close(actor=finance, period=first)
    invoice = invoice_issue(actor=finance, savings=record)
    with pytest.raises(BillingError, match=r"missing: FOCUS 1\.2 CSV of INV-000001"):
        period_close(actor=finance, period=first)
    exports_write(actor=finance, invoice=invoice)
    dispute_open(actor=cast.owner, invoice=invoice, lines=["1"], reason="volume")
    with pytest.raises(BillingError, match="no dispute is open: open: INV-000001"):
        period_close(actor=finance, period=first)
    dispute_release(actor=finance, invoice=invoice)
    second = ready(settled, "2026-02", 500)
    assert open_points(second.period) == {"earlier"}
    with pytest.raises(BillingError, match="still open: 2026-01"):
        period_close(actor=finance, period=second.period)
    future = period_open(
        actor=finance, contract_version=settled.versions[0],
        label=f"{timezone.now().year + 1}-01",
    )  # fmt: skip
    assert "ended" in open_points(future)
    assert not PeriodClose.objects.exists()


def test_a_changed_export_keeps_a_period_open(settled):
    invoice = ready(settled, "2026-01", 1000)
    stored = invoice.exports.get(file_format="journal").stored_file
    path = absolute(stored.path)
    path.write_bytes(path.read_bytes().replace(b"238.00", b"238.01").replace(b"200", b"201"))
    found = {check.name: check for check in close_checks(invoice.period)}
    assert found["validated"].state == "not yet"
    assert "the file has digest" in found["validated"].words
    assert "other bytes" in found["validated"].words
    with pytest.raises(BillingError, match="exports hold"):
        period_close(actor=settled.stage.cast.finance, period=invoice.period)


def test_a_zero_invoice_closes_too(settled):
    invoice = ready(settled, "2026-01", -300)
    row = closed(settled, invoice)
    assert invoice.gross == 0
    assert Totals.from_json(row.document["totals"]["journal"]).rows == 0
    words = {check["name"]: check["words"] for check in row.document["checks"]}
    assert "an invoice of zero with its reason" in words["invoice"]


def test_corrections_after_a_close_are_in_the_next_open_periods_books(settled):
    """An audit, a credit note and a dispute of a closed month, each booked in the month after."""
    cast = settled.stage.cast
    first = ready(settled, "2026-01", 1000)
    frozen = Totals.from_json(closed(settled, first).document["totals"]["journal"])
    second = ready(settled, "2026-02", 2000)
    dispute_open(actor=cast.owner, invoice=first, lines=["1"], reason="volume")
    dispute_release(actor=cast.finance, invoice=first)
    settle = {
        "invoice": first,
        "measurement": settled.measurement,
        "verified": stated(settled, "2026-01", [line(900, model="M0")]),
    }
    release = audit_settle(actor=cast.auditor, **settle).document
    assert books.journal_file(first.period)[1] == frozen
    assert [row.number for row in invoices_of(first.period)] == [first.number]
    assert {row.number for row in invoices_of(second.period)} == {second.number, release.number}
    assert release.posted_in == second.period
    assert release.period == first.period
    late = entries_of(second.period).filter(invoice=first)
    assert late.count() == 4  # two of the dispute, two of its end
    for period in (first.period, second.period):
        assert sum((row.amount for row in entries_of(period)), Decimal(0)) == 0
        assert books.unbalanced(books.postings(entries_of(period))) == {}
    exports_write(actor=cast.finance, invoice=Invoice.objects.get(pk=release.pk))
    row = closed(settled, second)
    assert {one["number"] for one in row.document["documents"]} == {second.number, release.number}


def test_a_correction_with_no_open_period_opens_the_next_one(settled):
    cast = settled.stage.cast
    first = ready(settled, "2026-01", 1000)
    closed(settled, first)
    note = credit_issue(actor=cast.finance, invoice=first, reason="wrong meter")
    assert note.posted_in.label == "2026-02"
    told = Event.objects.filter(action="period.open").latest("seq")
    assert told.data["reason"] == "2026-01 is closed and something was posted"
    assert {row.invoice for row in entries_of(note.posted_in)} == {note}
    # The month is then billed as any other; the note stays in its books.
    second = billed(settled, "2026-02", 500)
    assert second.period == note.posted_in
    assert {row.number for row in invoices_of(second.period)} == {note.number, second.number}


def test_a_skipped_period_bills_nothing_and_closes(settled):
    """A month left out holds up no later close; what is posted in it is closed with it."""
    cast = settled.stage.cast
    first = ready(settled, "2026-01", 1000)
    closed(settled, first)
    skipped = period_open(actor=cast.finance, contract_version=settled.versions[0], label="2026-02")
    note = credit_issue(actor=cast.finance, invoice=first, reason="x", amounts={"1": Decimal(5)})
    assert note.posted_in == skipped
    third = ready(settled, "2026-03", 500)
    exports_write(actor=cast.finance, invoice=Invoice.objects.get(pk=note.pk))
    with pytest.raises(BillingError, match="still open: 2026-02"):
        period_close(actor=cast.finance, period=third.period)
    row = period_close(actor=cast.finance, period=skipped)
    words = {check["name"]: check["words"] for check in row.document["checks"]}
    assert words["invoice"] == "skipped: 2026-03 is computed, so it bills nothing"
    assert [one["number"] for one in row.document["documents"]] == [note.number]
    closed(settled, third)


def test_the_period_after_an_anchored_one_begins_where_it_ends(settled):
    version, finance = settled.versions[0], settled.stage.cast.finance
    start = timezone.datetime(2026, 1, 31).date()
    for label in ("2026-01-31", "2026-02-28"):
        last = period_open(actor=finance, contract_version=version, label=label, anchor=start)
    assert following(last).label == "2026-03-31"
    assert following(last).start == last.ends_at


def test_a_closed_period_takes_no_new_invoice(settled):
    invoice = ready(settled, "2026-01", 1000)
    closed(settled, invoice)
    finance = settled.stage.cast.finance
    assert invoice_issue(actor=finance, savings=invoice.savings) == invoice
    savings = SavingsRecord.objects.get(pk=invoice.savings_id)
    # As if nobody had ever issued it: the live one is out of sight.
    Invoice.objects.update(live=False)
    with pytest.raises(BillingError, match="closed, and periods are not reopened"):
        invoice_issue(actor=finance, savings=savings)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE billing_periodclose SET note = 'better'", "never change"),
        ("DELETE FROM billing_periodclose", "never change"),
        ("UPDATE billing_journalentry SET posted_in_id = NULL", "never change"),
        ("UPDATE billing_invoice SET posted_in_id = period_id", "never change"),
        (
            "INSERT INTO billing_journalentry (id, created_at, organisation_id, invoice_id, line,"
            " booked_on, account, amount, currency, memo) SELECT invoice_id, created_at,"
            " organisation_id, invoice_id, 99, booked_on, account, 0, currency, '' FROM"
            " billing_journalentry LIMIT 1",
            "the period is closed",
        ),
    ],
)
def test_the_database_refuses_too(settled, statement, words):
    closed(settled, ready(settled, "2026-01", 1000))
    before = JournalEntry.objects.count()
    with (
        pytest.raises(DatabaseError, match=words),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    with pytest.raises(IssuedError):
        PeriodClose.objects.update(note="better")
    assert JournalEntry.objects.count() == before


def send(cast, *events: dict[str, object]) -> None:
    lines = [json.dumps(one) for one in events]
    usage_ingest(actor=cast.owner, organisation=cast.organisation, lines=lines, via="test")


def test_undecided_and_late_usage_is_named(cast, approved):
    """A conflict stays open only with a reason; what came late is named for the next period."""
    finance, version = cast.finance, approved.contract_version
    unknown = {**event(3), "data": {"model": "other", "system": "search-1", "samples": 4}}
    send(cast, event(1), event(2), unknown)
    send(cast, event(1, samples=99))
    period = period_open(actor=finance, contract_version=version, label="2026-10")
    record = savings_compute(actor=finance, period=period, measurement=approved)
    exports_write(actor=finance, invoice=invoice_issue(actor=finance, savings=record))
    send(cast, event(7, samples=777))
    found = {check.name: check for check in close_checks(period)}
    assert (found["usage"].state, found["late"].state) == ("left open", "done")
    assert "2 parked lines of the period" in found["usage"].words
    assert {name for name, _ in found["usage"].evidence} == {
        "conflict, gateway-1 e1", "unmatched, gateway-1 e3",
    }  # fmt: skip
    assert "1 event with 777 samples arrived after" in found["late"].words
    with pytest.raises(NoteMissingError, match="note: got nothing"):
        period_close(actor=finance, period=period, note="  ")
    row = period_close(actor=finance, period=period, note="the gateway's owner looks into e1")
    frozen = Totals.from_json(row.document["totals"]["usage"])
    # e1 is in conflict and counts for nobody; e2 is what was billed, e7 came too late.
    assert (frozen.rows, frozen.sums) == (1, {"samples": Decimal(10)})
    assert differences(frozen, books.usage_anew(period)) == (
        "+1 rows", "+777 samples", "and so another digest",
    )  # fmt: skip
    assert Event.objects.get(action="period.close").data["left_open"] == ["usage"]


def test_an_unmatched_line_that_was_sent_again_is_settled(cast, approved):
    period = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-10"
    )
    wrong = {**event(1), "data": {"model": "other", "system": "search-1", "samples": 4}}
    send(cast, wrong)
    assert books.undecided(period).count() == 1
    send(cast, event(1))
    assert books.undecided(period).count() == 0


def test_differences_are_named_and_a_trial_balance_sums_to_zero(settled):
    one = Totals(3, {"EUR": Decimal("10.00")}, "a" * 64)
    assert differences(one, one) == ()
    assert differences(one, Totals(3, {"EUR": Decimal("10.00")}, "b" * 64)) == ("other content",)
    assert differences(one, Totals(2, {"EUR": Decimal("9.99"), "USD": Decimal(1)}, "b" * 64)) == (
        "-1 rows", "-0.01 EUR", "+1 USD", "and so another digest",
    )  # fmt: skip
    ready(settled, "2026-01", 1000)
    rows = JournalEntry.objects.all()
    trial = trial_balance(item.entry for item in books.postings(rows))
    assert {(row.account, row.balance) for row in trial} == {
        ("Assets:Receivable", Decimal("214.20")), ("Assets:Contract:Holdback", Decimal("20.00")),
        ("Income:Savings-Share", Decimal("-200.00")), ("Liabilities:VAT", Decimal("-34.20")),
    }  # fmt: skip
    monthly = books.monthly_trial(rows)
    assert monthly[-1].account == books.ALL
    assert (monthly[-1].debit, monthly[-1].balance) == (Decimal("234.20"), 0)


def test_a_decided_conflict_is_settled_and_counted_as_decided(cast, approved):
    """What the customer decided before billing is what the totals counted anew say, too."""
    finance, version = cast.finance, approved.contract_version
    send(cast, event(1), event(2))
    send(cast, event(1, samples=99))
    period = period_open(actor=finance, contract_version=version, label="2026-10")
    assert books.undecided(period).count() == 1
    stored = UsageEvent.objects.get(event_id="e1")
    contents = contents_of(stored)
    usage_decide(
        actor=cast.owner, stored=stored, choice=contents[1].choice, reason="the meter was reset",
        seen=[one.event.content for one in contents],
    )  # fmt: skip
    assert books.undecided(period).count() == 0
    record = savings_compute(actor=finance, period=period, measurement=approved)
    exports_write(actor=finance, invoice=invoice_issue(actor=finance, savings=record))
    row = period_close(actor=finance, period=period)
    frozen = Totals.from_json(row.document["totals"]["usage"])
    assert frozen.sums == {"samples": Decimal(109)}
    assert differences(frozen, books.usage_anew(period)) == ()
