"""The fee: one pure function from contract, state and verified savings to every amount billed.

In: a `Contract`, the `LedgerState` after the previous period, `VerifiedSavings`.
Out: a `FeeBreakdown`; preview and billing print the same one.
Never here: a clock, a file, a float; a second rounding; a fee above the savings; a sum of
winners only (a model that got slower is set off against the others).

Order of the steps (docs/contracts.md says why):
 1 each line: gate, then bound, then counterfactual   2 net over all lines
 3 less the instalment of an amortised search         4 less losses of earlier periods
 5 marginal tiers, plus deferred excess               6 recoupment of the search pool
 7 minimum, never above the savings                   8 cap
 9 round once, then split over lines by largest remainder
10 holdback, tax, payable
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from metering.contract.breakdown import FeeBreakdown, FeeLine, Step
from metering.contract.state import LedgerState, VerifiedLine, VerifiedSavings
from metering.contract.terms import Contract, Recoupment, marginal_fee
from metering.decimals import exact, to_text
from metering.money import apportion, carried, floor_to_minor, quantize
from metering.refusal import Refusal

__all__ = ["fee"]

_ZERO = Decimal(0)
_DATED = re.compile(r"\d{4}-\d{2}(-\d{2})?", re.ASCII)


@dataclass(frozen=True)
class _Counted:
    """One line after gate, bound and counterfactual."""

    line: VerifiedLine
    billed: Decimal
    fate: str
    reason: str


@dataclass(frozen=True)
class _Base:
    """Savings after everything that comes before the share."""

    net: Decimal
    chargeable: Decimal
    losses: Decimal
    instalments: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class _Charge:
    """The fee before it is split over lines."""

    share_unrounded: Decimal
    recoup_unrounded: Decimal
    share: Decimal
    recoup: Decimal
    excess: Decimal
    steps: tuple[Step, ...]


def fee(contract: Contract, state: LedgerState, verified: VerifiedSavings) -> FeeBreakdown:
    """What the period costs. Pure; the order of the lines never matters.

    Raises `Refusal` when currency, zone or dates of the inputs do not fit together: nothing is
    billed on inputs that contradict each other.
    """
    _check(contract, state, verified)
    counted = [_count(contract, line) for line in verified.lines]
    with exact():
        base = _base(contract, state, counted)
        charge = _charge(contract, state, base)
        lines = _lines(contract, counted, base, charge)
        total = charge.share + charge.recoup
        holdback = quantize(total * contract.holdback, contract.currency)
        net = total - holdback
        taxable = net if contract.holdback_tax == "release" else total
        tax = quantize(taxable * contract.vat, contract.currency)
        status = _status(counted, base, total)
        deferred = charge.excess if contract.cap_excess == "carry" else _ZERO
        return FeeBreakdown(
            contract_id=contract.contract_id,
            contract_version=contract.version,
            contract_digest=contract.digest,
            verified_digest=verified.digest,
            evidence_digest=verified.evidence_digest,
            period=verified.period,
            currency=contract.currency,
            lines=lines,
            steps=(*base.steps, *charge.steps),
            counterfactual=_total_counterfactual(verified),
            net_savings=base.net,
            chargeable=base.chargeable,
            fee_unrounded=carried(charge.share_unrounded + charge.recoup_unrounded),
            fee=total,
            recouped=charge.recoup,
            excess=charge.excess,
            holdback=holdback,
            net=net,
            taxable=taxable,
            tax=tax,
            payable=net + tax,
            state=LedgerState(
                losses=base.losses,
                recouped=state.recouped + charge.recoup,
                instalments=base.instalments,
                deferred=deferred,
                settled_through=verified.period.label,
                recorded=state.recorded,
            ),
            status=status,
            reasons=_reasons(counted, base, charge, status),
        )


def _check(contract: Contract, state: LedgerState, verified: VerifiedSavings) -> None:
    period = verified.period
    if verified.currency != contract.currency:
        raise Refusal(
            "verified.currency", verified.currency, contract.currency,
            "price the savings in the contract's currency",
        )  # fmt: skip
    if period.zone != contract.zone:
        raise Refusal("verified.period.zone", period.zone, contract.zone, "cut the period there")
    if period.end <= contract.valid_from:
        raise Refusal("verified.period", period.label, "a period after the contract's start")
    last = state.settled_through
    if last is not None:
        ordered = _DATED.fullmatch(last) and _DATED.fullmatch(period.label)
        if period.label == last or (ordered and period.label < last):
            raise Refusal(
                "state.settled_through", last, f"a state from before {period.label}",
                "a settled period is corrected by a new document, never billed again",
            )  # fmt: skip


def _count(contract: Contract, line: VerifiedLine) -> _Counted:
    """Savings the line contributes: zero when gated or not significant, signed when it lost."""
    if line.gate is not None:
        return _Counted(line, _ZERO, "gated", f"bills zero: {line.gate}")
    if line.point == 0:
        return _Counted(line, _ZERO, "none", "bills zero: no savings measured")
    if line.point < 0:
        return _Counted(line, line.point, "loss", "a loss, set off at its point estimate")
    billed = line.point if contract.bound == "point" else line.bound
    if billed <= 0:
        return _Counted(
            line, _ZERO, "not significant", "bills zero: not significant, bound at or below zero"
        )
    if line.counterfactual is not None and billed > line.counterfactual:
        return _Counted(line, line.counterfactual, "billed", "capped at the counterfactual cost")
    return _Counted(line, billed, "billed", "")


def _base(contract: Contract, state: LedgerState, counted: list[_Counted]) -> _Base:
    net = sum((item.billed for item in counted), _ZERO)
    steps = [Step("net savings", net, f"over {len(counted)} lines, losses set off")]
    instalments, left = state.instalments, net
    term = contract.recoupment
    if term is not None and term.months is not None and state.instalments < term.months:
        instalments += 1
        left = carried(net - _search_cost(term, state) / term.months)
        note = f"search cost, instalment {instalments} of {term.months}"
        steps.append(Step("after amortisation", left, note))
    losses = state.losses
    if left < 0:
        if contract.carry_forward:
            losses += -left
            steps.append(Step("losses carried forward", losses, "to later periods"))
        return _Base(net, _ZERO, losses, instalments, tuple(steps))
    used = min(losses, left) if contract.carry_forward else _ZERO
    if used:
        steps.append(Step("losses set off", used, "from earlier periods"))
    chargeable = left - used
    steps.append(Step("chargeable savings", chargeable))
    return _Base(net, chargeable, losses - used, instalments, tuple(steps))


def _search_cost(term: Recoupment, state: LedgerState) -> Decimal:
    """What may be recouped in all: the contract's amount, never above what searches have cost."""
    return term.amount if state.recorded is None else min(term.amount, state.recorded)


