"""The answer to a case: every amount that follows, and where it comes from.

In: built by `play` alone.
Out: a frozen record and its JSON, which `python -m metering fee` prints.
Never here: an amount that `fee` or a document does not carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from metering.cases.verified import BaselineInForce, Unbilled
from metering.contract import AuditOutcome, FeeBreakdown, LedgerState
from metering.decimals import exact, to_text
from metering.fields import instant_text
from metering.ledger import Dispute, Invoice, JournalEntry, balances
from metering.money import allocate, to_minor_units
from metering.plan import Period

__all__ = ["ANSWER_SCHEMA", "Answer", "Done"]

ANSWER_SCHEMA = "ignition.fee-answer.v2"


@dataclass(frozen=True)
class Done:
    """One step done. `document` is the document it made, or the one it is about.

    `examined`: rules of sufficiency that did not hold, with the overrides of an auditor.
    """

    step: str
    document: str
    breakdown: FeeBreakdown | None = None
    standard_error: Decimal | None = None
    outcome: AuditOutcome | None = None
    dispute: Dispute | None = None
    examined: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """JSON object with the parts that the step has."""
        told: dict[str, object] = {"step": self.step, "document": self.document}
        if self.breakdown is not None:
            told["breakdown"] = self.breakdown.to_json()
        if self.standard_error is not None:
            told["standard_error"] = to_text(self.standard_error)
        if self.examined:
            told["sufficiency"] = list(self.examined)
        if self.outcome is not None:
            told["outcome"] = self.outcome.to_json()
        if self.dispute is not None:
            told["dispute"] = {
                "lines": list(self.dispute.line_ids),
                "collectible": to_text(self.dispute.collectible),
                "disputed": to_text(self.dispute.disputed),
            }
        return told


@dataclass(frozen=True)
class Answer:
    """What a case comes to. `state` is what the next period starts from."""

    case_digest: str
    currency: str
    periods: tuple[Period, ...]
    baselines: tuple[BaselineInForce, ...]
    steps: tuple[Done, ...]
    documents: tuple[Invoice, ...]
    allocation: dict[str, Decimal] | None
    entries: tuple[JournalEntry, ...]
    unbilled: tuple[Unbilled, ...]
    state: LedgerState

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "schema": ANSWER_SCHEMA,
            "case_digest": self.case_digest,
            "periods": [
                {**period.to_json(), "hours": to_text(period.hours)} for period in self.periods
            ],
            "baselines": [_baseline(item) for item in self.baselines],
            "steps": [done.to_json() for done in self.steps],
            "documents": [self._document(document) for document in self.documents],
            "journal": self._journal(),
            "unbilled": [_unbilled(item) for item in self.unbilled],
            "state": self.state.to_json(),
        }

    def _document(self, document: Invoice) -> dict[str, object]:
        told: dict[str, object] = {
            "document": document.to_json(),
            "digest": document.digest,
            "payable_minor_units": to_minor_units(document.payable, document.currency),
        }
        if self.allocation is not None:
            parts = allocate(document.payable, list(self.allocation.values()), document.currency)
            told["allocation"] = {
                name: to_text(part) for name, part in zip(self.allocation, parts, strict=True)
            }
        return told

    def _journal(self) -> dict[str, object]:
        with exact():
            total = sum((entry.amount for entry in self.entries), Decimal(0))
        return {
            "entries": [entry.to_json() for entry in self.entries],
            "balances": {
                account: to_text(amount)
                for (account, _), amount in balances(self.entries).items()
            },
            "total": to_text(total),
        }  # fmt: skip


def _baseline(item: BaselineInForce) -> dict[str, object]:
    return {
        "model": item.measured.model,
        "system": item.measured.system,
        "since": instant_text(item.measured.since),
        "measured": to_text(item.measured.cost),
        "effective": to_text(item.effective),
    }


def _unbilled(item: Unbilled) -> dict[str, object]:
    return {
        "model": item.usage.model,
        "system": item.usage.system,
        "at": instant_text(item.usage.at),
        "units": to_text(item.usage.units),
        "reason": item.reason,
    }
