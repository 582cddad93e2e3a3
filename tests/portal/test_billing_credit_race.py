"""Credits, audits and the next period at the same moment: each correction counts exactly once."""

import threading
from collections.abc import Callable
from decimal import Decimal

import pytest
from django.db import connection

from metering.contract import Recoupment
from metering.ledger import Totals
from portal.billing.closing import period_close
from portal.billing.corrections import credit_issue
from portal.billing.exports import exports_write
from portal.billing.models import Correction, Invoice, JournalEntry, PeriodClose
from portal.billing.reconciliation import journal_file
from portal.billing.savings import BillingError
from tests.metering.money_cases import contract
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage
from tests.portal.test_billing_corrections import billed


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """What each call returned or raised, all started at one moment, each on its connection."""
    ready, got = threading.Barrier(len(calls)), [None] * len(calls)

    def run(index: int) -> None:
        try:
            ready.wait()
            got[index] = calls[index]()
        except BaseException as error:
            got[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


@pytest.mark.django_db(transaction=True)
def test_credits_and_the_next_period_at_once(threads_db, stage):
    """Six ask to void January while February is billed: one note, and the pool is whole again."""
    terms = contract(
        vat=Decimal("0.19"), recoupment=Recoupment("pool", Decimal(1000), share=Decimal("0.10"))
    )
    settled = Settled(stage, (terms,), "C-race")
    first = billed(settled, "2026-01", 1000)
    finance = stage.cast.finance
    calls: list[Callable[[], object]] = [
        lambda: credit_issue(actor=finance, invoice=first, reason="void").number
    ] * 6
    calls.insert(3, lambda: billed(settled, "2026-02", 1000).number)
    got = at_once(calls)
    assert got[:3] + got[4:] == ["CN-000001"] * 6
    assert got[3] == "INV-000002"
    assert Correction.objects.count() == 1
    march = billed(settled, "2026-03", 1).savings.document["state_before"]
    february = Invoice.objects.get(number="INV-000002").savings.document["breakdown"]
    assert Decimal(march["recouped"]) == Decimal(february["recouped"]) == 100
    assert sum(entry.amount for entry in JournalEntry.objects.all()) == 0


@pytest.mark.django_db(transaction=True)
def test_a_close_and_a_credit_at_once(threads_db, stage):
    """Whichever is first: the note is in the books that were closed over it, or in the next ones.

    A close that comes second finds the note without its exports and is refused.
    """
    settled = Settled(stage, (contract(vat=Decimal("0.19")),), "C-close-race")
    first = billed(settled, "2026-01", 1000)
    finance = stage.cast.finance
    exports_write(actor=finance, invoice=first)
    calls: list[Callable[[], object]] = [
        lambda: period_close(actor=finance, period=first.period).sha256
    ] * 4
    calls.insert(2, lambda: credit_issue(actor=finance, invoice=first, reason="void"))
    got = at_once(calls)
    note = got.pop(2)
    assert isinstance(note, Invoice)
    closed = {result for result in got if isinstance(result, str)}
    refused = [result for result in got if not isinstance(result, str)]
    assert {type(error) for error in refused} <= {BillingError}
    assert len(closed) == PeriodClose.objects.count() <= 1
    assert bool(closed) == (note.posted_in is not None) == (not refused)
    if refused:
        exports_write(actor=finance, invoice=note)
        period_close(actor=finance, period=first.period)
    frozen = PeriodClose.objects.get(period=first.period).document["totals"]["journal"]
    assert journal_file(first.period)[1] == Totals.from_json(frozen)
