"""From the counterfactual to what is payable: the frozen breakdown laid out as running amounts.

In: a savings record's frozen document and the contract it was computed under. Out: one row per
amount, each open to its formula and inputs. Every total is a number the engine stored; a change is
the difference of two of them. Never here: an amount that bills.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from metering.contract import Contract, FeeBreakdown, FeeLine, LedgerState, tier_parts
from metering.decimals import exact, to_text
from portal.billing.models import SavingsRecord
from portal.billing.savings import contract_version_of
from portal.web.figures import Figure
from portal.web.formats import money, percent

TOTAL, CHANGE = "total", "change"
_ZERO = Decimal(0)
BOUNDS = {"lower_95": "the one-sided 95 % lower bound", "point": "the point estimate"}


@dataclass(frozen=True)
class Fall:
    """One row: a `total` the engine stored, or the `change` that leads to the next one."""

    kind: str
    amount: Decimal
    after: Decimal
    figure: Figure

    @property
    def name(self) -> str:
        """What the row is called, on the page, in the chart and in the CSV."""
        return self.figure.label


class _Rows:
    """Rows in order, with the running amount."""

    def __init__(self, currency: str, method: str, api: str, runs: tuple[str, ...]) -> None:
        self.currency, self.method, self.api, self.runs = currency, method, api, runs
        self.rows: list[Fall] = []
        self.now = _ZERO

    def total(self, name: str, amount: Decimal, formula: str, **inputs: object) -> None:
        self.now = amount
        self._add(TOTAL, name, amount, formula, inputs)

    def change(self, name: str, to: Decimal, formula: str, **inputs: object) -> None:
        """A step to the amount `to`; left out when nothing changes."""
        with exact():
            amount = to - self.now
        if amount:
            self.now = to
            self._add(CHANGE, name, amount, formula, inputs)

    def _add(
        self, kind: str, name: str, amount: Decimal, formula: str, inputs: Mapping[str, object]
    ) -> None:
        shown = tuple(
            (f"{key[0].upper()}{key[1:]}".replace("_", " "), _text(value, self.currency))
            for key, value in inputs.items()
        )
        figure = Figure(
            name, to_text(amount), self.currency, formula=formula, inputs=shown, runs=self.runs,
            method_version=self.method, api=self.api,
        )  # fmt: skip
        self.rows.append(Fall(kind, amount, self.now, figure))


def _text(value: object, currency: str) -> str:
    return money(to_text(value), currency) if isinstance(value, Decimal) else str(value)


def waterfall(savings: SavingsRecord, api: str, method: str) -> tuple[Fall, ...]:
    """Rows from the counterfactual to the payable of the invoice of `savings`.

    `api` is the call that returns the invoice, `method` its method version.
    """
    contract = Contract.from_json(contract_version_of(savings).contract)
    told = FeeBreakdown.from_json(savings.document["breakdown"])
    before = LedgerState.from_json(savings.document["state_before"])
    steps = {step.name: step.amount for step in told.steps}
    rows = _Rows(told.currency, method, api, (str(savings.measurement_id),))
    _savings(rows, contract, told, before, steps)
    _fee(rows, contract, told, before, steps)
    _paid(rows, contract, told)
    return tuple(rows.rows)


def _savings(
    rows: _Rows,
    contract: Contract,
    told: FeeBreakdown,
    before: LedgerState,
    steps: Mapping[str, Decimal],
) -> None:
    if told.counterfactual is not None:
        rows.total(
            "Counterfactual", told.counterfactual,
            "What the counted volume would have cost on the frozen baseline, summed over the "
            "lines.",
            **{f"line_{n}": line.counterfactual or _ZERO
               for n, line in enumerate(_shares(told), start=1)},
        )  # fmt: skip
        rows.change(
            "Not saved, or not billable", told.net_savings,
            "Counterfactual less the savings that count: what the work still cost, what lies "
            "between the estimate and the bound, and lines that may not bill.",
            counterfactual=told.counterfactual, net_savings=told.net_savings,
        )  # fmt: skip
    rows.total(
        "Savings that count", told.net_savings,
        f"Sum over the lines of the savings at {BOUNDS[contract.bound]}, after gate and "
        "counterfactual; a model that got slower is set off.",
        **{f"line_{n}": line.billed_savings for n, line in enumerate(_shares(told), start=1)},
    )  # fmt: skip
    term = contract.recoupment
    if term is not None and "after amortisation" in steps:
        rows.change(
            "Instalment of the search", steps["after amortisation"],
            "Search cost divided by the months it is spread over, taken off the savings first.",
            search_cost=term.amount, recorded_so_far=before.recorded or term.amount,
            months=term.months, instalments_before=before.instalments,
        )  # fmt: skip
    if "losses set off" in steps:
        with exact():
            left = rows.now - steps["losses set off"]
        rows.change(
            "Losses of earlier periods set off", left,
            "The smaller of the losses brought forward and the savings left.",
            losses_brought_forward=before.losses, losses_left=told.state.losses,
        )  # fmt: skip
    rows.change(
        "Loss of this period", told.chargeable,
        "Savings below zero bill nothing"
        + ("; they are carried forward." if contract.carry_forward else "; nothing is carried."),
        losses_brought_forward=before.losses, losses_carried_forward=told.state.losses,
    )  # fmt: skip
    rows.total(
        "Chargeable savings", told.chargeable,
        "Savings that count, less instalment and losses; never below zero.",
        savings_that_count=told.net_savings,
    )  # fmt: skip


def _fee(
    rows: _Rows,
    contract: Contract,
    told: FeeBreakdown,
    before: LedgerState,
    steps: Mapping[str, Decimal],
) -> None:
    if "share" not in steps:
        return
    reached = tier_parts(contract.tiers, told.chargeable)
    tiers = {
        f"{percent(part.tier.rate, 2)} of {money(to_text(part.savings), told.currency)}": part.fee
        for part in reached
    }
    rows.change(
        "Stays with the customer", steps["share"],
        "Chargeable savings less our share of them.",
        chargeable_savings=told.chargeable, our_share=steps["share"],
    )  # fmt: skip
    rows.total(
        "Our share", steps["share"],
        "Each rate applies only to the part of the chargeable savings inside its tier; summed, "
        "not rounded.", **tiers,
    )  # fmt: skip
    recouped = sum(
        (line.amount_unrounded for line in told.lines if line.kind == "recoupment"), _ZERO
    )
    if "with deferred excess" in steps:
        rows.change(
            "Excess deferred from earlier periods", steps["with deferred excess"],
            "Fee that lay above the cap of an earlier period.", deferred=before.deferred,
        )  # fmt: skip
    with exact():
        share = told.fee_unrounded - recouped
    if "minimum" in steps:
        rows.change(
            "Raised to the minimum", share,
            "The contract's minimum with what is paid back for the search, never above the "
            "chargeable savings.",
            minimum=contract.minimum or _ZERO, chargeable_savings=told.chargeable,
        )  # fmt: skip
    if "cap" in steps:
        rows.change(
            "Cut at the cap", share,
            "The contract's cap, or the chargeable savings where they are less; what lies above "
            + ("is deferred." if contract.cap_excess == "carry" else "is forfeited."),
            cap="none" if contract.cap is None else contract.cap, above_it=told.excess,
        )  # fmt: skip
    if recouped and contract.recoupment is not None:
        with exact():
            to = rows.now + recouped
        rows.change(
            "Search cost paid back", to,
            "A share of the chargeable savings until the search pool is recovered; never above "
            "the cap or the savings together with our share.",
            pool_of_the_contract=contract.recoupment.amount,
            share_of_the_savings=percent(contract.recoupment.share, 2),
            recouped_before=before.recouped, recouped_with_this_period=told.state.recouped,
        )  # fmt: skip
    rows.change(
        "Rounding", told.fee,
        "The fee is rounded half up once, to the currency's minor unit, and split over the lines "
        "by largest remainder.",
        before_rounding=told.fee_unrounded, after=told.fee,
    )  # fmt: skip


def _paid(rows: _Rows, contract: Contract, told: FeeBreakdown) -> None:
    rows.total(
        "Fee", told.fee, "Our share after cap and minimum, with search cost paid back; rounded "
        "once.",
        before_rounding=told.fee_unrounded, rounding_residue=told.residue,
    )  # fmt: skip
    rows.change(
        "Holdback until the audit", told.net, "Fee x holdback rate, rounded half up.",
        fee=told.fee, holdback_rate=percent(contract.holdback, 2),
    )  # fmt: skip
    rows.total("Net", told.net, "Fee less holdback.", fee=told.fee, holdback=told.holdback)
    rows.change(
        "VAT", told.payable, "Taxable amount x VAT rate, rounded half up.",
        taxable=told.taxable, vat_rate=percent(contract.vat, 2),
    )  # fmt: skip
    rows.total("Payable", told.payable, "Net and VAT.", net=told.net, vat=told.tax)


def _shares(told: FeeBreakdown) -> list[FeeLine]:
    return [line for line in told.lines if line.kind == "share"]
