"""Documents, corrections, disputes and the journal."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.contract import LedgerState, Recoupment, fee, flat_share, release_or_credit
from metering.ledger import (
    Invoice,
    audit_document,
    balances,
    build_invoice,
    credit_note,
    dispute,
    journal,
)
from metering.ledger.journal import HOLDBACK, INCOME, RECEIVABLE, RECOUPMENT, TAX, check_balanced
from metering.refusal import Refusal
from tests.metering.money_cases import (
    ISSUED,
    UNHURRIED,
    bill,
    contract,
    invoice,
    line,
    plan,
    verified,
)

G7 = contract(holdback=Decimal("0.10"), vat=Decimal("0.19"))
LATER = ISSUED + timedelta(days=40)


def note(document: Invoice, number: str = "CN-1", **changes: Any) -> Invoice:
    values = {"series": "CN", "issued_at": LATER, "reason": "measured again"}
    return credit_note(document, number=number, **(values | changes))


def audited(savings: object) -> tuple[Invoice, Invoice]:
    """The invoice of G7 and the document its audit led to."""
    invoiced = bill(G7, 51500)
    document = invoice(G7, invoiced)
    outcome = release_or_credit(G7, invoiced, bill(G7, savings))
    series = "CN" if outcome.document == "credit_note" else "INV"
    successor = audit_document(document, outcome, number="X-2", series=series, issued_at=LATER)
    return document, successor


def booked(*documents: Invoice) -> dict[str, str]:
    entries = [entry for document in documents for entry in journal(document)]
    return {account: str(amount) for (account, _), amount in balances(entries).items() if amount}


# The journal of G7, as hand computed


def test_journal_at_issue() -> None:
    assert booked(invoice(G7, bill(G7, 51500))) == {
        RECEIVABLE: "11031.30",
        HOLDBACK: "1030.00",
        INCOME: "-10300.00",
        TAX: "-1761.30",
    }


@pytest.mark.parametrize(
    ("savings", "kind", "payable", "after"),
    [
        (51500, "release", "1225.70", ("12257.00", "-10300.00", "-1957.00")),
        (50500, "release", "987.70", ("12019.00", "-10100.00", "-1919.00")),
        (45000, "credit_note", "-321.30", ("10710.00", "-9000.00", "-1710.00")),
        (46350, "release", "0.00", ("11031.30", "-9270.00", "-1761.30")),
    ],
)  # fmt: skip
def test_journal_after_the_audit(
    savings: int, kind: str, payable: str, after: tuple[str, str, str]
) -> None:
    document, successor = audited(savings)
    assert (successor.kind, str(successor.payable)) == (kind, payable)
    assert booked(document, successor) == dict(zip((RECEIVABLE, INCOME, TAX), after, strict=True))
    assert successor.corrects == document.number
    assert successor.corrects_digest == document.digest
    assert successor.issued_on > document.issued_on


def test_recouped_search_cost_is_income_of_its_own() -> None:
    pool = Recoupment("pool", Decimal(1500), share=Decimal("0.40"))
    terms = contract(recoupment=pool)
    assert booked(invoice(terms, bill(terms, 10_000))) == {
        RECEIVABLE: "3500.00",
        INCOME: "-2000.00",
        RECOUPMENT: "-1500.00",
    }


def test_an_unbalanced_journal_is_refused() -> None:
    entries = journal(invoice(G7, bill(G7, 51500)))
    with pytest.raises(Refusal, match="a sum of zero"):
        check_balanced(entries[1:])


# Invoices


def test_a_month_without_uplift_gets_a_document_of_zero_with_its_reason() -> None:
    rows = [line(5, bound=Decimal(-1)), line(9, model="B", gate="host not measurable")]
    document = invoice(G7, fee(G7, LedgerState(), verified(rows)))
    assert document.payable == 0
    assert journal(document) == ()
    assert any("host not measurable" in reason for reason in document.reasons)
    assert any("not significant" in reason for reason in document.reasons)
    empty = invoice(G7, fee(G7, LedgerState(), verified([])))
    assert (empty.payable, len(empty.lines)) == (0, 1)
    assert empty.lines[0].description == "No verified savings in 2026-11"


def test_an_issued_document_has_one_digest_whatever_changes_elsewhere() -> None:
    """baimard/gestion#369, Paymenter#957, killbill#152: the issued invoice moved."""
    document = invoice(G7, bill(G7, 51500))
    before = canonical.dumps(document.to_json())
    replace(G7, tiers=flat_share("0.5"), customer=replace(G7.customer, name="New Name SE"))
    with pytest.raises(FrozenInstanceError):
        document.fee = Decimal(0)  # type: ignore[misc]
    assert canonical.dumps(document.to_json()) == before
    assert canonical.dumps(invoice(G7, bill(G7, 51500)).to_json()) == before


