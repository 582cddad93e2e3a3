"""The frozen baseline: what the registry stores, and what everyone is held to afterwards.

In: a finished sweep and the time it is frozen. Out: :class:`Baseline`, a JSON document that names
its runs, so that each figure in it can be worked out again. A frozen baseline never changes; a new
sweep makes a new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from metering.baseline.sweeping import Cell, Sweep, SweepError
from metering.loadgen.files import json_bytes, write_atomic
from metering.loadgen.spec import SutSpec
from metering.loadgen.verify import EvidenceError
from metering.uplift.accuracy import Verdict
from metering.uplift.answers import verdict_from_dict

BASELINE = "baseline.json"
SCHEMA = "ignition.baseline.v1"


class BaselinePolicy(Enum):
    """How the contract lets a baseline change later; ``registry`` works out what then counts."""

    FIXED = "fixed"
    RESET = "reset"
    RATCHET = "ratchet"
    GLIDE = "glide"


@dataclass(frozen=True)
class Row:
    """One line of the sweep table. The rate is None when a run was not VALID."""

    sut: SutSpec
    state: str
    samples_per_second: Decimal | None
    screening_run: str
    final_runs: tuple[str, ...]
    accuracy_run: str | None
    accuracy: Verdict | None

    def to_dict(self) -> dict[str, Any]:
        value, accuracy = self.samples_per_second, self.accuracy
        return {
            "sut": self.sut.to_dict(),
            "state": self.state,
            "samples_per_second": None if value is None else str(value),
            "screening_run": self.screening_run,
            "final_runs": list(self.final_runs),
            "accuracy_run": self.accuracy_run,
            "accuracy": None if accuracy is None else accuracy.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        value, accuracy = data["samples_per_second"], data["accuracy"]
        return cls(
            sut=SutSpec.from_dict(data["sut"]),
            state=str(data["state"]),
            samples_per_second=None if value is None else Decimal(value),
            screening_run=str(data["screening_run"]),
            final_runs=tuple(data["final_runs"]),
            accuracy_run=data["accuracy_run"],
            accuracy=None if accuracy is None else verdict_from_dict(accuracy),
        )


@dataclass(frozen=True)
class Baseline:
    """The fastest correct stock configuration. ``samples_per_second`` is the median of ``runs``.

    ``as_found`` is the row of the customer's own configuration, when one was named.
    ``truth_sha256`` is the digest of the ``truth.json`` beside it, empty where the task has none.
    """

    stack: str
    version: str
    digest: str
    sut: SutSpec
    samples_per_second: Decimal
    runs: tuple[str, ...]
    accuracy: Verdict
    accuracy_run: str
    reference_run: str
    policy: BaselinePolicy
    plan_digest: str
    model_sha256: str
    samples_sha256: str
    frozen_at: datetime
    table: tuple[Row, ...]
    stacks: tuple[Mapping[str, Any], ...]
    as_found: Row | None = None
    truth_sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "stack": self.stack,
            "version": self.version,
            "digest": self.digest,
            "sut": self.sut.to_dict(),
            "samples_per_second": str(self.samples_per_second),
            "runs": list(self.runs),
            "accuracy": self.accuracy.to_dict(),
            "accuracy_run": self.accuracy_run,
            "reference_run": self.reference_run,
            "policy": self.policy.value,
            "plan_digest": self.plan_digest,
            "model_sha256": self.model_sha256,
            "samples_sha256": self.samples_sha256,
            "frozen_at": self.frozen_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "table": [row.to_dict() for row in self.table],
            "stacks": [dict(info) for info in self.stacks],
            "as_found": None if self.as_found is None else self.as_found.to_dict(),
            # Written only where there is one: older baselines keep their digest.
            **({"truth_sha256": self.truth_sha256} if self.truth_sha256 else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Baseline:
        """Inverse of ``to_dict``. Raises EvidenceError for anything that is not a baseline."""
        try:
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']!r}")
            found = data["as_found"]
            return cls(
                stack=data["stack"],
                version=data["version"],
                digest=data["digest"],
                sut=SutSpec.from_dict(data["sut"]),
                samples_per_second=Decimal(data["samples_per_second"]),
                runs=tuple(data["runs"]),
                accuracy=verdict_from_dict(data["accuracy"]),
                accuracy_run=data["accuracy_run"],
                reference_run=data["reference_run"],
                policy=BaselinePolicy(data["policy"]),
                plan_digest=data["plan_digest"],
                model_sha256=data["model_sha256"],
                samples_sha256=data["samples_sha256"],
                frozen_at=datetime.fromisoformat(data["frozen_at"]),
                table=tuple(Row.from_dict(row) for row in data["table"]),
                stacks=tuple(data["stacks"]),
                as_found=None if found is None else Row.from_dict(found),
                truth_sha256=str(data.get("truth_sha256", "")),
            )
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise EvidenceError(f"{BASELINE}: not a document of {SCHEMA} ({error!r})") from error


def freeze(
    sweep: Sweep, *, frozen_at: datetime, policy: BaselinePolicy = BaselinePolicy.FIXED
) -> Baseline:
    """Freeze the best of a sweep. Raises SweepError when no configuration is fit."""
    if frozen_at.tzinfo is None:
        raise ValueError("frozen_at: got a time without a zone, wanted an aware one")
    best = sweep.best
    value = best.samples_per_second
    if value is None or best.accuracy is None or best.accuracy_run is None:
        raise SweepError("the best configuration has no figure; see the sweep table")
    table = tuple(_row(cell) for cell in sweep.cells)
    found = [row for row in table if row.sut == sweep.as_found]
    return Baseline(
        stack=best.sut.stack,
        version=best.finals[0].stack_version,
        digest=best.finals[0].stack_digest,
        sut=best.sut,
        samples_per_second=value,
        runs=tuple(result.run_id for result in best.finals),
        accuracy=best.accuracy,
        accuracy_run=best.accuracy_run,
        reference_run=sweep.reference_run,
        policy=policy,
        plan_digest=sweep.plan_digest,
        model_sha256=sweep.model_sha256,
        samples_sha256=sweep.samples_sha256,
        frozen_at=frozen_at.astimezone(UTC).replace(microsecond=0),
        table=table,
        stacks=tuple(info.to_dict() for info in sweep.stacks),
        as_found=found[0] if found else None,
        truth_sha256=sweep.truth_sha256,
    )


def save(baseline: Baseline, folder: Path) -> Path:
    """Write ``baseline.json``; refuses to replace another one, since a frozen baseline is final."""
    path, data = folder / BASELINE, json_bytes(baseline.to_dict())
    if path.exists() and path.read_bytes() != data:
        raise SweepError(f"{path} holds another frozen baseline; measure in a new folder")
    write_atomic(path, data)
    return path


def load(folder: Path) -> Baseline:
    """Read ``baseline.json`` as it stands; ``metering.evidence`` is what checks it."""
    try:
        data = json.loads((folder / BASELINE).read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{folder.name}/{BASELINE}: cannot be read ({error})") from error
    return Baseline.from_dict(data)


def _row(cell: Cell) -> Row:
    worst = next((r.state for r in (cell.screening, *cell.finals) if not r.valid), "VALID")
    return Row(
        sut=cell.sut,
        state=worst,
        samples_per_second=cell.samples_per_second,
        screening_run=cell.screening.run_id,
        final_runs=tuple(result.run_id for result in cell.finals),
        accuracy_run=cell.accuracy_run,
        accuracy=cell.accuracy,
    )
