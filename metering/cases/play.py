"""A case played: its steps in order, through the functions that bill.

In: a case.
Out: its answer. Pure: a step without a time happens at its period's end, or when the step
before it happened.
Never here: a formula; a document that could be taken for an issued one (numbers begin with CASE).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from metering.cases.answer import Answer, Done
from metering.cases.case import Case
from metering.cases.steps import Step
from metering.cases.verified import (
    BaselineInForce,
    baseline_history,
    contract_of,
    sufficiency,
    unbilled,
    verify,
)
from metering.contract import (
    Contract,
    FeeBreakdown,
    LedgerState,
    fee,
    release_or_credit,
)
from metering.decimals import exact
from metering.fields import instant_text
from metering.ledger import (
    Dispute,
    Invoice,
    JournalEntry,
    audit_document,
    build_invoice,
    credit_note,
    credited,
    dispute,
    journal,
    left_to_credit,
)
from metering.plan.measurement import METHOD_VERSION
from metering.refusal import Refusal

__all__ = ["CasePlan", "play"]

SERIES, CREDIT_SERIES = "CASE", "CASE-CN"
NOTE = "computed from a case file; not an issued document"


@dataclass(frozen=True)
class CasePlan:
    """What a case's documents say about a plan: the case itself is all there is."""

    digest: str
    plan_id: str = "case"
    method_version: str = METHOD_VERSION
    short_run: bool = False


@dataclass
class _Billed:
    """An invoice and what has happened to it so far."""

    contract: Contract
    before: LedgerState
    after: LedgerState
    breakdown: FeeBreakdown
    invoice: Invoice
    credits: list[Invoice] = field(default_factory=list)
    contested: Dispute | None = None
    audited: bool = False


@dataclass
class _Books:
    """Everything a case has led to so far, in order."""

    case: Case
    state: LedgerState
    now: datetime | None = None
    billed: dict[str, _Billed] = field(default_factory=dict)
    releases: dict[str, Invoice] = field(default_factory=dict)
    release_credits: dict[str, list[Invoice]] = field(default_factory=dict)
    documents: list[Invoice] = field(default_factory=list)
    entries: list[JournalEntry] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)

    def number(self, series: str) -> str:
        """The next number of a series."""
        return f"{series}-{sum(document.series == series for document in self.documents) + 1}"

    def book(self, document: Invoice) -> None:
        """Keep a document and its journal entries."""
        self.documents.append(document)
        self.entries.extend(journal(document))


def play(case: Case) -> Answer:
    """Every amount of a case. Refuses steps that contradict each other, naming the step."""
    books = _Books(case, case.state)
    for index, step in enumerate(case.steps):
        where = f"case.steps[{index}]"
        _tell_time(books, step, where)
        _DOERS[step.kind](books, step, where)
    return Answer(
        case_digest=case.digest,
        currency=case.contracts[0].currency,
        periods=case.periods,
        baselines=tuple(_baselines(case)),
        steps=tuple(books.done),
        documents=tuple(books.documents),
        allocation=None if case.allocation is None else dict(case.allocation),
        entries=tuple(books.entries),
        unbilled=tuple(unbilled(case)),
        state=books.state,
    )


def _baselines(case: Case) -> list[BaselineInForce]:
    """The history of every model and system, under the newest version's policy."""
    policy = max(case.contracts, key=lambda contract: contract.valid_from).baseline_policy
    pairs = sorted({(cost.model, cost.system) for cost in case.costs})
    return [
        item
        for model, system in pairs
        for item in baseline_history(case.costs, policy, model, system)
    ]


def _tell_time(books: _Books, step: Step, where: str) -> None:
    at = step.at
    if at is None and step.kind == "bill":
        end = books.case.period(step.period, f"{where}.period").end
        at = end if books.now is None else max(end, books.now)
    if at is None:
        at = books.now
    if books.now is not None and at is not None and at < books.now:
        raise Refusal(f"{where}.at", instant_text(at), f"a time from {instant_text(books.now)} on")
    books.now = at


def _moment(books: _Books) -> datetime:
    if books.now is None:
        raise Refusal("case.steps", "a correction first", "a period billed before it")
    return books.now


def _bill(books: _Books, step: Step, where: str) -> None:
    period = books.case.period(step.period, f"{where}.period")
    terms = contract_of(books.case, period)
    verified, error = verify(books.case, period)
    examined = tuple(
        f"{model} on {system}: {line}"
        for (model, system), verdict in sorted(sufficiency(books.case, period).items())
        for line in verdict.printed
    )
    breakdown = fee(terms, books.state, verified)
    number = books.number(SERIES)
    invoice = build_invoice(
        breakdown,
        contract=terms,
        plan=CasePlan(books.case.digest),
        number=number,
        series=SERIES,
        issued_at=_moment(books),
        notes=(NOTE, *examined),
    )
    books.billed[number] = _Billed(terms, books.state, breakdown.state, breakdown, invoice)
    books.state = breakdown.state
    books.book(invoice)
    books.done.append(
        Done("bill", number, breakdown=breakdown, standard_error=error, examined=examined)
    )


