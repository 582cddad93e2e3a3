"""Uplift: paired runs, the A/A gate, the statistics and the accuracy guard.

In: two comparable specs, a fixed number of pairs and a seed. Out: an estimate with its exact
interval and the decision whether it may be billed. Money uses ``lower_95`` only. Nothing here
chooses a baseline, and nothing looks at a result before the last pair is measured.
"""

from __future__ import annotations

from metering.uplift.accuracy import Accuracy, accuracy_guard
from metering.uplift.estimate import MINIMUM_PAIRS, UpliftEstimate, estimate
from metering.uplift.family import Claim, Traffic, family, mix_uplift
from metering.uplift.gate import AaGate, Decision, aa_gate, decide
from metering.uplift.order import draw_order
from metering.uplift.pairs import Pair, PairedRuns, PairsRefused, load_paired, measure_pairs

__all__ = [
    "MINIMUM_PAIRS",
    "AaGate",
    "Accuracy",
    "Claim",
    "Decision",
    "Pair",
    "PairedRuns",
    "PairsRefused",
    "Traffic",
    "UpliftEstimate",
    "aa_gate",
    "accuracy_guard",
    "decide",
    "draw_order",
    "estimate",
    "family",
    "load_paired",
    "measure_pairs",
    "mix_uplift",
]
