"""What the customer ran before, beside the best stock stack, for every page that shows either.

In: a frozen baseline. Out: figures that open, or None where nothing was stated. The rate is the
engine's own; the one figure worked out here, the distance between the two, bills nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from portal.runs.baseline_rows import configuration_words
from portal.runs.models import Baseline
from portal.web import formats
from portal.web.figures import Figure

BILLING = (
    "Billing uses the best stock figure: uplift, savings and fee are counted from it, never from "
    "what was found."
)

NO_RATE = "no rate"


@dataclass(frozen=True)
class AsFound:
    """The customer's own configuration as measured; no rate where a run of it was not VALID."""

    row: Mapping[str, Any]
    best: Decimal

    @property
    def words(self) -> str:
        """Stack and configuration."""
        return f"{self.row['sut']['stack']}, {configuration_words(self.row['sut'])}"

    @property
    def rate(self) -> Decimal | None:
        """Samples per second, the median of its final runs."""
        found = self.row["samples_per_second"]
        return None if found is None else Decimal(found)

    @property
    def ahead(self) -> Decimal | None:
        """How much more the best stock stack does, as a ratio minus 1."""
        return None if not self.rate else self.best / self.rate - 1

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs its rate is the median of."""
        return tuple(self.row["final_runs"]) or (str(self.row["screening_run"]),)


def as_found_of(baseline: Baseline) -> AsFound | None:
    """What was found, or None when the customer stated nothing."""
    row = baseline.document.get("as_found")
    return None if row is None else AsFound(row, Decimal(baseline.samples_per_second))


def as_found_figures(baseline: Baseline) -> tuple[Figure, ...]:
    """As found, best stock and the distance between them; empty when nothing was stated."""
    found = as_found_of(baseline)
    if found is None:
        return ()
    best = f"{baseline.stack}, {configuration_words(baseline.document['sut'])}"
    method = str(baseline.contract_version.plan["method_version"])
    api = f"/api/v1/baselines/{baseline.pk}"
    inputs = (("As found", found.words), ("Best stock", best))
    measured = found.rate is not None
    return (
        Figure(
            "As found", formats.number(found.rate, 5) if measured else NO_RATE,
            "samples per second" if measured else "",
            note=found.words if measured else f"{found.words}: {found.row['state']}",
            formula="Median over its runs of result_samples_per_second, measured in the same "
            "rounds as the stock stacks; the configuration is the customer's own statement.",
            inputs=inputs[:1], runs=found.runs, method_version=method, api=api,
        ),
        Figure(
            "Best stock", formats.number(baseline.samples_per_second, 5), "samples per second",
            note="this is what billing counts from", inputs=inputs[1:],
            runs=tuple(str(run) for run in baseline.document["runs"]), method_version=method,
            api=api,
        ),
        Figure(
            "Best stock over as found",
            NO_RATE if found.ahead is None else formats.signed_percent(found.ahead, 1),
            note="gained by stock software alone; not billed",
            formula="Samples per second of the best stock stack / samples per second as found, "
            "minus 1.", inputs=inputs, method_version=method, api=api,
        ),
    )  # fmt: skip
