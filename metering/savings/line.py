"""One savings line: what a month's volume of one model on one system saved.

In: metered volume, the frozen baseline's rate and the uplift (decimal text from the evidence),
cores, the price book, whether the kernel was kept and whether the evidence is sufficient.
Out: a frozen line with counterfactual, point, bound, billable amount and the reason when
nothing bills.
Never here: a float. A measured rate is read from its text once; the same text gives the same
cents on every machine.

    c0 = price per core hour / 3600 x cores / baseline samples per second     cost of one sample
    S(u) = V x c0 x (1 - 1 / (1 + u))        u: uplift as a ratio minus one, V: accepted samples
    billable = max(0, S(lower_95)), at most the counterfactual V x c0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from metering.canonical import digest
from metering.contract import VerifiedLine, VerifiedSavings
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields
from metering.money import carried, check_currency
from metering.plan import Period, PriceBook
from metering.plan.measurement import METHOD_VERSION
from metering.refusal import Refusal
from metering.savings.uncertainty import Z_95

__all__ = ["SavingsLine", "measured_text", "savings_line", "verified_savings"]

_SIGNIFICANT = 12
_MILLION = 1_000_000


def measured_text(value: float) -> str:
    """Decimal text of a measured float, 12 significant digits: the one way from float to money.

    Twelve digits are far beyond any measurement and short of the last bits in which two
    machines may differ.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refusal("measured", repr(value), "a measured number")
    text = format(value, f".{_SIGNIFICANT}g")
    return to_text(parse_decimal(text, "measured"))


@dataclass(frozen=True)
class SavingsLine:
    """Savings of one model on one system in one period, unrounded (12 decimal places).

    `point` and `bound` are signed; `billable` is what a contract that bills on the bound may
    count; `standard_error` is the normal-equivalent (point - bound) / 1.644854. Costs per
    million samples: before on the baseline, after at the point estimate and at the bound.
    `gate`: why nothing of what was measured may bill (evidence that is not sufficient), or "".
    """

    model: str
    system: str
    period: Period
    currency: str
    volume: int
    cores: int
    baseline_id: str
    uplift_id: str
    baseline_samples_per_second: Decimal
    uplift_point: Decimal
    uplift_lower_95: Decimal
    price_per_core_hour: Decimal
    price_book_digest: str
    counterfactual: Decimal
    point: Decimal
    bound: Decimal
    standard_error: Decimal
    billable: Decimal
    cost_per_million_before: Decimal
    cost_per_million_after: Decimal
    cost_per_million_after_bound: Decimal
    kept: bool
    reason: str
    method_version: str
    evidence_digest: str
    segment: str = ""
    gate: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, object]:
        """JSON object, ready for `canonical.dumps`."""
        texts = {name: to_text(getattr(self, name)) for name in _AMOUNTS}
        return {
            "schema": "ignition.savings.v1",
            "model": self.model,
            "system": self.system,
            "segment": self.segment,
            "period": self.period.to_json(),
            "currency": self.currency,
            "volume": self.volume,
            "cores": self.cores,
            "baseline_id": self.baseline_id,
            "uplift_id": self.uplift_id,
            "price_book_digest": self.price_book_digest,
            **texts,
            "kept": self.kept,
            "reason": self.reason,
            "method_version": self.method_version,
            "evidence_digest": self.evidence_digest,
            # Written only where there is one: the digest of a line from before gates stays.
            **({"gate": self.gate} if self.gate else {}),
        }

    @classmethod
    def from_json(cls, value: object) -> SavingsLine:
        """Inverse of `to_json`."""
        fields = Fields(value, "savings")
        fields.text("schema", ["ignition.savings.v1"])
        line = cls(
            model=fields.text("model"),
            system=fields.text("system"),
            segment=str(fields.any("segment")),
            period=Period.from_json(fields.any("period")),
            currency=check_currency(fields.text("currency")),
            volume=fields.integer("volume"),
            cores=fields.integer("cores"),
            baseline_id=fields.text("baseline_id"),
            uplift_id=fields.text("uplift_id"),
            price_book_digest=fields.text("price_book_digest"),
            kept=fields.boolean("kept"),
            reason=str(fields.any("reason")),
            method_version=fields.text("method_version"),
            evidence_digest=fields.text("evidence_digest"),
            gate=fields.optional_text("gate") or "",
            **{name: fields.decimal(name) for name in _AMOUNTS},
        )
        fields.finish()
        return line

    def to_verified(self) -> VerifiedLine:
        """The line as `fee` takes it: gated when the kernel was not kept or evidence is short."""
        return VerifiedLine(
            model=self.model,
            system=self.system,
            segment=self.segment,
            point=self.point,
            bound=self.bound,
            counterfactual=self.counterfactual,
            gate=(self.gate or None) if self.kept else self.reason,
            baseline_id=self.baseline_id,
            uplift_id=self.uplift_id,
            volume=self.volume,
        )


