"""Savings and invoices: only on approval, one per period, numbers without gaps, never changed."""

import json
import threading
from decimal import Decimal

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from metering.ledger import Invoice as InvoiceDocument
from metering.plan import Period
from portal.accounts.access import NotAllowed
from portal.billing.models import Invoice, JournalEntry, NumberSeries, SavingsRecord
from portal.billing.services import (
    BillingError,
    invoice_issue,
    journal_post,
    period_open,
    savings_compute,
)
from portal.billing.usage import usage_ingest
from portal.records import IssuedError
from portal.runs.models import Measurement


@pytest.fixture
def metered(cast, agreed):
    """Two months of usage: 40 million samples each."""
    lines = [
        json.dumps(
            {
                "specversion": "1.0",
                "type": "ignition.usage.v1",
                "source": "gateway-1",
                "id": f"{month}-{day}",
                "time": f"2026-{month:02d}-{day:02d}T10:00:00Z",
                "data": {"model": "text-encoder", "system": "search-1", "samples": 4_000_000},
            }
        )
        for month in (9, 10)
        for day in range(1, 11)
    ]
    usage_ingest(actor=cast.owner, organisation=cast.organisation, lines=lines, via="test")


def compute(cast, measurement: Measurement, label: str) -> SavingsRecord:
    period = period_open(
        actor=cast.finance, contract_version=measurement.contract_version, label=label
    )
    return savings_compute(actor=cast.finance, period=period, measurement=measurement)


def issue(cast, measurement: Measurement, label: str) -> Invoice:
    return invoice_issue(actor=cast.finance, savings=compute(cast, measurement, label))


def test_amounts_by_hand(cast, approved, metered):
    """40 M samples at 400/s on 2 cores of 0.05 EUR/h, uplift 25 % point, 20 % bound, share 20 %."""
    record = compute(cast, approved, "2026-09")
    seconds = Decimal(40_000_000) / 400
    counterfactual = Decimal("0.05") / 3600 * 2 * seconds
    assert record.volume_samples == 40_000_000
    assert round(record.counterfactual, 6) == round(counterfactual, 6) == Decimal("2.777778")
    assert round(record.point, 6) == Decimal("0.555556")
    assert round(record.billable, 6) == Decimal("0.462963")
    assert record.fee == Decimal("0.09")
    invoice = invoice_issue(actor=cast.finance, savings=record)
    assert (invoice.net, invoice.tax, invoice.gross) == (
        Decimal("0.09"), Decimal("0.02"), Decimal("0.11"),
    )  # fmt: skip
    assert InvoiceDocument.from_json(invoice.document).digest == invoice.sha256


def test_unapproved_measurement_gets_no_number(cast, measured, metered):
    with pytest.raises(BillingError, match="not approved by the auditor"):
        compute(cast, measured, "2026-09")
    assert Invoice.objects.count() == 0
    assert NumberSeries.objects.filter(last__gt=0).count() == 0


def test_state_without_a_review_is_not_enough(cast, measured, metered):
    """Approval is the verified signature, not a word in a column."""
    Measurement.objects.filter(pk=measured.pk).update(state="approved")
    measured.refresh_from_db()
    with pytest.raises(BillingError, match="not approved by the auditor"):
        compute(cast, measured, "2026-09")


@pytest.mark.parametrize("who", ["owner", "auditor", "operator"])
def test_only_finance_issues(cast, approved, metered, who):
    record = compute(cast, approved, "2026-09")
    with pytest.raises(NotAllowed):
        invoice_issue(actor=getattr(cast, who), savings=record)


@pytest.mark.parametrize("not_kept_reason", ["the host was too noisy: A/A interval -0.08 to 0.07"])
def test_not_kept_bills_zero_and_says_why(cast, approved, metered, not_kept_reason):
    invoice = issue(cast, approved, "2026-09")
    assert invoice.net == 0
    assert not_kept_reason in json.dumps(invoice.document)
    assert JournalEntry.objects.filter(invoice=invoice).count() == 0


def test_figures_are_fixed_once_measured(measured):
    """Before any approval: between measuring and signing is when a change would pay."""
    with pytest.raises(DatabaseError, match="never change"), transaction.atomic():
        Measurement.objects.filter(pk=measured.pk).update(kept=True, uplift_point=Decimal(9))


def test_statement_under_review_is_fixed(review):
    from portal.audits.models import Review

    with pytest.raises(DatabaseError, match="never change"), transaction.atomic():
        Review.objects.filter(pk=review.pk).update(statement="another")


def test_period_that_runs_cannot_be_computed(cast, approved):
    label = Period.month_of(timezone.now(), approved.contract_version.contract["zone"]).label
    with pytest.raises(BillingError, match="computed afterwards"):
        compute(cast, approved, label)


def test_periods_go_in_order(cast, approved, metered):
    compute(cast, approved, "2026-10")
    with pytest.raises(BillingError, match="periods go in order"):
        compute(cast, approved, "2026-09")


def test_asking_again_gives_the_same_invoice(cast, approved, metered):
    record = compute(cast, approved, "2026-09")
    first = invoice_issue(actor=cast.finance, savings=record)
    again = invoice_issue(actor=cast.finance, savings=record)
    assert again.pk == first.pk
    assert Invoice.objects.count() == 1
    assert journal_post(actor=cast.finance, invoice=first) == list(
        JournalEntry.objects.filter(invoice=first)
    )


