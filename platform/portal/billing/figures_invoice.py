"""Every number of an issued document, each with its formula in words and what was put into it.

In: the frozen document, its postings, the state its period left behind. Out: figures for the page.
The engine computed every amount; here they are only named, explained and laid side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from metering.contract import LedgerState
from metering.decimals import exact, to_text
from portal.billing.figures import SAVINGS, inputs_of, line_formula, savings_lines
from portal.billing.models import Dispute, Invoice, JournalEntry
from portal.billing.previews import LineLeft
from portal.billing.sandbox import NAMES, Compared
from portal.billing.savings import contract_version_of
from portal.web.figures import Figure
from portal.web.formats import fixed, money, percent

Pairs = tuple[tuple[str, str], ...]

FORMULAS: Mapping[str, Mapping[str, str]] = {
    "invoice": {
        "fee": "Sum of the lines. Our share of the chargeable savings after minimum and cap, with "
        "search cost paid back, rounded half up once.",
        "holdback": "Fee x holdback rate of the contract, rounded half up; unpaid until the audit.",
        "net": "Fee less holdback.",
        "taxable": "What the tax is computed on.",
        "tax": "Taxable amount x VAT rate, rounded half up.",
        "payable": "Net and VAT.",
    },
    "credit_note": {
        "fee": "Sum of the lines: what this note takes back of the fee, so below zero.",
        "holdback": "Holdback x fee credited so far / fee of the corrected document, less what "
        "earlier notes took; all that is left when everything is credited.",
        "net": "Fee less holdback.",
        "taxable": "What the tax is computed on.",
        "tax": "VAT of all that is credited so far, less the VAT of earlier notes: together the "
        "documents carry exactly the tax of what remains.",
        "payable": "Net and VAT.",
    },
    "release": {
        "fee": "What the audit changed of the fee; an audit never raises it.",
        "holdback": "The holdback that is released, so below zero.",
        "net": "Fee less holdback: what is now due.",
        "taxable": "What the tax is computed on.",
        "tax": "VAT of the audited fee, less the VAT charged so far.",
        "payable": "Net and VAT.",
    },
}


def api_of(invoice: Invoice) -> str:
    """The API call that returns the document."""
    return f"/api/v1/invoices/{invoice.pk}"


def amount_figures(invoice: Invoice) -> dict[str, Figure]:
    """Fee, holdback, net, taxable amount, VAT and payable, by their name in the document."""
    document, currency = invoice.document, invoice.currency
    base = {
        "release": "net: tax of the holdback is due at release",
        "issue": "fee: tax of the holdback is due at issue",
    }[document["holdback_tax"]]
    rate = percent(document["vat"], 2)
    of = {name: (NAMES[name], money(document[name], currency)) for name in NAMES}
    lines = tuple(
        (f"Line {line['line_id']}", money(line["fee_line"]["amount"], currency))
        for line in document["lines"]
    )
    corrected = _corrected(invoice)
    inputs: dict[str, Pairs] = {
        "fee": lines,
        "holdback": (of["fee"], *corrected),
        "net": (of["fee"], of["holdback"]),
        "taxable": (("Computed on", base), of["fee"], of["holdback"]),
        "tax": (of["taxable"], ("VAT rate", rate), *corrected),
        "payable": (of["net"], of["tax"]),
    }
    reason = document["tax_exemption_reason"]
    if reason:
        inputs["tax"] = (*inputs["tax"], ("No tax because", reason))
    if invoice.kind == Invoice.Kind.INVOICE:
        held = contract_version_of(invoice.savings).contract["holdback"]
        inputs["holdback"] = (of["fee"], ("Holdback rate", percent(held, 2)))
    return {
        name: Figure(
            NAMES[name], document[name], currency, formula=FORMULAS[invoice.kind][name],
            inputs=inputs[name], runs=(str(invoice.measurement_id),),
            method_version=document["method_version"], api=api_of(invoice),
        )
        for name in NAMES
    }  # fmt: skip


def _corrected(invoice: Invoice) -> Pairs:
    """The amounts of the document that this one corrects."""
    if invoice.corrects is None:
        return ()
    old = invoice.corrects
    return tuple(
        (f"{NAMES[name]} of {old.number}", money(old.document[name], old.currency))
        for name in ("fee", "holdback", "tax")
    )


@dataclass(frozen=True)
class LineRow:
    """One line of a document: what it is for, its savings and its amount, both open."""

    line_id: str
    description: str
    reason: str
    savings: Figure
    amount: Figure


def line_rows(invoice: Invoice) -> tuple[LineRow, ...]:
    """Every line with what it was made from."""
    saved = {(line["model"], line["system"]): line for line in savings_lines(invoice.savings)}
    return tuple(
        LineRow(
            line["line_id"],
            line["description"],
            line["fee_line"]["reason"],
            _line_savings(invoice, line["fee_line"], saved),
            _line_amount(invoice, line["fee_line"]),
        )
        for line in invoice.document["lines"]
    )


def _line_savings(
    invoice: Invoice, fee: Mapping[str, Any], saved: Mapping[tuple[str, str], dict[str, Any]]
) -> Figure:
    """Billed savings of a line: filled-in formula where usage was metered, else as stated."""
    currency = invoice.currency
    line = saved.get((fee["model"], fee["system"]))
    formula = line_formula(line, currency) if line else "Savings as the auditor stated them."
    cost = fee["counterfactual"]
    inputs: list[tuple[str, str]] = list(inputs_of(line, currency)) if line else []
    inputs += [
        ("Savings, estimate", money(fee["point"], currency)),
        ("Savings, lower bound", money(fee["bound"], currency)),
        ("Counterfactual", "not stated" if cost is None else money(cost, currency)),
    ]
    if line is None:
        inputs += [("Baseline id", fee["baseline_id"] or "none"),
                   ("Uplift id", fee["uplift_id"] or "none")]  # fmt: skip
    if fee.get("corrects"):
        inputs.append(("Late usage of", fee["corrects"]))
    if not fee["model"]:
        formula, inputs = "This line carries no savings of its own.", []
    return Figure(
        "Billed savings", fee["billed_savings"], currency, note=SAVINGS if line else "",
        formula=formula, inputs=tuple(inputs), runs=(str(invoice.measurement_id),),
        interval=f"at least {money(fee['bound'], currency)} with 95 % confidence"
        if fee["model"] else "",
        method_version=invoice.document["method_version"], api=api_of(invoice),
    )  # fmt: skip


def _line_amount(invoice: Invoice, fee: Mapping[str, Any]) -> Figure:
    currency = invoice.currency
    inputs: Pairs = (
        ("Before rounding", money(fee["amount_unrounded"], currency)),
        ("Rounding residue", money(fee["residue"], currency)),
    )
    if invoice.kind != Invoice.Kind.INVOICE:
        formula = "What this document changes of the line; never more than was left of it."
    elif fee["kind"] == "recoupment":
        formula = "Search cost paid back out of the chargeable savings, rounded to the minor unit."
    else:
        told = invoice.savings.document["breakdown"]
        formula = (
            "Our share of the period x billed savings of the line / savings that count; rounded "
            "by largest remainder, so that the lines sum to the fee."
        )
        inputs = (
            ("Our share, before rounding", money(_share(told), currency)),
            ("Billed savings", money(fee["billed_savings"], currency)),
            ("Savings that count", money(told["net_savings"], currency)),
            *inputs,
        )
    return Figure(
        "Amount", fee["amount"], currency, formula=formula, inputs=inputs,
        method_version=invoice.document["method_version"], api=api_of(invoice),
    )  # fmt: skip


def _share(told: Mapping[str, Any]) -> str:
    """The share before rounding: the unrounded fee without what pays back the search."""
    back = [line["amount_unrounded"] for line in told["lines"] if line["kind"] == "recoupment"]
    with exact():
        return to_text(Decimal(told["fee_unrounded"]) - sum(map(Decimal, back), Decimal(0)))


def journal_figure(invoice: Invoice, entries: Sequence[JournalEntry]) -> Figure:
    """The sum of a document's postings: zero, or the books are wrong."""
    with exact():
        total = sum((entry.amount for entry in entries), Decimal(0))
    return Figure(
        "Sum, must be zero", to_text(total), invoice.currency,
        formula="Debits are positive, credits negative; the postings of one document, its "
        "disputes among them, sum to zero.",
        inputs=tuple((entry.account, money(entry.amount, entry.currency)) for entry in entries),
        api=api_of(invoice),
    )  # fmt: skip


