"""Documents the export tests share: an invoice, its release, a credit note, a month of zero.

In: terms. Out: issued documents, and the rows of a CSV. Never here: a check.
"""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from decimal import Decimal

from metering.contract import Contract, LedgerState, VerifiedLine, fee, release_or_credit
from metering.ledger import Invoice, audit_document, credit_note
from tests.metering.money_cases import ISSUED, bill, contract, invoice, verified

LATER = ISSUED + timedelta(days=40)


def terms(**changes: object) -> Contract:
    values: dict[str, object] = {"holdback": Decimal("0.10"), "vat": Decimal("0.19")}
    return contract(**(values | changes))


def issued(with_terms: Contract | None = None, number: str = "INV-2026-0001") -> Invoice:
    """G7 with its volume and ids."""
    used = with_terms or terms()
    row = VerifiedLine(
        "text-encoder", "cpu-2c", Decimal("52000.5"), Decimal("51500"), Decimal("120000.00"),
        baseline_id="baseline-1", uplift_id="uplift-1", volume=51_000_000_000,
    )  # fmt: skip
    return invoice(used, fee(used, LedgerState(), verified([row], used.currency)), number)


def history(with_terms: Contract | None = None) -> list[Invoice]:
    """An invoice, its release, a credit note of a second invoice, and a zero invoice."""
    used = with_terms or terms()
    first, second = issued(used), issued(used, "INV-2026-0002")
    outcome = release_or_credit(used, bill(used, 51500), bill(used, 50500))
    release = audit_document(first, outcome, number="INV-2026-0003", series="INV", issued_at=LATER)
    note = credit_note(
        second, number="CN-2026-0001", series="CN", issued_at=LATER, reason="measured again"
    )
    return [first, second, release, note, invoice(used, bill(used, 0), "INV-2026-0004")]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))
