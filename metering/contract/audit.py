"""What follows from the audit of a period with a holdback: a release or a credit.

In: the breakdown that was invoiced and the breakdown of the audited savings, both from `fee`.
Out: one outcome whose amounts bring the customer exactly to the audited fee.
Never here: an edit of the invoice; a fee raised by the audit; a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from metering.contract.breakdown import FeeBreakdown
from metering.contract.state import LedgerState
from metering.contract.terms import Contract
from metering.decimals import exact, to_text
from metering.money import quantize
from metering.refusal import Refusal

__all__ = ["NOTHING_CREDITED", "AuditOutcome", "Credited", "release_or_credit"]


@dataclass(frozen=True)
class Credited:
    """What credit notes took back before the audit; amounts zero or more."""

    fee: Decimal = Decimal(0)
    holdback: Decimal = Decimal(0)
    tax: Decimal = Decimal(0)
    recoupment: Decimal = Decimal(0)


NOTHING_CREDITED = Credited()


@dataclass(frozen=True)
class AuditOutcome:
    """`document` is release, credit_note or none. Amounts are signed from the provider's side.

    net = fee_change + holdback_released; gross = net + tax; cumulative = invoiced + gross.
    `recoupment_change` is the part of `fee_change` that pays for the search.
    """

    document: str
    currency: str
    audited_fee: Decimal
    fee_change: Decimal
    recoupment_change: Decimal
    holdback_released: Decimal
    net: Decimal
    tax: Decimal
    gross: Decimal
    cumulative: Decimal
    state: LedgerState
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "schema": "ignition.audit-outcome.v1",
            "document": self.document,
            "currency": self.currency,
            "audited_fee": to_text(self.audited_fee),
            "fee_change": to_text(self.fee_change),
            "recoupment_change": to_text(self.recoupment_change),
            "holdback_released": to_text(self.holdback_released),
            "net": to_text(self.net),
            "tax": to_text(self.tax),
            "gross": to_text(self.gross),
            "cumulative": to_text(self.cumulative),
            "state": self.state.to_json(),
            "reasons": list(self.reasons),
        }


def release_or_credit(
    contract: Contract,
    invoiced: FeeBreakdown,
    audited: FeeBreakdown,
    credited: Credited = NOTHING_CREDITED,
) -> AuditOutcome:
    """Release of the holdback, or a credit note when the audited fee is below what was paid.

    `credited` is what credit notes have taken back already: it never comes back. Tax is the tax of
    the final fee less the tax already charged, so all documents together carry the tax of the
    final fee to the cent. An audit never raises the fee.
    """
    for name in ("contract_digest", "period", "currency"):
        if getattr(invoiced, name) != getattr(audited, name):
            raise Refusal(
                f"audited.{name}", getattr(audited, name), f"{getattr(invoiced, name)}",
                "audit the same period under the same contract version",
            )  # fmt: skip
    if invoiced.contract_digest != contract.digest:
        raise Refusal("contract.digest", contract.digest, invoiced.contract_digest)
    with exact():
        billed, held = invoiced.fee - credited.fee, invoiced.holdback - credited.holdback
        raised = audited.fee > billed
        final = min(billed, audited.fee)
        net = final - billed + held
        tax = quantize(final * contract.vat, contract.currency) - invoiced.tax + credited.tax
        gross = net + tax
        reasons = [f"audited fee {to_text(audited.fee)}, invoiced fee {to_text(invoiced.fee)}"]
        if credited.fee:
            reasons.append(f"credited before the audit: {to_text(credited.fee)}")
        if raised:
            reasons.append("the audit found more savings: the fee is not raised")
        zero = quantize(Decimal(0), contract.currency)
        settled = not held and final == billed
        document = "credit_note" if net < 0 else "none" if settled else "release"
        recouped = audited.recouped - invoiced.recouped + credited.recoupment
        paid = billed - held + invoiced.tax - credited.tax
        return AuditOutcome(
            document=document,
            currency=contract.currency,
            audited_fee=final,
            fee_change=final - billed + zero,
            recoupment_change=zero if raised else recouped + zero,
            holdback_released=held + zero,
            net=net,
            tax=tax,
            gross=gross,
            cumulative=paid + gross,
            state=invoiced.state if raised else audited.state,
            reasons=tuple(reasons),
        )
