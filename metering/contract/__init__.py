"""Contracts: terms as data, and the one pure function that turns verified savings into a fee.

Nouns: `Contract` (terms), `VerifiedSavings` (what the auditor approved), `LedgerState` (what
earlier periods left behind: losses, recoupment, deferred excess), `FeeBreakdown` (the answer).
Invariants: `fee(contract, state, verified)` reads nothing else; the same input gives the same
bytes; lines sum to the fee; 0 <= fee <= chargeable savings <= counterfactual cost; preview and
billing call the same function.
Never here: a clock, a database, a float, a rounding before the invoice line.
"""

from metering.contract.audit import NOTHING_CREDITED, AuditOutcome, Credited, release_or_credit
from metering.contract.baseline_policy import effective_baselines
from metering.contract.break_even import (
    BreakEven,
    Outlook,
    break_even,
    outlook,
    savings_at,
    search_price,
    uplift_needed,
)
from metering.contract.breakdown import FeeBreakdown, FeeLine, Step
from metering.contract.fee import fee
from metering.contract.state import LedgerState, VerifiedLine, VerifiedSavings
from metering.contract.terms import (
    BaselinePolicy,
    Contract,
    Party,
    Recoupment,
    Tier,
    TierPart,
    flat_share,
    in_force,
    marginal_fee,
    tier_parts,
)

__all__ = [
    "NOTHING_CREDITED",
    "AuditOutcome",
    "BaselinePolicy",
    "BreakEven",
    "Contract",
    "Credited",
    "FeeBreakdown",
    "FeeLine",
    "LedgerState",
    "Outlook",
    "Party",
    "Recoupment",
    "Step",
    "Tier",
    "TierPart",
    "VerifiedLine",
    "VerifiedSavings",
    "break_even",
    "effective_baselines",
    "fee",
    "flat_share",
    "in_force",
    "marginal_fee",
    "outlook",
    "release_or_credit",
    "savings_at",
    "search_price",
    "tier_parts",
    "uplift_needed",
]
