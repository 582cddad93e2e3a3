"""The issued document.

In: a fee breakdown, the contract it was computed under, the plan, a number and a time.
Out: one frozen record that carries everything a reader needs: parties as they were, lines with
the inputs of their formula, amounts, digests of contract, plan and evidence, reasons in words.
Never here: a number chosen here, the current time, a document whose amounts do not add up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Protocol

from metering.canonical import digest
from metering.contract import Contract, FeeBreakdown, FeeLine, Party
from metering.decimals import exact, to_text
from metering.fields import Fields, check_zone, instant_text
from metering.money import check_currency, quantize, to_minor_units
from metering.plan import Period
from metering.refusal import Refusal

__all__ = ["Invoice", "InvoiceLine", "Planned", "build_invoice"]

KINDS = ("invoice", "release", "credit_note")
_NUMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,39}", re.ASCII)
_AMOUNTS = ("fee", "holdback", "net", "taxable", "vat", "tax", "payable")


class Planned(Protocol):
    """What a document says about the plan behind it: a `MeasurementPlan` has all of it."""

    @property
    def plan_id(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def method_version(self) -> str: ...
    @property
    def short_run(self) -> bool: ...


@dataclass(frozen=True)
class InvoiceLine:
    """One numbered line: what it is for, and the fee line with its formula inputs."""

    line_id: str
    description: str
    fee_line: FeeLine

    @property
    def amount(self) -> Decimal:
        """Amount before holdback and tax."""
        return self.fee_line.amount

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "line_id": self.line_id,
            "description": self.description,
            "fee_line": self.fee_line.to_json(),
        }

    @classmethod
    def from_json(cls, value: object, where: str) -> InvoiceLine:
        """Inverse of `to_json`."""
        fields = Fields(value, where)
        line = cls(
            line_id=fields.text("line_id"),
            description=fields.text("description"),
            fee_line=FeeLine.from_json(fields.any("fee_line"), f"{where}.fee_line"),
        )
        fields.finish()
        return line


@dataclass(frozen=True)
class Invoice:
    """A document of kind invoice, release (of a holdback) or credit_note.

    Amounts are signed from the provider's side: a credit note is negative. `vat` is a rate;
    `taxable` is what the tax was computed on. `corrects` and `corrects_digest` name the document
    that a release or credit note belongs to. Construction refuses amounts that do not add up.
    """

    kind: str
    number: str
    series: str
    issued_at: datetime
    due_on: date
    provider: Party
    customer: Party
    auditor: str
    contract_id: str
    contract_version: int
    contract_digest: str
    plan_id: str
    plan_digest: str
    method_version: str
    verified_digest: str
    evidence_digest: str
    period: Period
    currency: str
    lines: tuple[InvoiceLine, ...]
    fee: Decimal
    holdback: Decimal
    net: Decimal
    holdback_tax: str
    tax_category: str
    tax_exemption_reason: str | None
    taxable: Decimal
    vat: Decimal
    tax: Decimal
    payable: Decimal
    status: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    corrects: str | None = None
    corrects_digest: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Refusal("invoice.kind", repr(self.kind), "one of " + ", ".join(KINDS))
        for name in ("number", "series"):
            if not _NUMBER.fullmatch(getattr(self, name)):
                raise Refusal(
                    f"invoice.{name}", repr(getattr(self, name)), "letters, digits and . _ / -"
                )
        if (self.corrects is None) != (self.kind == "invoice") or (
            (self.corrects is None) != (self.corrects_digest is None)
        ):
            raise Refusal("invoice.corrects", self.corrects, "the corrected document, if any")
        check_currency(self.currency, "invoice.currency")
        instant_text(self.issued_at)
        self._check_lines()
        self._check_sums()

    def _check_lines(self) -> None:
        ids = [line.line_id for line in self.lines]
        if not ids or len(set(ids)) != len(ids):
            raise Refusal("invoice.lines", ids, "at least one line, each id once")
        for line in self.lines:
            to_minor_units(line.amount, self.currency)

    def _check_sums(self) -> None:
        for name in ("fee", "holdback", "net", "tax", "payable"):
            to_minor_units(getattr(self, name), self.currency)
        base = self.net if self.holdback_tax == "release" else self.fee
        with exact():
            identities = [
                ("fee", self.fee, sum((line.amount for line in self.lines), Decimal(0))),
                ("net", self.net, self.fee - self.holdback),
                ("taxable", self.taxable, base),
                ("payable", self.payable, self.net + self.tax),
            ]
            if self.kind == "invoice":
                tax = quantize(self.taxable * self.vat, self.currency)
                identities.append(("tax", self.tax, tax))
        for name, got, wanted in identities:
            if got != wanted:
                raise Refusal(
                    f"invoice.{name}", to_text(got), to_text(wanted),
                    "the document was changed or built wrongly: do not use it",
                )  # fmt: skip

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes: the identity of the issued document."""
        return digest(self.to_json())

    @property
    def issued_on(self) -> date:
        """Date of issue in the contract's zone."""
        return self.issued_at.astimezone(check_zone(self.period.zone)).date()

    def to_json(self) -> dict[str, object]:
        """JSON object, ready for `canonical.dumps`."""
        texts = {name: to_text(getattr(self, name)) for name in _AMOUNTS}
        return {
            "schema": "ignition.invoice.v1",
            "kind": self.kind,
            "number": self.number,
            "series": self.series,
            "issued_at": instant_text(self.issued_at),
            "due_on": self.due_on.isoformat(),
            "provider": self.provider.to_json(),
            "customer": self.customer.to_json(),
            "auditor": self.auditor,
            "contract_id": self.contract_id,
            "contract_version": self.contract_version,
            "contract_digest": self.contract_digest,
            "plan_id": self.plan_id,
            "plan_digest": self.plan_digest,
            "method_version": self.method_version,
            "verified_digest": self.verified_digest,
            "evidence_digest": self.evidence_digest,
            "period": self.period.to_json(),
            "currency": self.currency,
            "lines": [line.to_json() for line in self.lines],
            **texts,
            "holdback_tax": self.holdback_tax,
            "tax_category": self.tax_category,
            "tax_exemption_reason": self.tax_exemption_reason,
            "status": self.status,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "corrects": self.corrects,
            "corrects_digest": self.corrects_digest,
        }

    @classmethod
    def from_json(cls, value: object) -> Invoice:
        """Inverse of `to_json`; refuses a document whose amounts do not add up."""
        fields = Fields(value, "invoice")
        fields.text("schema", ["ignition.invoice.v1"])
        document = cls(
            kind=fields.text("kind"),
            number=fields.text("number"),
            series=fields.text("series"),
            issued_at=fields.instant("issued_at"),
            due_on=fields.day("due_on"),
            provider=Party.from_json(fields.any("provider"), "invoice.provider"),
            customer=Party.from_json(fields.any("customer"), "invoice.customer"),
            auditor=fields.text("auditor"),
            contract_id=fields.text("contract_id"),
            contract_version=fields.integer("contract_version"),
            contract_digest=fields.text("contract_digest"),
            plan_id=fields.text("plan_id"),
            plan_digest=fields.text("plan_digest"),
            method_version=fields.text("method_version"),
            verified_digest=fields.text("verified_digest"),
            evidence_digest=fields.text("evidence_digest"),
            period=Period.from_json(fields.any("period")),
            currency=fields.text("currency"),
            lines=tuple(
                InvoiceLine.from_json(item, f"invoice.lines[{index}]")
                for index, item in enumerate(fields.items("lines"))
            ),
            **{name: fields.decimal(name) for name in _AMOUNTS},
            holdback_tax=fields.text("holdback_tax", ["release", "issue"]),
            tax_category=fields.text("tax_category"),
            tax_exemption_reason=fields.optional_text("tax_exemption_reason"),
            status=fields.text("status"),
            reasons=fields.texts("reasons"),
            notes=fields.texts("notes"),
            corrects=fields.optional_text("corrects"),
            corrects_digest=fields.optional_text("corrects_digest"),
        )
        fields.finish()
        return document


