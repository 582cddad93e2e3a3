"""Credit notes, audits, disputes and the search pool: services, and rows that never change."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from metering.contract import Recoupment
from metering.decimals import to_text
from metering.refusal import Refusal
from portal import triggers
from portal.accounts.access import NotAllowed
from portal.billing.corrections import audit_settle, credit_issue, dispute_open, dispute_release
from portal.billing.models import (
    Correction,
    Dispute,
    Invoice,
    JournalEntry,
    NumberSeries,
    SavingsRecord,
    SearchCost,
)
from portal.billing.recoupment import book_measured_search, pool_of, search_cost_book
from portal.billing.sandbox import invoice_what_if
from portal.billing.savings import BillingError, frozen_savings, savings_verify
from portal.billing.services import invoice_issue, period_open
from portal.contracts.models import ContractVersion
from portal.events.models import Event
from portal.records import IssuedError
from tests.metering.money_cases import contract, line, verified
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage


@pytest.fixture
def settled(stage) -> Settled:
    """A contract with holdback, tax and a search pool of 1,000, booked from a real ledger."""
    terms = contract(
        holdback=Decimal("0.10"),
        vat=Decimal("0.19"),
        recoupment=Recoupment("pool", Decimal(1000), share=Decimal("0.10")),
    )
    return Settled(stage, (terms,), "C-corr")


def billed(settled: Settled, month: str, *savings: int) -> Invoice:
    """The invoice of a month with one line per amount, stated by the auditor."""
    cast = settled.stage.cast
    period = period_open(actor=cast.finance, contract_version=settled.versions[0], label=month)
    lines = [line(amount, model=f"M{n}") for n, amount in enumerate(savings)]
    record = savings_verify(
        actor=cast.auditor,
        period=period,
        measurement=settled.measurement,
        verified=stated(settled, month, lines),
    )
    return invoice_issue(actor=cast.finance, savings=record)


def stated(settled: Settled, month: str, lines):
    return replace(
        verified(lines, month=month), evidence_digest=settled.measurement.evidence_sha256
    )


def balance(account: str) -> Decimal:
    rows = JournalEntry.objects.filter(account=account)
    return sum((row.amount for row in rows), Decimal(0))


def test_a_credit_note_has_its_own_series_and_a_rollback_leaves_no_gap(settled):
    """odoo/odoo#11859, Dolibarr/dolibarr#29667."""
    finance = settled.stage.cast.finance
    first = billed(settled, "2026-01", 1000)

    @transaction.atomic
    def credit_then_fail() -> None:
        credit_issue(actor=finance, invoice=first, reason="x", amounts={"1": Decimal(5)})
        raise RuntimeError("the machine went down")

    with pytest.raises(RuntimeError, match="went down"):
        credit_then_fail()
    note = credit_issue(actor=finance, invoice=first, reason="x", amounts={"1": Decimal(5)})
    second = billed(settled, "2026-02", 1000)
    assert (note.number, note.series) == ("CN-000001", "CN")
    assert [first.number, second.number] == ["INV-000001", "INV-000002"]
    assert dict(NumberSeries.objects.values_list("series", "last")) == {"CN": 1, "INV": 2}


def test_a_failed_credit_changes_nothing_and_a_void_gives_everything_back(settled):
    """getlago/lago-api#3703, #5653, killbill/killbill#1464."""
    finance = settled.stage.cast.finance
    first = billed(settled, "2026-01", 1000)
    with pytest.raises(Refusal, match="never exceed the invoice"):
        credit_issue(actor=finance, invoice=first, reason="x", amounts={"1": Decimal(9000)})
    assert not NumberSeries.objects.filter(series="CN", last__gt=0).exists()
    note = credit_issue(actor=finance, invoice=first, reason="wrong meter")
    assert credit_issue(actor=finance, invoice=first, reason="again") == note
    assert (note.net, note.tax, note.gross) == (-first.net, -first.tax, -first.gross)
    for account in JournalEntry.objects.values_list("account", flat=True):
        assert balance(account) == 0
    second = billed(settled, "2026-02", 1000)
    before = second.savings.document["state_before"]
    assert (before["recouped"], before["settled_through"]) == ("0", "2026-01")


def test_a_credited_recoupment_returns_to_the_pool(settled):
    finance = settled.stage.cast.finance
    first = billed(settled, "2026-01", 1000)
    credit_issue(actor=finance, invoice=first, reason="price", amounts={"2": Decimal(40)})
    assert billed(settled, "2026-02", 1).savings.document["state_before"]["recouped"] == "60.00"


