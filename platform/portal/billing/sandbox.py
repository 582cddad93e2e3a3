"""The dispute sandbox: what an invoice would come to under another assumption. Nothing is written.

In: an issued invoice and changed values. Out: every amount that would move. The invoice's frozen
inputs are played as a case by the engine; unchanged they must give the invoice's own amounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from metering.cases import CASE_SCHEMA, WhatIf, what_if
from metering.decimals import exact, to_text
from metering.ledger import Invoice as InvoiceDocument
from portal.accounts.models import Membership
from portal.billing.models import Invoice, SavingsRecord
from portal.billing.savings import BillingError, contract_version_of, frozen_savings
from portal.billing.selectors import invoice_get

NAMES = {
    "fee": "Fee", "holdback": "Holdback", "net": "Net", "taxable": "Taxable amount",
    "tax": "VAT", "payable": "Payable",
}  # fmt: skip
AMOUNTS = tuple(NAMES)
STEPS = {
    "counterfactual": "Counterfactual", "net_savings": "Savings that count",
    "chargeable": "Chargeable savings", "fee_unrounded": "Fee before rounding",
    "excess": "Fee above the cap", "recouped": "Search cost paid back",
}  # fmt: skip
STATE = {
    "losses": "Losses carried forward", "recouped": "Search cost recouped",
    "deferred": "Excess deferred",
}  # fmt: skip


def case_of(savings: SavingsRecord) -> dict[str, object]:
    """A record's frozen inputs as a case file: its contract version, state and verified lines."""
    verified = frozen_savings(savings)
    label = savings.period.label
    month = len(label) == len("2026-11")
    return {
        "schema": CASE_SCHEMA,
        "contracts": [contract_version_of(savings).contract],
        "state": savings.document["state_before"],
        "periods": [label] if month else {"start": label, "count": 1},
        "savings": [
            {
                "period": label,
                "model": line.model,
                "system": line.system,
                "segment": line.segment,
                "point": to_text(line.point),
                "bound": to_text(line.bound),
                "counterfactual": (
                    None if line.counterfactual is None else to_text(line.counterfactual)
                ),
                "baseline_id": line.baseline_id,
                "uplift_id": line.uplift_id,
                "volume": line.volume,
                "corrects": line.corrects,
            }
            for line in verified.lines
        ],
        "gates": [
            {"period": label, "model": line.model, "system": line.system, "reason": line.gate}
            for line in verified.lines
            if line.gate is not None
        ],
    }


def invoice_what_if(
    *, actor: Membership, invoice: Invoice, changes: Mapping[str, object]
) -> WhatIf:
    """Recomputed amounts and differences for whoever sees the invoice (Http404 otherwise).

    `changes` are values by place in `case_of`, such as {"contracts.0.cap": "900.00"}.
    """
    seen = invoice_get(actor=actor, invoice_id=invoice.pk)
    found = what_if(case_of(seen.savings), changes)
    document = found.before.documents[0]
    if any(to_text(getattr(document, name)) != seen.document[name] for name in AMOUNTS):
        raise BillingError(f"{seen}: its frozen inputs do not give its fee; nothing is compared")
    return found


@dataclass(frozen=True)
class Compared:
    """One amount as it was issued and as it would be; None where one side has no such amount."""

    group: str
    name: str
    issued: Decimal | None
    assumed: Decimal | None

    @property
    def difference(self) -> Decimal:
        """What the assumptions add; an amount that one side lacks counts as 0 there."""
        with exact():
            return (self.assumed or Decimal(0)) - (self.issued or Decimal(0))


def compare(found: WhatIf) -> tuple[Compared, ...]:
    """Steps, lines, document and state, issued beside assumed, in the order they come about."""
    before, after = found.before.steps[0].breakdown, found.after.steps[0].breakdown
    if before is None or after is None:
        raise BillingError("what-if: got a case that bills nothing; wanted the invoice's period")
    old, new = found.before.documents[0], found.after.documents[0]
    return (
        *_rows("Way to the fee", before, after, STEPS),
        *_lines(old, new),
        *_rows("Document", old, new, NAMES),
        *_rows("State after the period", before.state, after.state, STATE),
    )


def _rows(group: str, before: object, after: object, names: Mapping[str, str]) -> list[Compared]:
    return [
        Compared(group, words, getattr(before, name), getattr(after, name))
        for name, words in names.items()
    ]


def _lines(old: InvoiceDocument, new: InvoiceDocument) -> list[Compared]:
    """Lines side by side: share lines have the same order, a recoupment line comes last."""
    found: dict[tuple[str, str, str, str], list[Decimal | None]] = {}
    for side, document in enumerate((old, new)):
        for line in document.lines:
            fee = line.fee_line
            place = found.setdefault((fee.kind, fee.model, fee.system, fee.segment), [None, None])
            place[side] = line.amount
    words = {"recoupment": "Search cost paid back"}
    return [
        Compared("Lines", words.get(kind) or f"{model} on {system}"
                 + (f", {segment}" if segment else ""), issued, assumed)
        for (kind, model, system, segment), (issued, assumed) in found.items()
    ]  # fmt: skip