def _charge(contract: Contract, state: LedgerState, base: _Base) -> _Charge:
    currency = contract.currency
    chargeable = base.chargeable
    share = marginal_fee(contract.tiers, chargeable)
    steps = [Step("share", carried(share), _rates(contract))]
    if state.deferred:
        share += state.deferred
        steps.append(Step("with deferred excess", carried(share), to_text(state.deferred)))
    pool, wanted = _ZERO, _ZERO
    term = contract.recoupment
    if term is not None and term.share is not None:
        pool = max(_ZERO, floor_to_minor(_search_cost(term, state), currency) - state.recouped)
        wanted = min(pool, term.share * chargeable)
    if contract.minimum is not None:
        floor = min(contract.minimum, chargeable)
        if share + wanted < floor:
            share = floor - wanted
            steps.append(Step("minimum", carried(floor), "never above the chargeable savings"))
    ceiling = floor_to_minor(chargeable, currency)
    if contract.cap is not None and contract.cap < ceiling:
        ceiling = contract.cap
    rounded = min(quantize(share, currency), ceiling)
    excess = _ZERO
    if share > min(chargeable, contract.cap if contract.cap is not None else chargeable):
        excess = quantize(share, currency) - rounded
        steps.append(Step("cap", rounded, f"{to_text(excess)} above it: {contract.cap_excess}"))
        share = rounded
    recoup = min(quantize(wanted, currency), ceiling - rounded, pool)
    if term is not None and term.share is not None:
        note = f"search pool, {to_text(pool - recoup)} left"
        steps.append(Step("recoupment", recoup, note))
        wanted = min(wanted, ceiling - rounded)
    steps.append(Step("fee", rounded + recoup, f"rounded once, {contract.rounding}"))
    return _Charge(share, wanted, rounded, recoup, excess, tuple(steps))