def dispute_figures(dispute: Dispute) -> tuple[Figure, ...]:
    """What a dispute leaves collectible and what it sets aside."""
    invoice = dispute.invoice
    inputs = (
        ("Payable", money(invoice.document["payable"], invoice.currency)),
        ("Fee", money(invoice.document["fee"], invoice.currency)),
        *(
            (f"Line {line['line_id']}", money(line["fee_line"]["amount"], invoice.currency))
            for line in invoice.document["lines"]
        ),
    )
    formula = (
        "Payable x amount of the line / fee, split over all lines by largest remainder, so that "
        "the parts sum to the payable; "
    )
    api = f"/api/v1/disputes/{dispute.pk}"
    return (
        Figure("Stays collectible", fixed(dispute.collectible), invoice.currency,
               formula=f"{formula}the lines that are not contested.", inputs=inputs, api=api),
        Figure("Set aside", fixed(dispute.disputed), invoice.currency,
               formula=f"{formula}the contested lines: {', '.join(dispute.lines)}.",
               inputs=inputs, api=api),
    )  # fmt: skip


@dataclass(frozen=True)
class HandedOn:
    """One thing a period takes over from the one before and hands on to the next."""

    name: str
    before: str
    after: str
    now: str
    how: Figure


def handed_on(invoice: Invoice, now: LedgerState) -> tuple[HandedOn, ...]:
    """State before and after the period, and as corrections since have left it (`now`)."""
    before = LedgerState.from_json(invoice.savings.document["state_before"])
    after = LedgerState.from_json(invoice.savings.document["breakdown"]["state"])
    words = {
        "losses": "Losses brought forward, and those of this period, less what was set off.",
        "recouped": "Search cost paid back so far out of the contract's pool.",
        "deferred": "Fee above the cap, where the contract carries it into later periods.",
        "recorded": "What searches have cost by their ledgers; nothing above it is paid back.",
        "instalments": "Months of a search that is spread over several.",
        "settled_through": "The last period that is settled; periods go in order.",
    }
    names = {
        "losses": "Losses carried forward", "recouped": "Search cost recouped",
        "deferred": "Excess above the cap", "recorded": "Search cost recorded",
        "instalments": "Instalments taken", "settled_through": "Settled through",
    }  # fmt: skip
    rows = []
    for field, formula in words.items():
        texts = [_state(getattr(state, field), invoice.currency) for state in (before, after, now)]
        how = Figure(
            names[field], texts[1], formula=formula,
            inputs=(("Before the period", texts[0]), ("After the period", texts[1]),
                    ("After every correction", texts[2])),
            api=f"/api/v1/savings/{invoice.savings_id}",
        )  # fmt: skip
        rows.append(HandedOn(names[field], texts[0], texts[1], texts[2], how))
    return tuple(rows)