def build_invoice(
    breakdown: FeeBreakdown,
    *,
    contract: Contract,
    plan: Planned,
    number: str,
    series: str,
    issued_at: datetime,
    notes: Sequence[str] = (),
) -> Invoice:
    """The invoice of one period. Pure: number and time come from the caller.

    A breakdown of zero gives an invoice of zero that says why. A short-run plan, and an issue
    before the period has ended, are named on the document. Refuses a breakdown that was
    computed under another contract version.
    """
    if breakdown.contract_digest != contract.digest:
        raise Refusal(
            "breakdown.contract_digest", breakdown.contract_digest, contract.digest,
            "compute the fee under this contract version",
        )  # fmt: skip
    said = ["short-run plan: shorter runs than a full measurement"] if plan.short_run else []
    if issued_at < breakdown.period.end:
        said.append(f"issued before the end of {breakdown.period.label}")
    lines = tuple(
        InvoiceLine(str(position), describe(line, breakdown.period), line)
        for position, line in enumerate(breakdown.lines or (_nothing(breakdown),), start=1)
    )
    local = issued_at.astimezone(check_zone(contract.zone)).date()
    return Invoice(
        kind="invoice",
        number=number,
        series=series,
        issued_at=issued_at,
        due_on=local + timedelta(days=contract.payment_days),
        provider=contract.provider,
        customer=contract.customer,
        auditor=contract.auditor,
        contract_id=contract.contract_id,
        contract_version=contract.version,
        contract_digest=contract.digest,
        plan_id=plan.plan_id,
        plan_digest=plan.digest,
        method_version=plan.method_version,
        verified_digest=breakdown.verified_digest,
        evidence_digest=breakdown.evidence_digest,
        period=breakdown.period,
        currency=breakdown.currency,
        lines=lines,
        fee=breakdown.fee,
        holdback=breakdown.holdback,
        net=breakdown.net,
        holdback_tax=contract.holdback_tax,
        tax_category=contract.tax_category,
        tax_exemption_reason=contract.tax_exemption_reason,
        taxable=breakdown.taxable,
        vat=contract.vat,
        tax=breakdown.tax,
        payable=breakdown.payable,
        status=breakdown.status,
        reasons=breakdown.reasons,
        notes=(*said, *notes),
    )


def describe(line: FeeLine, period: Period) -> str:
    """What a line is for, in words that fit an invoice."""
    if line.kind == "recoupment":
        return f"Search cost paid back out of savings, {period.label}"
    if line.kind == "audit":
        return line.reason
    where = f"{line.model} on {line.system}" + (f" ({line.segment})" if line.segment else "")
    return f"Share of verified savings, {where}, {period.label}" if line.model else line.reason


def _nothing(breakdown: FeeBreakdown) -> FeeLine:
    """The one line of a period in which nothing was measured at all."""
    zero = quantize(Decimal(0), breakdown.currency)
    return FeeLine(
        kind="share",
        model="",
        system="",
        segment="",
        volume=None,
        baseline_id="",
        uplift_id="",
        point=zero,
        bound=zero,
        counterfactual=None,
        billed_savings=zero,
        amount_unrounded=zero,
        amount=zero,
        reason=f"No verified savings in {breakdown.period.label}",
    )
