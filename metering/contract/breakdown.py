"""The answer of `fee`: every amount on the invoice and how it came about.

In: built by `fee` alone.
Out: a frozen record with lines, unrounded amounts, residue, holdback, tax, payable, the state
for the next period, and the reasons in words.
Never here: an amount without the steps that lead to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from metering.canonical import digest
from metering.contract.state import LedgerState
from metering.decimals import exact, to_text
from metering.fields import Fields
from metering.plan import Period

__all__ = ["FeeBreakdown", "FeeLine", "Step"]


@dataclass(frozen=True)
class Step:
    """One step of the calculation: its name, the amount after it, a note for a person."""

    name: str
    amount: Decimal
    note: str = ""

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {"name": self.name, "amount": to_text(self.amount), "note": self.note}

    @classmethod
    def from_json(cls, value: object, where: str = "step") -> Step:
        """Inverse of `to_json`."""
        fields = Fields(value, where)
        step = cls(fields.text("name"), fields.decimal("amount"), str(fields.any("note")))
        fields.finish()
        return step


@dataclass(frozen=True)
class FeeLine:
    """One invoice line before holdback and tax.

    `kind` is `share` (part of the fee that one model's savings carry) or `recoupment` (search
    cost paid back; model and system are empty). `billed_savings` is what the line contributed
    after gate, bound and counterfactual cap. `amount` is rounded, `residue` = amount - unrounded.
    `corrects` is the label of the earlier, invoiced period whose late usage the line is, or "".
    """

    kind: str
    model: str
    system: str
    segment: str
    volume: int | None
    baseline_id: str
    uplift_id: str
    point: Decimal
    bound: Decimal
    counterfactual: Decimal | None
    billed_savings: Decimal
    amount_unrounded: Decimal
    amount: Decimal
    reason: str
    corrects: str = ""

    @property
    def residue(self) -> Decimal:
        """What rounding added or took away."""
        with exact():
            return self.amount - self.amount_unrounded

    def to_json(self) -> dict[str, object]:
        """JSON object; `corrects` only on a correction."""
        correction = {"corrects": self.corrects} if self.corrects else {}
        return {
            **correction,
            "kind": self.kind,
            "model": self.model,
            "system": self.system,
            "segment": self.segment,
            "volume": self.volume,
            "baseline_id": self.baseline_id,
            "uplift_id": self.uplift_id,
            "point": to_text(self.point),
            "bound": to_text(self.bound),
            "counterfactual": None if self.counterfactual is None else to_text(self.counterfactual),
            "billed_savings": to_text(self.billed_savings),
            "amount_unrounded": to_text(self.amount_unrounded),
            "amount": to_text(self.amount),
            "residue": to_text(self.residue),
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "line") -> FeeLine:
        """Inverse of `to_json`; the residue is recomputed, not believed."""
        fields = Fields(value, where)
        fields.any("residue")
        line = cls(
            kind=fields.text("kind", ["share", "recoupment", "audit"]),
            model=str(fields.any("model")),
            system=str(fields.any("system")),
            segment=str(fields.any("segment")),
            volume=fields.integer("volume") if fields.has("volume") else None,
            baseline_id=str(fields.any("baseline_id")),
            uplift_id=str(fields.any("uplift_id")),
            point=fields.decimal("point"),
            bound=fields.decimal("bound"),
            counterfactual=fields.optional_decimal("counterfactual"),
            billed_savings=fields.decimal("billed_savings"),
            amount_unrounded=fields.decimal("amount_unrounded"),
            amount=fields.decimal("amount"),
            reason=str(fields.any("reason")),
            corrects=fields.text("corrects") if fields.has("corrects") else "",
        )
        fields.finish()
        return line


@dataclass(frozen=True)
class FeeBreakdown:
    """What one period costs under one contract.

    Identities: sum of line amounts = `fee`; `net` = fee - holdback; `payable` = net + tax.
    `excess` is fee above the cap (forfeited, or in `state.deferred`). `status` is one of
    billed, no savings, not significant, gated, offset by losses.
    """

    contract_id: str
    contract_version: int
    contract_digest: str
    verified_digest: str
    evidence_digest: str
    period: Period
    currency: str
    lines: tuple[FeeLine, ...]
    steps: tuple[Step, ...]
    counterfactual: Decimal | None
    net_savings: Decimal
    chargeable: Decimal
    fee_unrounded: Decimal
    fee: Decimal
    recouped: Decimal
    excess: Decimal
    holdback: Decimal
    net: Decimal
    taxable: Decimal
    tax: Decimal
    payable: Decimal
    state: LedgerState
    status: str
    reasons: tuple[str, ...]

    @property
    def residue(self) -> Decimal:
        """What rounding added to the fee or took from it."""
        with exact():
            return self.fee - self.fee_unrounded

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, object]:
        """JSON object: what `python -m metering fee` prints."""
        return {
            "schema": "ignition.fee-breakdown.v1",
            "contract_id": self.contract_id,
            "contract_version": self.contract_version,
            "contract_digest": self.contract_digest,
            "verified_digest": self.verified_digest,
            "evidence_digest": self.evidence_digest,
            "period": self.period.to_json(),
            "currency": self.currency,
            "lines": [line.to_json() for line in self.lines],
            "steps": [step.to_json() for step in self.steps],
            "counterfactual": None if self.counterfactual is None else to_text(self.counterfactual),
            "net_savings": to_text(self.net_savings),
            "chargeable": to_text(self.chargeable),
            "fee_unrounded": to_text(self.fee_unrounded),
            "fee": to_text(self.fee),
            "residue": to_text(self.residue),
            "recouped": to_text(self.recouped),
            "excess": to_text(self.excess),
            "holdback": to_text(self.holdback),
            "net": to_text(self.net),
            "taxable": to_text(self.taxable),
            "tax": to_text(self.tax),
            "payable": to_text(self.payable),
            "state": self.state.to_json(),
            "status": self.status,
            "reasons": list(self.reasons),
        }

    @classmethod
    def from_json(cls, value: object) -> FeeBreakdown:
        """Inverse of `to_json`; the residue is recomputed, not believed."""
        fields = Fields(value, "breakdown")
        fields.text("schema", ["ignition.fee-breakdown.v1"])
        fields.any("residue")
        told = cls(
            contract_id=fields.text("contract_id"),
            contract_version=fields.integer("contract_version"),
            contract_digest=fields.text("contract_digest"),
            verified_digest=fields.text("verified_digest"),
            evidence_digest=fields.text("evidence_digest"),
            period=Period.from_json(fields.any("period")),
            currency=fields.text("currency"),
            lines=tuple(
                FeeLine.from_json(item, f"breakdown.lines[{index}]")
                for index, item in enumerate(fields.items("lines"))
            ),
            steps=tuple(
                Step.from_json(item, f"breakdown.steps[{index}]")
                for index, item in enumerate(fields.items("steps"))
            ),
            counterfactual=fields.optional_decimal("counterfactual"),
            **{name: fields.decimal(name) for name in _AMOUNTS},
            state=LedgerState.from_json(fields.any("state")),
            status=fields.text("status"),
            reasons=fields.texts("reasons"),
        )
        fields.finish()
        return told


_AMOUNTS = (
    "net_savings",
    "chargeable",
    "fee_unrounded",
    "fee",
    "recouped",
    "excess",
    "holdback",
    "net",
    "taxable",
    "tax",
    "payable",
)