def test_a_document_survives_json() -> None:
    document, release = audited(50500)
    for one in (document, release, note(document)):
        again = Invoice.from_json(canonical.loads(canonical.dumps(one.to_json())))
        assert again == one
        assert again.digest == one.digest


@pytest.mark.parametrize(
    "change",
    [
        {"fee": "10300.01"}, {"holdback": "1029.99"}, {"net": "9270.01"}, {"tax": "1761.31"},
        {"payable": "11031.31"}, {"taxable": "10300.00"}, {"vat": "0.20"}, {"lines": []},
        {"kind": "credit_note"}, {"kind": "receipt"}, {"corrects": "INV-0"}, {"number": "A B"},
        {"series": ""}, {"currency": "JPY"}, {"issued_at": "2026-12-01"}, {"due_on": "soon"},
        {"discount": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_document_changed_by_one_field_is_refused(change: Any) -> None:
    value = invoice(G7, bill(G7, 51500)).to_json()
    with pytest.raises(Refusal):
        Invoice.from_json({**value, **change})


def test_a_short_run_plan_is_named_on_the_document() -> None:
    assert invoice(G7, bill(G7, 1)).notes == (
        "short-run plan: shorter runs than a full measurement",
    )
    full = replace(plan(), short_run=False, run_seconds=60, aa_pairs=10)
    values = {"contract": G7, "number": "I-1", "series": "INV"}
    early = build_invoice(
        bill(G7, 1), plan=full, issued_at=ISSUED - timedelta(days=9), notes=["pilot"], **values
    )
    assert early.notes == ("issued before the end of 2026-11", "pilot")


def test_the_due_date_counts_from_the_local_day_of_issue() -> None:
    evening = ISSUED.replace(hour=23, minute=30)
    document = build_invoice(
        bill(G7, 1), contract=G7, plan=plan(), number="I-1", series="INV", issued_at=evening
    )
    assert (document.issued_on, document.due_on) == (date(2026, 12, 2), date(2027, 1, 1))


def test_a_breakdown_of_another_contract_version_is_refused() -> None:
    with pytest.raises(Refusal, match="under this contract version"):
        invoice(replace(G7, version=2), bill(G7, 1))


# Credit notes


def test_four_credit_notes_total_the_invoice() -> None:
    """getlago/lago-api#2643: 334.99, not 335.00."""
    terms = contract(tiers=flat_share("1"), vat=Decimal("0.20"))
    document = invoice(terms, bill(terms, "68.33", "68.33", "57.50", "85.00"))
    notes: list[Invoice] = []
    for row in document.lines:
        amounts = {row.line_id: row.amount}
        notes.append(note(document, f"CN-{row.line_id}", amounts=amounts, previous=notes))
    assert [str(one.payable) for one in notes] == ["-82.00", "-81.99", "-69.00", "-102.00"]
    assert sum(one.payable for one in notes) == -document.payable == Decimal("-334.99")
    assert booked(document, *notes) == {}


@UNHURRIED
@given(
    st.lists(st.decimals(min_value=-200, max_value=900, places=2), min_size=1, max_size=5),
    st.decimals(min_value=0, max_value=1, places=2),
    st.sampled_from(["release", "issue"]),
    st.data(),
)
def test_credits_of_everything_leave_nothing(
    savings: list[Decimal], holdback: Decimal, holdback_tax: str, data: st.DataObject
) -> None:
    terms = contract(holdback=holdback, vat=Decimal("0.19"), holdback_tax=holdback_tax)
    document = invoice(terms, bill(terms, *savings))
    notes: list[Invoice] = []
    for row in document.lines:
        part = data.draw(st.integers(0, 100))
        amount = (row.amount * part / 100).quantize(Decimal("0.01"))
        notes.append(
            note(document, f"CN-{row.line_id}", amounts={row.line_id: amount}, previous=notes)
        )
    notes.append(note(document, "CN-rest", previous=notes))
    for name in ("fee", "holdback", "net", "tax", "payable"):
        assert sum(getattr(one, name) for one in notes) == -getattr(document, name)
    assert booked(document, *notes) == {}
    assert booked(document, note(document)) == {}


def test_a_release_can_be_credited_too() -> None:
    document, release = audited(50500)
    assert booked(document, release, note(release)) == booked(document)


def test_credits_never_exceed_what_was_billed() -> None:
    document = invoice(G7, bill(G7, 51500))
    with pytest.raises(Refusal, match="never exceed"):
        note(document, amounts={"1": Decimal("10300.01")})
    with pytest.raises(Refusal, match="never exceed"):
        note(document, amounts={"1": Decimal("-0.01")})
    first = note(document, amounts={"1": Decimal("10000.00")})
    with pytest.raises(Refusal, match=r"at most the 300\.00 left"):
        note(document, "CN-2", amounts={"1": Decimal("300.01")}, previous=[first])


def test_a_second_full_credit_changes_nothing() -> None:
    """getlago/lago-api#3703: a credit that failed and was voided came back twice."""
    document = invoice(G7, bill(G7, 51500))
    first = note(document)
    assert note(document, "CN-2", previous=[first]).payable == 0


@pytest.mark.parametrize(
    "change",
    [
        {"series": "INV"},
        {"reason": ""},
        {"amounts": {"9": Decimal(1)}},
        {"amounts": {}},
        {"amounts": {"1": 0.5}},
        {"issued_at": ISSUED - timedelta(seconds=1)},
    ],
    ids=str,
)
def test_credits_that_make_no_sense_are_refused(change: Any) -> None:
    with pytest.raises(Refusal):
        note(invoice(G7, bill(G7, 51500)), **change)


def test_credit_notes_belong_to_one_invoice() -> None:
    document = invoice(G7, bill(G7, 51500))
    foreign = note(invoice(G7, bill(G7, 51500), number="INV-2026-0002"))
    with pytest.raises(Refusal, match="credit notes of INV-2026-0001"):
        note(document, previous=[foreign])
    with pytest.raises(Refusal, match="issue a new invoice"):
        note(note(document))


def test_an_audit_document_needs_the_outcome_of_its_own_invoice() -> None:
    invoiced = bill(G7, 51500)
    outcome = release_or_credit(G7, invoiced, bill(G7, 50500))
    other = invoice(G7, bill(G7, 60000))
    with pytest.raises(Refusal, match="run release_or_credit"):
        audit_document(other, outcome, number="X", series="INV", issued_at=LATER)


# Disputes


def test_a_dispute_moves_the_line_with_its_tax_and_back() -> None:
    terms = contract(tiers=flat_share("1"), vat=Decimal("0.19"), holdback=Decimal("0.10"))
    document = invoice(terms, bill(terms, 100, 200, 300))
    split = dispute(document, ["2"], on=date(2026, 12, 10))
    assert split.collectible + split.disputed == document.payable
    assert split.disputed == Decimal("214.20")
    moved = [*journal(document), *split.entries, *split.resolved(date(2026, 12, 20))]
    check_balanced(moved)
    assert {k: v for k, v in balances(moved).items() if v} == {
        k: v for k, v in balances(journal(document)).items() if v
    }


def test_disputes_need_a_line_and_a_fee() -> None:
    document = invoice(G7, bill(G7, 51500))
    for ids in ([], ["7"]):
        with pytest.raises(Refusal, match="lines of the invoice"):
            dispute(document, ids, on=date(2026, 12, 10))
    with pytest.raises(Refusal, match="nothing to contest"):
        dispute(invoice(G7, bill(G7, 0)), ["1"], on=date(2026, 12, 10))