def test_an_audit_that_lowers_savings_settles_once_and_moves_the_state(settled):
    cast = settled.stage.cast
    first = billed(settled, "2026-01", 1000)
    found = stated(settled, "2026-01", [line(-500, model="M0")])
    settle = {"invoice": first, "measurement": settled.measurement, "verified": found}
    with pytest.raises(NotAllowed):
        audit_settle(actor=cast.finance, **settle)
    correction = audit_settle(actor=cast.auditor, **settle)
    assert audit_settle(actor=cast.auditor, **settle) == correction
    assert correction.document.kind == "credit_note"
    assert correction.document.gross == -first.gross
    for account in JournalEntry.objects.values_list("account", flat=True):
        assert balance(account) == 0
    with pytest.raises(BillingError, match="audited, its fee is final"):
        credit_issue(actor=cast.finance, invoice=first, reason="x")
    second = billed(settled, "2026-02", 1500)
    assert second.savings.document["state_before"]["losses"] == "500"
    assert second.savings.document["breakdown"]["chargeable"] == "1000"


def test_an_audit_rests_on_the_evidence_that_was_approved(settled):
    first = billed(settled, "2026-01", 1000)
    other = verified([line(900)], month="2026-01")
    with pytest.raises(BillingError, match=r"verified\.evidence_digest"):
        audit_settle(
            actor=settled.stage.cast.auditor,
            invoice=first,
            measurement=settled.measurement,
            verified=other,
        )


def test_a_dispute_moves_its_lines_aside_and_back(settled):
    """G15 in a database: one is open at a time, and it ends by release or by credit note."""
    cast = settled.stage.cast
    first = billed(settled, "2026-01", 1000, 2000)
    opened = {"actor": cast.owner, "invoice": first, "lines": ["2"], "reason": "volume"}
    with pytest.raises(NotAllowed):
        dispute_open(**{**opened, "actor": cast.finance})
    row = dispute_open(**opened)
    assert dispute_open(**opened) == row
    assert row.collectible + row.disputed == first.gross
    assert balance("Assets:Receivable:Disputed") == row.disputed
    with pytest.raises(BillingError, match="resolve the dispute"):
        audit_settle(
            actor=cast.auditor,
            invoice=first,
            measurement=settled.measurement,
            verified=stated(settled, "2026-01", [line(900, model="M0")]),
        )
    released = dispute_release(actor=cast.finance, invoice=first)
    assert (released.outcome, balance("Assets:Receivable:Disputed")) == ("released", 0)
    with pytest.raises(BillingError, match="no open dispute"):
        dispute_release(actor=cast.finance, invoice=first)
    dispute_open(**opened)
    credit_issue(actor=cast.finance, invoice=first, reason="agreed", amounts={"2": Decimal(100)})
    assert Dispute.objects.filter(outcome="credited").count() == 1
    assert balance("Assets:Receivable:Disputed") == 0


def test_only_the_auditor_states_savings(settled):
    cast = settled.stage.cast
    period = period_open(actor=cast.finance, contract_version=settled.versions[0], label="2026-01")
    with pytest.raises(NotAllowed):
        savings_verify(
            actor=cast.finance,
            period=period,
            measurement=settled.measurement,
            verified=stated(settled, "2026-01", [line(1)]),
        )
    wrong = stated(settled, "2026-02", [line(1)])
    with pytest.raises(BillingError, match=r"verified\.period"):
        savings_verify(
            actor=cast.auditor, period=period, measurement=settled.measurement, verified=wrong
        )


def test_a_contract_that_cannot_be_read_parks_its_invoice(settled):
    """killbill/killbill#640: it is refused each time, and takes no number."""
    cast = settled.stage.cast
    billed(settled, "2026-01", 1000)
    period = period_open(actor=cast.finance, contract_version=settled.versions[0], label="2026-02")
    record = savings_verify(
        actor=cast.auditor,
        period=period,
        measurement=settled.measurement,
        verified=stated(settled, "2026-02", [line(1000)]),
    )
    triggers.remove()
    version = ContractVersion.objects.get(pk=settled.versions[0].pk)
    broken = {name: value for name, value in version.contract.items() if name != "cap"}
    ContractVersion.objects.filter(pk=version.pk).update(contract=broken)
    events = Event.objects.count()
    for _ in range(10):
        with pytest.raises(Refusal, match=r"contract\.cap"):
            invoice_issue(actor=cast.finance, savings=SavingsRecord.objects.get(pk=record.pk))
    assert Invoice.objects.count() == 1
    assert NumberSeries.objects.get(series="INV").last == 1
    assert Event.objects.count() == events


