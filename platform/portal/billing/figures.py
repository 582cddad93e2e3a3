"""Figures of savings, each with its formula in words and the numbers put into it.

In: stored documents of the engine (savings lines, fee breakdown, usage totals). Out: what a page
shows. Nothing is computed here that bills; the engine's own numbers are only laid out.
"""

from collections.abc import Sequence
from typing import Any

from portal.billing.models import SavingsRecord
from portal.web.figures import Figure
from portal.web.formats import fixed, money, number, signed_percent

COUNTED = "Accepted events: each source and id once."
COUNTERFACTUAL = (
    "Volume x price of a core-hour / 3600 x cores / baseline samples per second: what the volume "
    "would have cost on the frozen baseline."
)
SAVINGS = (
    "Counterfactual x (1 - 1 / (1 + lower bound of the uplift)); never below 0, never above the "
    "counterfactual, and 0 when the measurement was not kept."
)


def savings_lines(record: SavingsRecord) -> Sequence[dict[str, Any]]:
    """The engine's savings lines (`metering.savings.SavingsLine` as JSON)."""
    lines: Sequence[dict[str, Any]] = record.document["lines"]
    return lines


def fee_steps(record: SavingsRecord) -> list[dict[str, Any]]:
    """The fee, step by step, as the engine computed it."""
    steps: list[dict[str, Any]] = record.document["breakdown"]["steps"]
    return steps


def usage_counts(record: SavingsRecord) -> list[tuple[str, int]]:
    """Lines by what became of them; every fate is named, also those that are 0."""
    return list(record.usage["counts"].items())


def savings_figures(record: SavingsRecord) -> tuple[Figure, ...]:
    """Volume, counterfactual, billable savings and fee of one period."""
    lines = savings_lines(record)
    fee = record.document["breakdown"]
    api = f"/api/v1/savings/{record.pk}"
    first = lines[0] if lines else {}
    method = str(first.get("method_version", ""))
    inputs = inputs_of(first, record.currency)
    runs = (str(record.measurement_id),)
    band = ""
    if first:
        band = (
            f"uplift {signed_percent(first['uplift_point'], 2)}, lower bound "
            f"{signed_percent(first['uplift_lower_95'], 2)}"
        )
    note = f"estimate {fixed(record.point, 6)}" if record.kept else "not kept, nothing is billed"
    if any(line.get("gate") for line in lines):
        note = f"evidence not sufficient, nothing is billed; estimate {fixed(record.point, 6)}"
    return (
        Figure("Volume", number(record.volume_samples), "samples", formula=COUNTED,
               inputs=tuple((fate, number(n)) for fate, n in usage_counts(record)), api=api),
        Figure("Counterfactual", fixed(record.counterfactual, 6), record.currency,
               formula=COUNTERFACTUAL, inputs=inputs, method_version=method, api=api),
        Figure("Billable savings", fixed(record.billable, 6), record.currency,
               note=note, formula=SAVINGS,
               inputs=(*inputs, ("Counterfactual", money(record.counterfactual, record.currency))),
               interval=band, runs=runs, method_version=method, api=api),
        Figure("Fee", fixed(record.fee, 2), record.currency, note=str(fee["status"]),
               formula="Our share of the billable savings under the contract, rounded once per "
               "invoice line; the steps stand below.",
               inputs=(("Chargeable savings", money(fee["chargeable"], record.currency)),
                       ("Fee before rounding", money(fee["fee_unrounded"], record.currency)),
                       ("Rounding residue", money(fee["residue"], record.currency)),
                       ("Contract", f"{fee['contract_id']} version {fee['contract_version']}")),
               method_version=method, api=api),
    )  # fmt: skip


def inputs_of(line: dict[str, Any], currency: str) -> tuple[tuple[str, str], ...]:
    """What was put into a savings line, in the order its formula uses it."""
    if not line:
        return ()
    return (
        ("Volume", f"{number(line['volume'])} samples"),
        ("Price of a core-hour", money(line["price_per_core_hour"], currency)),
        ("Cores", str(line["cores"])),
        ("Baseline", f"{line['baseline_samples_per_second']} samples per second"),
        ("Baseline id", str(line["baseline_id"])),
        ("Evidence digest", str(line["evidence_digest"])),
    )


def line_formula(line: dict[str, Any], currency: str) -> str:
    """A savings line's formula with its own numbers in it; one that cannot bill says so instead."""
    if not line["kept"]:
        return f"0 {currency}, not kept: {line['reason']}"
    if line.get("gate"):
        return f"0 {currency}, evidence not sufficient: {line['gate']}"
    return (
        f"{number(line['volume'])} samples x {line['price_per_core_hour']} {currency} / 3600 x "
        f"{line['cores']} cores / {line['baseline_samples_per_second']} samples per second x "
        f"(1 - 1 / (1 + {line['uplift_lower_95']})) = {line['bound']} {currency}"
    )