def _dispute(books: _Books, step: Step, where: str) -> None:
    billed = _invoice(books, step, where)
    if billed.contested is not None or billed.credits or billed.audited:
        raise Refusal(
            f"{where}.document", step.document, "an invoice without dispute or correction"
        )
    on = _moment(books).date()
    billed.contested = dispute(billed.invoice, list(step.lines or ()), on=on)
    books.entries.extend(billed.contested.entries)
    books.done.append(Done("dispute", step.document, dispute=billed.contested))


def _resolve(books: _Books, step: Step, where: str) -> None:
    billed = _invoice(books, step, where)
    if billed.contested is None:
        raise Refusal(f"{where}.document", step.document, "an invoice with an open dispute")
    _end_dispute(books, billed)
    books.done.append(Done("resolve", step.document))


def _end_dispute(books: _Books, billed: _Billed) -> None:
    if billed.contested is not None:
        books.entries.extend(billed.contested.resolved(_moment(books).date()))
        billed.contested = None


def _credit(books: _Books, step: Step, where: str) -> None:
    release = books.releases.get(step.document)
    if release is not None:
        previous = books.release_credits.setdefault(step.document, [])
        note = _note(books, release, previous, step)
        previous.append(note)
    else:
        billed = _invoice(books, step, where)
        if billed.audited:
            raise Refusal(
                f"{where}.document", step.document, "an invoice before its audit",
                "an audit settles the fee: credit the release it led to",
            )  # fmt: skip
        _end_dispute(books, billed)
        note = _note(books, billed.invoice, billed.credits, step)
        billed.credits.append(note)
        _settle(books, billed, _after_credit(billed, note))
    books.book(note)
    books.done.append(Done("credit", note.number))


def _note(books: _Books, document: Invoice, previous: list[Invoice], step: Step) -> Invoice:
    return credit_note(
        document,
        number=books.number(CREDIT_SERIES),
        series=CREDIT_SERIES,
        issued_at=_moment(books),
        reason=step.reason,
        amounts=step.lines,
        previous=previous,
    )


def _after_credit(billed: _Billed, note: Invoice) -> LedgerState:
    """State after a credit: recouped cost returns to the pool; a void takes back everything."""
    if not any(left_to_credit(billed.invoice, billed.credits).values()):
        return billed.before
    with exact():
        returned = -sum(
            (line.amount for line in note.lines if line.fee_line.kind == "recoupment"), Decimal(0)
        )
        return replace(billed.after, recouped=billed.after.recouped - returned)


def _settle(books: _Books, billed: _Billed, after: LedgerState) -> None:
    books.state = books.state.replaced(taken=billed.after, instead=after)
    billed.after = after


def _audit(books: _Books, step: Step, where: str) -> None:
    billed = _invoice(books, step, where)
    if billed.audited or billed.contested is not None:
        raise Refusal(
            f"{where}.document", step.document, "an invoice not audited yet, without dispute"
        )
    verified, error = verify(books.case, billed.breakdown.period, step.savings)
    audited = fee(billed.contract, billed.before, verified)
    outcome = release_or_credit(
        billed.contract, billed.breakdown, audited, credited(billed.credits)
    )
    number = step.document
    if outcome.document != "none":
        series = SERIES if outcome.document == "release" else CREDIT_SERIES
        number = books.number(series)
        document = audit_document(
            billed.invoice,
            outcome,
            number=number,
            series=series,
            issued_at=_moment(books),
            previous=billed.credits,
        )
        books.book(document)
        if outcome.document == "release":
            books.releases[number] = document
    billed.audited = True
    _settle(books, billed, outcome.state)
    books.done.append(
        Done("audit", number, breakdown=audited, standard_error=error, outcome=outcome)
    )


def _invoice(books: _Books, step: Step, where: str) -> _Billed:
    found = books.billed.get(step.document)
    if found is None:
        known = ", ".join(books.billed) or "none yet"
        raise Refusal(
            f"{where}.document", repr(step.document), f"an invoice billed before: {known}"
        )
    return found


_DOERS: Mapping[str, Callable[[_Books, Step, str], None]] = {
    "bill": _bill,
    "dispute": _dispute,
    "resolve": _resolve,
    "credit": _credit,
    "audit": _audit,
}