def test_the_pool_recoups_no_more_than_the_ledger_recorded(settled):
    """1,000 by contract and by ledger; 10 % of 8,000 and the rest in the month after."""
    billed(settled, "2026-01", 8000)
    second = billed(settled, "2026-02", 8000)
    assert second.savings.document["breakdown"]["recouped"] == "200.00"
    pool = pool_of(organisation=settled.stage.cast.organisation, contract_id="C-corr")
    assert (to_text(pool.recorded), to_text(pool.left)) == ("1000.000000000000", "0.000000000000")
    assert {row.outcome for row in pool.searches[0].rows} == {"done", "wrong"}


def test_a_search_is_booked_once_and_in_the_contracts_currency(settled):
    cast = settled.stage.cast
    tuning = settled.measurement.package.tuning
    path = settled.stage.home / "ledgers" / "C-corr.jsonl"
    row = search_cost_book(actor=cast.platform, tuning=tuning, ledger=path.read_text())
    assert row == search_cost_book(actor=cast.finance, tuning=tuning, ledger=path.read_text())
    with pytest.raises(BillingError, match="from another ledger"):
        search_cost_book(
            actor=cast.platform, tuning=tuning, ledger=path.read_text().replace("wrong", "slower")
        )


def test_the_search_behind_a_measurement_is_booked_from_its_evidence(settled):
    """The ledger that kernelgen wrote travels with the evidence; without one, nothing is booked."""
    cast, measurement = settled.stage.cast, settled.measurement
    assert book_measured_search(actor=cast.finance, measurement=measurement) is None
    written = settled.stage.home / "ledgers" / "C-corr.jsonl"
    inside = settled.stage.home / measurement.evidence_path / "kernel" / "ledger.jsonl"
    inside.parent.mkdir(exist_ok=True)
    inside.write_bytes(written.read_bytes())
    row = book_measured_search(actor=cast.finance, measurement=measurement)
    assert row.cost == 1000
    assert SearchCost.objects.count() == 1


@pytest.mark.parametrize("option", ["A", "D"])
def test_only_option_b_bills(stage, option):
    other = Settled(stage, (contract(),), "C-option", option=option)
    with pytest.raises(BillingError, match=f"option {option}"):
        billed(other, "2026-01", 1000)
    assert Invoice.objects.count() == 0


def test_the_sandbox_recomputes_and_leaves_the_invoice_alone(settled):
    cast = settled.stage.cast
    first = billed(settled, "2026-01", 1000, 2000)
    rows = {model: model.objects.count() for model in (Invoice, JournalEntry, Correction, Event)}
    changes = {"savings.1.point": "1500", "savings.1.bound": "1500"}
    found = invoice_what_if(actor=cast.owner, invoice=first, changes=changes)
    moved = {row.amount: row.difference for row in found.moved}
    assert moved["fee"] == Decimal("-150.00")
    assert rows == {model: model.objects.count() for model in rows}
    again = Invoice.objects.get(pk=first.pk)
    assert (again.sha256, again.document) == (first.sha256, first.document)
    assert found.before.documents[0].fee == frozen_fee(again)


def frozen_fee(invoice: Invoice) -> Decimal:
    assert frozen_savings(invoice.savings).lines
    return Decimal(invoice.document["fee"])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_invoice SET kind = 'release'",
        "UPDATE billing_invoice SET corrects_id = NULL",
        "UPDATE billing_correction SET instead = '{}'",
        "DELETE FROM billing_correction",
        "UPDATE billing_dispute SET disputed = 0",
        "DELETE FROM billing_dispute",
        "UPDATE billing_searchcost SET cost = 99",
        "DELETE FROM billing_searchcost",
    ],
)
def test_the_database_refuses_changes_of_corrections(settled, statement):
    cast = settled.stage.cast
    first = billed(settled, "2026-01", 1000)
    dispute_open(actor=cast.owner, invoice=first, lines=["1"], reason="x")
    credit_issue(actor=cast.finance, invoice=first, reason="x", amounts={"1": Decimal(5)})
    with (
        pytest.raises(DatabaseError, match="never change"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    with pytest.raises(IssuedError):
        Correction.objects.update(reason="better")
    assert json.loads(json.dumps(first.document)) == Invoice.objects.get(pk=first.pk).document