def test_numbers_have_no_gaps_after_a_failure(cast, approved, metered):
    first = issue(cast, approved, "2026-09")
    record = compute(cast, approved, "2026-10")

    @transaction.atomic
    def issue_then_fail() -> None:
        invoice_issue(actor=cast.finance, savings=record)
        raise RuntimeError("the machine went down")

    with pytest.raises(RuntimeError, match="went down"):
        issue_then_fail()
    second = invoice_issue(actor=cast.finance, savings=record)
    assert [first.number, second.number] == ["INV-000001", "INV-000002"]
    assert NumberSeries.objects.get().last == 2


def test_journal_sums_to_zero(cast, approved, metered):
    for label in ("2026-09", "2026-10"):
        invoice = issue(cast, approved, label)
        entries = JournalEntry.objects.filter(invoice=invoice)
        assert entries.count() == 3
        assert sum(entry.amount for entry in entries) == 0


def test_tampered_record_gets_no_invoice(cast, approved, metered):
    from portal import triggers

    record = compute(cast, approved, "2026-09")
    triggers.remove()
    document = {**record.document}
    document["breakdown"] = {**document["breakdown"], "fee": "900.00"}
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_savingsrecord SET document = %s WHERE id = %s",
            [json.dumps(document), record.pk.hex if connection.vendor == "sqlite" else record.pk],
        )
    record = SavingsRecord.objects.get(pk=record.pk)
    with pytest.raises(BillingError, match="differs from the frozen one"):
        invoice_issue(actor=cast.finance, savings=record)


def test_model_refuses_change(cast, approved, metered):
    invoice = issue(cast, approved, "2026-09")
    invoice.net = Decimal("1.00")
    with pytest.raises(IssuedError):
        invoice.save()
    with pytest.raises(IssuedError):
        invoice.save(update_fields=["net"])
    with pytest.raises(IssuedError):
        Invoice.objects.update(net=1)
    with pytest.raises(IssuedError):
        invoice.delete()
    with pytest.raises(IssuedError):
        Invoice.objects.all().delete()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_invoice SET net = 1",
        "UPDATE billing_invoice SET number = 'INV-9'",
        "UPDATE billing_invoice SET document = '{}'",
        "DELETE FROM billing_invoice",
        "UPDATE billing_journalentry SET amount = 0",
        "DELETE FROM billing_journalentry",
        "UPDATE billing_savingsrecord SET fee = 0",
        "UPDATE billing_usageevent SET samples = 1",
        "DELETE FROM billing_usageevent",
        "UPDATE runs_measurement SET uplift_point = 9",
        "UPDATE runs_baseline SET samples_per_second = 1",
        "UPDATE audits_review SET statement = 'x'",
        "UPDATE contracts_contractversion SET plan_sha256 = 'x'",
        "DELETE FROM contracts_contractversion",
    ],
)
def test_database_refuses_change(cast, approved, metered, statement):
    issue(cast, approved, "2026-09")
    with (
        pytest.raises(DatabaseError, match="never change"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


def test_database_allows_one_live_invoice(cast, approved, metered):
    invoice = issue(cast, approved, "2026-09")
    copy = Invoice.objects.get(pk=invoice.pk)
    copy._state.adding = True
    copy.pk = None
    copy.number, copy.sequence = "INV-000099", 99
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save(force_insert=True)


@pytest.mark.django_db(transaction=True)
def test_many_callers_get_the_same_savings(threads_db, cast, approved, metered):
    period = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-09"
    )
    got: list[object] = []

    def call() -> None:
        try:
            record = savings_compute(actor=cast.finance, period=period, measurement=approved)
            got.append(record.pk)
        except BaseException as error:
            got.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [SavingsRecord.objects.get().pk] * 5


@pytest.mark.django_db(transaction=True)
def test_eight_callers_at_once_get_one_invoice(threads_db, cast, approved, metered):
    """frappe/central#170: six workers read, found none, and wrote six."""
    record = compute(cast, approved, "2026-09")
    ready = threading.Barrier(8)
    got: list[object] = []

    def call() -> None:
        try:
            ready.wait()
            got.append(invoice_issue(actor=cast.finance, savings=record).number)
        except BaseException as error:
            got.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["INV-000001"] * 8
    assert (Invoice.objects.count(), NumberSeries.objects.get().last) == (1, 1)
    assert sum(entry.amount for entry in JournalEntry.objects.all()) == 0


@pytest.mark.django_db(transaction=True)
def test_many_callers_get_the_same_invoice(threads_db, cast, approved, metered):
    record = compute(cast, approved, "2026-09")
    later = compute(cast, approved, "2026-10")
    got: list[str] = []
    errors: list[BaseException] = []

    def call(savings: SavingsRecord) -> None:
        try:
            got.append(invoice_issue(actor=cast.finance, savings=savings).number)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=call, args=(savings,))
        for savings in (record, later, record, later, record, later, record, later)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(set(got)) == ["INV-000001", "INV-000002"]
    assert [got.count(number) for number in sorted(set(got))] == [4, 4]
    assert Invoice.objects.count() == 2
    assert sorted(Invoice.objects.values_list("sequence", flat=True)) == [1, 2]