_AMOUNTS = (
    "baseline_samples_per_second",
    "uplift_point",
    "uplift_lower_95",
    "price_per_core_hour",
    "counterfactual",
    "point",
    "bound",
    "standard_error",
    "billable",
    "cost_per_million_before",
    "cost_per_million_after",
    "cost_per_million_after_bound",
)


def savings_line(
    *,
    model: str,
    system: str,
    period: Period,
    volume: int,
    baseline_samples_per_second: str | Decimal,
    cores: int,
    price_book: PriceBook,
    uplift_point: str | Decimal,
    uplift_lower_95: str | Decimal,
    baseline_id: str,
    uplift_id: str,
    evidence_digest: str,
    kept: bool = True,
    not_kept_reason: str = "",
    segment: str = "",
    gate: str = "",
    method_version: str = METHOD_VERSION,
) -> SavingsLine:
    """Savings of `volume` accepted samples in `period`. Uplifts are ratios minus one.

    A kernel that was not kept saves nothing: point, bound and billable are zero and `reason`
    carries `not_kept_reason`. With a `gate` the line says what was measured and bills nothing.
    `cores` is what both arms may use (the plan's cores).
    """
    _check_counts(volume, cores, kept, not_kept_reason, period, price_book)
    rate = parse_decimal(baseline_samples_per_second, "baseline_samples_per_second")
    uplift = parse_decimal(uplift_point, "uplift_point")
    lower = parse_decimal(uplift_lower_95, "uplift_lower_95")
    if rate <= 0:
        raise Refusal("baseline_samples_per_second", to_text(rate), "a rate above zero")
    if lower <= -1 or lower > uplift:
        raise Refusal("uplift_lower_95", to_text(lower), "above -1, at most the point estimate")
    with exact():
        # One division at the end: c0 x V = price x cores x V / (3600 x rate).
        spend = price_book.price_per_core_hour * cores
        counterfactual = spend * volume / (3600 * rate)
        before = spend * _MILLION / (3600 * rate)
        after, after_bound = before / (1 + uplift), before / (1 + lower)
        point = carried(counterfactual * uplift / (1 + uplift)) if kept else Decimal(0)
        bound = carried(counterfactual * lower / (1 + lower)) if kept else Decimal(0)
        billable = Decimal(0) if gate else min(max(Decimal(0), bound), counterfactual)
        error = carried((point - bound) / Z_95)
    return SavingsLine(
        model=model,
        system=system,
        period=period,
        currency=price_book.currency,
        volume=volume,
        cores=cores,
        baseline_id=baseline_id,
        uplift_id=uplift_id,
        baseline_samples_per_second=rate,
        uplift_point=uplift,
        uplift_lower_95=lower,
        price_per_core_hour=price_book.price_per_core_hour,
        price_book_digest=price_book.digest,
        counterfactual=carried(counterfactual),
        point=point,
        bound=bound,
        standard_error=error,
        billable=carried(billable),
        cost_per_million_before=_significant(before),
        cost_per_million_after=_significant(after if kept else before),
        cost_per_million_after_bound=_significant(after_bound if kept else before),
        kept=kept,
        reason=_reason(volume, lower, kept, not_kept_reason, gate),
        method_version=method_version,
        evidence_digest=evidence_digest,
        segment=segment,
        gate=gate,
    )


def verified_savings(lines: Sequence[SavingsLine], *, evidence_digest: str) -> VerifiedSavings:
    """Approved lines of one period as `fee` takes them; currencies and periods must agree."""
    if not lines:
        raise Refusal("savings", "no lines", "at least one line", "bill a zero line with a reason")
    first = lines[0]
    for line in lines:
        if line.period != first.period or line.currency != first.currency:
            raise Refusal(
                "savings", f"{line.period.label} {line.currency}",
                f"{first.period.label} {first.currency}", "one period and currency an invoice",
            )  # fmt: skip
    return VerifiedSavings(
        period=first.period,
        currency=first.currency,
        lines=tuple(line.to_verified() for line in lines),
        evidence_digest=evidence_digest,
    )


def _check_counts(
    volume: int, cores: int, kept: bool, why: str, period: Period, price_book: PriceBook
) -> None:
    for name, value, floor in (("volume", volume, 0), ("cores", cores, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < floor:
            raise Refusal(name, repr(value), f"a whole number from {floor}")
    if not kept and not why:
        raise Refusal("not_kept_reason", "nothing", "why the kernel was not kept")
    if price_book.valid_from > period.start:
        raise Refusal(
            "price_book.valid_from", price_book.valid_from, "a date before the period",
            "use the price book that was valid in the period",
        )  # fmt: skip


def _reason(volume: int, lower: Decimal, kept: bool, why: str, gate: str) -> str:
    if not kept:
        return f"kernel not kept: {why}"
    if gate:
        return gate
    if volume == 0:
        return "no accepted volume in the period"
    if lower <= 0:
        return "uplift not significant: its one-sided 95 % bound is at or below zero"
    return ""


def _significant(value: Decimal) -> Decimal:
    """`value` at 12 significant digits, for a cost that is shown but never multiplied again."""
    return Context(prec=_SIGNIFICANT, rounding=ROUND_HALF_UP).plus(value)
