"""Step "tune": search kernels for the model on this machine and store the package.

In: a frozen baseline. Out: one Tuning with its progress lines, one KernelPackage on disk. The
search sees the samples, never the held-out ones.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import kernelgen
from kernelgen.agent.results import TrialEvent, TuneResult
from kernelgen.machine import Machine
from kernelgen.workload import load_samples
from metering.plan import MeasurementPlan
from portal.accounts.access import Actor
from portal.runs.models import Baseline, KernelPackage, Tuning, TuningEvent
from portal.runs.services import (
    package_store,
    tuning_events_add,
    tuning_open,
    tuning_record,
)
from portal.workspace import absolute, home, write

Line = Callable[[str], None]
# Progress rows are written in groups, so that the search does not wait for the disk at each trial.
EVENTS_PER_WRITE = 20


def search_seed(plan: MeasurementPlan) -> int:
    """The search's seed, drawn from the signed plan so that nobody picks it afterwards."""
    return int.from_bytes(hashlib.sha256(f"search:{plan.digest}".encode()).digest()[:4], "big")


def generate_kernels(*, actor: Actor, baseline: Baseline, line: Line) -> KernelPackage:
    """Return the package of a baseline's search, searching when there is none yet."""
    found = KernelPackage.objects.filter(tuning__baseline=baseline).first()
    if found:
        return KernelPackage.objects.get(pk=found.pk)
    plan = MeasurementPlan.from_json(baseline.contract_version.plan)
    mix, book = baseline.mix, baseline.contract_version.price_book
    seed = search_seed(plan)
    tuning = tuning_open(
        actor=actor, baseline=baseline, seed=seed, budget_s=Decimal(plan.search_budget_s)
    )
    package = home() / "packages" / str(tuning.pk)
    package.parent.mkdir(parents=True, exist_ok=True)
    outcome = package.with_name(f"{tuning.pk}.json")
    if not (outcome.is_file() and (package / "manifest.json").is_file()):
        recorder = _Recorder(tuning, line)
        result = kernelgen.optimize(
            absolute(mix.model.path),
            out=package,
            budget_s=float(plan.search_budget_s),
            samples=load_samples(absolute(mix.samples_path)),
            seed=seed,
            machine=Machine.from_dict(baseline.system.machine),
            price_per_core_hour=book.price_per_core_hour,
            currency=book.currency,
            records=_records(tuning),
            core=plan.cores[0],
            on_event=recorder,
        )
        recorder.flush()
        # The result outlives a kill between the end of the search and its row.
        write(outcome, json.dumps(_outcome(result), sort_keys=True).encode())
    stored = json.loads(outcome.read_bytes())
    tuning = tuning_record(
        actor=actor,
        tuning=tuning,
        trials=stored["trials"],
        accepted=stored["accepted"],
        rejected=stored["rejected"],
        seconds=Decimal(stored["seconds"]),
        cost=Decimal(stored["cost"]),
        currency=stored["currency"],
    )
    return package_store(
        actor=actor,
        tuning=tuning,
        manifest=_json(package / "manifest.json"),
        manifest_sha256=stored["manifest_sha256"],
        model_gate=stored["model_gate"],
        operators=stored["operators"],
        path=package,
    )


def _records(tuning: Tuning) -> Path:
    """What is known about this model on this machine: a search that was cut off goes on there,
    and a later one starts from it."""
    name = f"{tuning.system.fingerprint[:16]}-{tuning.mix.model.sha256[:16]}.jsonl"
    folder = home() / "packages" / "records"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def _outcome(result: TuneResult) -> dict[str, object]:
    return {
        "trials": result.trials,
        "accepted": result.accepted,
        "rejected": dict(result.rejected),
        "seconds": f"{result.seconds:.3f}",
        "cost": str(result.cost),
        "currency": result.currency,
        "manifest_sha256": result.manifest_sha256,
        "model_gate": asdict(result.model_gate),
        "operators": [asdict(operator) for operator in result.operators],
    }


def _json(path: Path) -> dict[str, object]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path}: wanted a JSON object")
    return value


class _Recorder:
    """Turns the search's events into rows for the chart, in groups, and lines for the watcher."""

    def __init__(self, tuning: Tuning, line: Line) -> None:
        self.tuning, self.line = tuning, line
        # A resumed search goes on counting where the stored rows end.
        self.seq = TuningEvent.objects.filter(tuning=tuning).count()
        self.waiting: list[TuningEvent] = []

    def __call__(self, event: TrialEvent) -> None:
        self.seq += 1
        self.waiting.append(
            TuningEvent(
                tuning=self.tuning,
                seq=self.seq,
                kind=event.kind,
                operator=event.operator or "",
                trial=event.trial,
                text=event.text,
                ratio=event.ratio,
                elapsed_s=event.seconds_elapsed,
            )
        )
        if event.kind != "trial" or len(self.waiting) >= EVENTS_PER_WRITE:
            self.flush()
            self.line(event.text)
        if event.kind == "interrupted":
            # The engine would package what it has; but both sides signed a whole search, so the
            # job stops here and the next run goes on from the records.
            raise KeyboardInterrupt

    def flush(self) -> None:
        """Write the rows that wait."""
        tuning_events_add(tuning=self.tuning, events=self.waiting)
        self.waiting = []
