"""Savings: metered volume times measured cost difference, with its uncertainty.

Nouns: `SavingsLine` (one model, system and period), the counterfactual (what the volume would
have cost on the frozen baseline), the point estimate, the bound (one-sided 95 %).
Invariants: savings never exceed the counterfactual; nothing bills on a bound at or below zero,
on a kernel that was not kept, or on a failed gate, and the reason is on the line; a window of
thirty days saves thirty times a window of one; a measured rate is turned from text into Decimal
exactly once.
Never here: a float, a run rate, an extrapolation over hours nobody metered, a mean of ratios.
"""

from metering.savings.adjustments import NonRoutine, adjusted, normalised_savings
from metering.savings.joint import UNCERTAINTIES, Estimate, bounds, joint_standard_error
from metering.savings.line import SavingsLine, measured_text, savings_line, verified_savings
from metering.savings.option_c import (
    FSU_METHODS,
    OptionC,
    compare,
    fractional_savings_uncertainty,
    option_gate,
)
from metering.savings.sufficiency import (
    Disqualification,
    Evidence,
    Override,
    Sufficiency,
    Verdict,
    demands_sufficiency,
    evidence_of,
    examine,
    settle,
)
from metering.savings.uncertainty import (
    combine_standard_errors,
    lower_bound,
    t_95_one_sided,
)
from metering.savings.unit_cost import unit_cost_savings

__all__ = [
    "FSU_METHODS",
    "UNCERTAINTIES",
    "Disqualification",
    "Estimate",
    "Evidence",
    "NonRoutine",
    "OptionC",
    "Override",
    "SavingsLine",
    "Sufficiency",
    "Verdict",
    "adjusted",
    "bounds",
    "combine_standard_errors",
    "compare",
    "demands_sufficiency",
    "evidence_of",
    "examine",
    "fractional_savings_uncertainty",
    "joint_standard_error",
    "lower_bound",
    "measured_text",
    "normalised_savings",
    "option_gate",
    "savings_line",
    "settle",
    "t_95_one_sided",
    "unit_cost_savings",
    "verified_savings",
]
