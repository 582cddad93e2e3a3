"""Energy in a report: what the runs' counters or a meter's log say, and nothing else.

In: what `metering` found of energy, as its record. Out: facts to print, or an error that names the
first figure that differs from the evidence. Nothing here writes, and no money rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from metering.decimals import to_text
from metering.energy import NOT_MEASURED
from metering.uplift.energy import Energy
from reports.errors import ReportError
from reports.facts import EnergyFacts
from reports.record import validated


def energy_facts(document: Mapping[str, Any]) -> EnergyFacts:
    """The facts of `Energy.to_dict()`, to the last digit.

    Raises ReportError where a log holds what no report can print.
    """
    if document["state"] == NOT_MEASURED:
        return validated(EnergyFacts, {"reason": document["reason"]})
    stated = {
        "source": document["source"],
        "uncertainty": to_text(Decimal(document["uncertainty"])),
        "baseline_j_per_sample": document["baseline_j_per_sample"],
        "optimised_j_per_sample": document["candidate_j_per_sample"],
        **{name: document["less"][name] for name in ("point", "lo", "hi")},
    }
    return validated(EnergyFacts, stated)


def require_stated(stated: EnergyFacts | None, found: Energy) -> None:
    """Facts from before reports printed energy may be silent where nothing was measured.

    Raises ReportError.
    """
    if stated is None:
        if found.measured:
            raise ReportError(f"energy: the report is silent, the evidence gives {found.words}")
        return
    right = energy_facts(found.to_dict())
    for name in EnergyFacts.model_fields:
        got, want = getattr(stated, name), getattr(right, name)
        if got != want:
            raise ReportError(f"energy {name}: the report states {got}, the evidence gives {want}")
