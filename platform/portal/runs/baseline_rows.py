"""The sweep table of a frozen baseline, row by row, for the page and its CSV.

In: a stored `metering.baseline.Baseline` document. Out: one row per configuration with its runs.
Nothing is computed here; the chosen row is the one whose system under test the document names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from portal.runs.models import Baseline

SWEEP_HEADER = (
    "stack", "threads", "instances", "arrangement", "batch", "graph_optimization", "precision",
    "samples_per_second", "state", "min_cosine", "accuracy_passed", "screening_run", "final_runs",
    "accuracy_run", "chosen", "as_found",
)  # fmt: skip


@dataclass(frozen=True)
class SweepLine:
    """One configuration that was tried."""

    sut: dict[str, Any]
    state: str
    samples_per_second: str | None
    accuracy: dict[str, Any] | None
    screening_run: str
    final_runs: tuple[str, ...]
    accuracy_run: str | None
    chosen: bool
    as_found: bool

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Every run of this configuration: screening, accuracy, final."""
        checked = (self.accuracy_run,) if self.accuracy_run else ()
        return (self.screening_run, *checked, *self.final_runs)

    @property
    def words(self) -> str:
        """The configuration in words."""
        return configuration_words(self.sut)


def configuration_words(sut: Mapping[str, Any]) -> str:
    """A system under test in words: threads, batches, graph optimisation."""
    threads = f"{sut['threads']} thread{'s' if sut['threads'] > 1 else ''}"
    instances = f"{sut['instances']} instances of " if sut["instances"] > 1 else ""
    batches = "one by one" if sut["arrangement"] == "single" else (
        f"{sut['arrangement']}, batches of {sut['batch']}"
    )  # fmt: skip
    return f"{instances}{threads}, {batches}, graph {sut['graph_optimization']}"


def sweep_rows(baseline: Baseline) -> list[SweepLine]:
    """Rows of the sweep, the fastest first; configurations without a figure come last."""
    document = baseline.document
    found = document.get("as_found")
    rows = [
        SweepLine(
            sut=row["sut"],
            state=row["state"],
            samples_per_second=row["samples_per_second"],
            accuracy=row["accuracy"],
            screening_run=row["screening_run"],
            final_runs=tuple(row["final_runs"]),
            accuracy_run=row["accuracy_run"],
            chosen=row["sut"] == document["sut"],
            as_found=found is not None and row["sut"] == found["sut"],
        )
        for row in document["table"]
    ]
    return sorted(rows, key=lambda row: -float(row.samples_per_second or 0))


def sweep_csv(baseline: Baseline) -> Iterator[tuple[Any, ...]]:
    """The same rows as raw values, in `SWEEP_HEADER` order."""
    for row in sweep_rows(baseline):
        accuracy = row.accuracy or {}
        yield (
            *(row.sut[name] for name in SWEEP_HEADER[:7]),
            row.samples_per_second, row.state, accuracy.get("min_cosine"),
            accuracy.get("passed"), row.screening_run, " ".join(row.final_runs), row.accuracy_run,
            row.chosen, row.as_found,
        )  # fmt: skip