def _lines(
    contract: Contract, counted: list[_Counted], base: _Base, charge: _Charge
) -> tuple[FeeLine, ...]:
    """Share lines in key order, then the recoupment line; amounts sum to the fee."""
    zero = quantize(_ZERO, contract.currency)
    parts = [_ZERO for _ in counted]
    amounts = [zero for _ in counted]
    if base.net > 0 and (charge.share or charge.share_unrounded):
        parts = [charge.share_unrounded * item.billed / base.net for item in counted]
        amounts = apportion(parts, charge.share, contract.currency)
    lines = [
        FeeLine(
            kind="share",
            model=item.line.model,
            system=item.line.system,
            segment=item.line.segment,
            volume=item.line.volume,
            baseline_id=item.line.baseline_id,
            uplift_id=item.line.uplift_id,
            point=item.line.point,
            bound=item.line.bound,
            counterfactual=item.line.counterfactual,
            billed_savings=item.billed,
            amount_unrounded=carried(part),
            amount=amount,
            reason=item.reason,
            corrects=item.line.corrects,
        )
        for item, part, amount in zip(counted, parts, amounts, strict=True)
    ]
    if charge.recoup:
        lines.append(_recoupment_line(charge))
    return tuple(lines)


def _recoupment_line(charge: _Charge) -> FeeLine:
    return FeeLine(
        kind="recoupment",
        model="",
        system="",
        segment="",
        volume=None,
        baseline_id="",
        uplift_id="",
        point=_ZERO,
        bound=_ZERO,
        counterfactual=None,
        billed_savings=_ZERO,
        amount_unrounded=carried(charge.recoup_unrounded),
        amount=charge.recoup,
        reason="search cost paid back out of savings",
    )


def _total_counterfactual(verified: VerifiedSavings) -> Decimal | None:
    costs = [line.counterfactual for line in verified.lines if line.counterfactual is not None]
    return sum(costs, _ZERO) if len(costs) == len(verified.lines) and costs else None


def _status(counted: list[_Counted], base: _Base, total: Decimal) -> str:
    if total > 0:
        return "billed"
    fates = {item.fate for item in counted}
    if not counted:
        return "no savings"
    if fates == {"gated"}:
        return "gated"
    if base.net <= 0:
        return "not significant" if fates <= {"gated", "not significant"} else "no savings"
    if base.chargeable <= 0:
        return "offset by losses"
    return "below one minor unit"


def _reasons(counted: list[_Counted], base: _Base, charge: _Charge, status: str) -> tuple[str, ...]:
    reasons = [
        f"{item.line.model} on {item.line.system}"
        f"{' (' + item.line.segment + ')' if item.line.segment else ''}: {item.reason}"
        for item in counted
        if item.reason
    ]
    kept = {"minimum", "cap", "losses set off", "losses carried forward", "after amortisation"}
    reasons += [
        f"{step.name}: {to_text(step.amount)}{' (' + step.note + ')' if step.note else ''}"
        for step in (*base.steps, *charge.steps)
        if step.name in kept
    ]
    if status != "billed":
        reasons.append(f"no uplift billed here, fee 0: {status}")
    return tuple(reasons)


def _rates(contract: Contract) -> str:
    if len(contract.tiers) == 1:
        return f"{to_text(contract.tiers[0].rate)} of the chargeable savings"
    return f"{len(contract.tiers)} marginal tiers"
