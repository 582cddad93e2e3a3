"""Documents as Hypothesis draws them: any savings, tax, holdback, audit and credit.

In: nothing. Out: a strategy. Never here: a check.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from hypothesis import strategies as st

from metering.contract import release_or_credit
from metering.ledger import Invoice, audit_document, credit_note
from metering.money import quantize
from tests.metering.money_cases import ISSUED, bill, contract, invoice

LATER = ISSUED + timedelta(days=40)
AMOUNTS = st.decimals("0", "99999.999999", places=6)


@st.composite
def documents(draw: st.DrawFn) -> list[Invoice]:
    """An invoice of one to four models, and what an audit and a credit make of it."""
    terms = contract(
        currency=draw(st.sampled_from(["EUR", "JPY", "KWD", "USD"])),
        vat=draw(st.sampled_from([Decimal(0), Decimal("0.19"), Decimal("0.077")])),
        holdback=draw(st.sampled_from([Decimal(0), Decimal("0.10"), Decimal("0.333")])),
        holdback_tax=draw(st.sampled_from(["release", "issue"])),
    )
    savings = draw(st.lists(AMOUNTS, min_size=1, max_size=4))
    audited = [amount * draw(st.decimals("0", "1", places=2)) for amount in savings]
    invoiced = bill(terms, *savings)
    first, second = (invoice(terms, invoiced, number) for number in ("INV-1", "INV-2"))
    found = [first, second]
    outcome = release_or_credit(terms, invoiced, bill(terms, *audited))
    if outcome.document != "none":
        found.append(audit_document(first, outcome, number="A-1", series="A", issued_at=LATER))
    share = draw(st.sampled_from([Decimal(1), Decimal("0.25"), Decimal("0.51")]))
    amounts = {line.line_id: quantize(line.amount * share, terms.currency) for line in second.lines}
    amounts = {line_id: amount for line_id, amount in amounts.items() if amount}
    if amounts:
        note = credit_note(
            second, number="CN-1", series="CN", issued_at=LATER, reason="wrong", amounts=amounts
        )
        found.append(note)
    return found