def _state(value: object, currency: str) -> str:
    if value is None:
        return "none"
    return money(to_text(value), currency) if isinstance(value, Decimal) else str(value)


STEPS = {
    "Counterfactual": "What the volume would have cost on the baseline, summed over the lines.",
    "Savings that count": "Savings of the lines at the bound, after gate and counterfactual.",
    "Chargeable savings": "Savings that count, less instalment and losses; never below zero.",
    "Fee before rounding": "Our share by tiers, after minimum and cap, with search cost paid back.",
    "Fee above the cap": "What the share comes to above the cap or the savings.",
    "Search cost paid back": "A share of the savings until the pool is recovered.",
    "Losses carried forward": "Losses brought forward and of this period, less what was set off.",
    "Search cost recouped": "Recouped before, and with this period.",
    "Excess deferred": "Fee above the cap, where the contract carries it.",
}


def compared_figure(row: Compared, invoice: Invoice) -> Figure:
    """How an amount of the sandbox is made, on both sides by the same formula."""
    by_name = {words: FORMULAS["invoice"][name] for name, words in NAMES.items()}
    share = "Our share x savings of the line / savings that count, rounded by largest remainder."
    formula = by_name.get(row.name) or STEPS.get(row.name) or share
    sides = (("As issued", row.issued), ("As assumed", row.assumed))
    return Figure(
        f"{row.group}, {row.name}", to_text(row.difference), invoice.currency, formula=formula,
        inputs=tuple((words, "none" if amount is None
                      else money(to_text(amount), invoice.currency)) for words, amount in sides),
        runs=(str(invoice.measurement_id),), method_version=invoice.document["method_version"],
        api=api_of(invoice),
    )  # fmt: skip


def left_figures(
    invoice: Invoice, lines: Sequence[LineLeft]
) -> tuple[tuple[LineLeft, Figure], ...]:
    """What is left to credit of each line, open to what was billed and taken."""
    currency = invoice.currency
    return tuple(
        (
            line,
            Figure(
                f"Left of line {line.line_id}", to_text(line.left), currency,
                formula="Amount of the line less what credit notes took of it.",
                inputs=(("Billed", money(line.billed, currency)),
                        ("Credited", money(line.credited, currency))),
                api=api_of(invoice),
            ),
        )
        for line in lines
    )  # fmt: skip
