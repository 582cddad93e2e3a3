"""Corrections: new documents that name the old one.

In: an issued invoice, and either lines to credit or the outcome of an audit.
Out: a credit note or a release, with tax by cumulative difference, so that all documents of one
invoice together carry its exact tax: never a cent more or less.
Never here: an edit of the invoice; a credit above what was billed; a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from metering.contract import AuditOutcome, Credited, FeeLine
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import check_zone
from metering.ledger.invoice import Invoice, InvoiceLine
from metering.money import quantize
from metering.refusal import Refusal

__all__ = ["audit_document", "credit_note", "credited", "left_to_credit"]


def credit_note(
    invoice: Invoice,
    *,
    number: str,
    series: str,
    issued_at: datetime,
    reason: str,
    amounts: Mapping[str, Decimal] | None = None,
    previous: Sequence[Invoice] = (),
) -> Invoice:
    """Credit for some lines (`amounts` by line id, with the sign of the line) or for all of them.

    `previous` are the credit notes already issued for this invoice: together they may never
    exceed it. Holdback and tax follow the credited part; crediting everything negates every
    amount exactly.
    """
    if invoice.kind == "credit_note":
        raise Refusal("invoice.kind", invoice.kind, "invoice or release", "issue a new invoice")
    if series == invoice.series:
        raise Refusal("series", series, "a series of its own for credit notes", "name another")
    if not reason:
        raise Refusal("reason", "nothing", "why the credit is given")
    _check_previous(invoice, previous)
    with exact():
        left = left_to_credit(invoice, previous)
        now = _now(left, amounts)
        lines = tuple(
            _credit_line(line, -now[line.line_id], reason)
            for line in invoice.lines
            if amounts is None or line.line_id in now
        )
        everything = all(now.get(line_id, Decimal(0)) == rest for line_id, rest in left.items())
        fee_credited = sum(now.values(), Decimal(0))
        before_fee = -sum((note.fee for note in previous), Decimal(0))
        before_holdback = -sum((note.holdback for note in previous), Decimal(0))
        before_tax = -sum((note.tax for note in previous), Decimal(0))
        fee_total = before_fee + fee_credited
        holdback_total, tax_total = invoice.holdback, invoice.tax
        if not everything:
            part = fee_total / invoice.fee if invoice.fee else Decimal(0)
            holdback_total = quantize(invoice.holdback * part, invoice.currency)
            base = fee_total - (holdback_total if invoice.holdback_tax == "release" else 0)
            tax_total = quantize(base * invoice.vat, invoice.currency)
        fee = -fee_credited
        holdback = before_holdback - holdback_total
        tax = before_tax - tax_total
    return _successor(
        invoice, "credit_note", number, series, issued_at, lines, fee, holdback, tax, reason
    )


def credited(previous: Sequence[Invoice]) -> Credited:
    """What these credit notes took back, in amounts of zero or more."""
    with exact():
        fee, holdback, tax = (
            -sum((getattr(note, name) for note in previous), Decimal(0))
            for name in ("fee", "holdback", "tax")
        )
        recoupment = -sum(
            (
                line.amount
                for note in previous
                for line in note.lines
                if line.fee_line.kind == "recoupment"
            ),
            Decimal(0),
        )
    return Credited(fee, holdback, tax, recoupment)


def audit_document(
    invoice: Invoice,
    outcome: AuditOutcome,
    *,
    number: str,
    series: str,
    issued_at: datetime,
    previous: Sequence[Invoice] = (),
) -> Invoice:
    """The document an audit leads to: a release of the holdback, or a credit note.

    `previous` are the credit notes the outcome was computed after.
    """
    _check_previous(invoice, previous)
    before = credited(previous)
    with exact():
        billed, held = invoice.fee - before.fee, invoice.holdback - before.holdback
        fits = (
            outcome.document in ("release", "credit_note")
            and outcome.currency == invoice.currency
            and outcome.holdback_released == held
            and outcome.audited_fee == billed + outcome.fee_change
            and outcome.cumulative == billed - held + invoice.tax - before.tax + outcome.gross
        )
    if invoice.kind != "invoice" or not fits:
        raise Refusal(
            "outcome", f"{outcome.document} of {to_text(outcome.gross)}",
            f"the outcome of the audit of {invoice.number}", "run release_or_credit for it",
        )  # fmt: skip
    reason = f"Audit of {invoice.number}: {outcome.reasons[0]}"
    with exact():
        share = outcome.fee_change - outcome.recoupment_change
    lines = [InvoiceLine("1", reason, _audit_line("audit", share, reason))]
    if outcome.recoupment_change:
        searched = f"{reason}; search cost paid back"
        line = _audit_line("recoupment", outcome.recoupment_change, searched)
        lines.append(InvoiceLine("2", searched, line))
    return _successor(
        invoice, outcome.document, number, series, issued_at, tuple(lines),
        outcome.fee_change, -outcome.holdback_released, outcome.tax, reason,
    )  # fmt: skip


def _audit_line(kind: str, amount: Decimal, reason: str) -> FeeLine:
    return FeeLine(
        kind=kind,
        model="",
        system="",
        segment="",
        volume=None,
        baseline_id="",
        uplift_id="",
        point=Decimal(0),
        bound=Decimal(0),
        counterfactual=None,
        billed_savings=Decimal(0),
        amount_unrounded=amount,
        amount=amount,
        reason=reason,
    )


def _check_previous(invoice: Invoice, previous: Sequence[Invoice]) -> None:
    for note in previous:
        if note.kind != "credit_note" or note.corrects_digest != invoice.digest:
            raise Refusal("previous", note.number, f"credit notes of {invoice.number}")


def left_to_credit(invoice: Invoice, previous: Sequence[Invoice]) -> dict[str, Decimal]:
    """What of each line has not been credited yet."""
    left = {line.line_id: line.amount for line in invoice.lines}
    for note in previous:
        for line in note.lines:
            if line.line_id not in left:
                raise Refusal("previous", note.number, f"lines of {invoice.number}")
            left[line.line_id] += line.amount
    return left


def _now(left: dict[str, Decimal], amounts: Mapping[str, Decimal] | None) -> dict[str, Decimal]:
    """What this note credits of each line, checked against what is left of it."""
    if amounts is None:
        return dict(left)
    now = {}
    for line_id, value in amounts.items():
        amount = parse_decimal(value, f"amounts.{line_id}")
        rest = left.get(line_id)
        if rest is None:
            raise Refusal(f"amounts.{line_id}", to_text(amount), "a line of the invoice")
        if not min(rest, Decimal(0)) <= amount <= max(rest, Decimal(0)):
            raise Refusal(
                f"amounts.{line_id}", to_text(amount), f"at most the {to_text(rest)} left of it",
                "credit notes never exceed the invoice",
            )  # fmt: skip
        now[line_id] = amount
    if not now:
        raise Refusal("amounts", "no lines", "at least one line to credit")
    return now


def _credit_line(line: InvoiceLine, amount: Decimal, reason: str) -> InvoiceLine:
    credited = replace(line.fee_line, amount=amount + 0, amount_unrounded=amount, reason=reason)
    return InvoiceLine(line.line_id, f"Credit: {line.description}", credited)


def _successor(
    invoice: Invoice,
    kind: str,
    number: str,
    series: str,
    issued_at: datetime,
    lines: tuple[InvoiceLine, ...],
    fee: Decimal,
    holdback: Decimal,
    tax: Decimal,
    reason: str,
) -> Invoice:
    """A document with the parties, contract and digests of `invoice` and other amounts."""
    if issued_at < invoice.issued_at:
        raise Refusal("issued_at", issued_at.isoformat(), "a time after the invoice")
    local = issued_at.astimezone(check_zone(invoice.period.zone)).date()
    term = invoice.due_on - invoice.issued_on
    with exact():
        zero = quantize(Decimal(0), invoice.currency)
        net = fee - holdback + zero
        return replace(
            invoice,
            kind=kind,
            number=number,
            series=series,
            issued_at=issued_at,
            due_on=local + (term if kind == "release" else timedelta(0)),
            lines=lines,
            fee=fee + zero,
            holdback=holdback + zero,
            net=net,
            taxable=net if invoice.holdback_tax == "release" else fee + zero,
            tax=tax + zero,
            payable=net + tax,
            status=kind,
            reasons=(reason,),
            corrects=invoice.number,
            corrects_digest=invoice.digest,
        )
