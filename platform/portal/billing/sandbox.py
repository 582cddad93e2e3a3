"""The dispute sandbox: what an invoice would come to under another assumption. Nothing is written.

In: an issued invoice and changed values. Out: every amount that would move. The invoice's frozen
inputs are played as a case by the engine; unchanged they must give the invoice's own fee.
"""

from collections.abc import Mapping

from metering.cases import CASE_SCHEMA, WhatIf, what_if
from metering.decimals import to_text
from portal.accounts.models import Membership
from portal.billing.models import Invoice, SavingsRecord
from portal.billing.savings import BillingError, contract_version_of, frozen_savings
from portal.billing.selectors import invoice_get


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
    if to_text(found.before.documents[0].fee) != seen.savings.document["breakdown"]["fee"]:
        raise BillingError(f"{seen}: its frozen inputs do not give its fee; nothing is compared")
    return found
