"""Documents and the journal: what was issued, and what it does to the books.

Nouns: `Invoice` (an issued document: invoice, release of a holdback, or credit note),
`JournalEntry` (one side of a booking), `Dispute` (lines the customer contests).
Invariants: a document is frozen and its digest is that of its bytes; a correction is a new
document that names the old one; lines sum to the fee, net = fee - holdback, payable = net + tax;
credit notes sum exactly to what they credit; every journal sums to zero; a month without uplift
still gets its document: zero, with the reason.
Never here: numbering (the caller gives the number inside its own transaction), a clock, an edit.
"""

from metering.ledger.correction import audit_document, credit_note, credited, left_to_credit
from metering.ledger.dispute import Dispute, dispute
from metering.ledger.invoice import Invoice, InvoiceLine, Planned, build_invoice
from metering.ledger.journal import JournalEntry, balances, journal
from metering.ledger.reconcile import Totals, TrialRow, differences, trial_balance
from metering.ledger.search_pool import Pool, SearchCost, read_ledger

__all__ = [
    "Dispute",
    "Invoice",
    "InvoiceLine",
    "JournalEntry",
    "Planned",
    "Pool",
    "SearchCost",
    "Totals",
    "TrialRow",
    "audit_document",
    "balances",
    "build_invoice",
    "credit_note",
    "credited",
    "differences",
    "dispute",
    "journal",
    "left_to_credit",
    "read_ledger",
    "trial_balance",
]
