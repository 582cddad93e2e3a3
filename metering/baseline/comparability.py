"""What two measurements must share before one may be set against the other.

In: the documents of an evidence folder. Out: a key of named fields, and for two keys every field in
which they differ, with both values. Figures under different keys are not comparable, whatever they
say. Which stacks competed is no part of the key: a newer stack is why one measures again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering.loadgen.verify import EvidenceError
from metering.plan import CosineFloor, MeasurementPlan
from metering.plan.accuracy_floor import floor_json
from metering.plan.scenario_bounds import bounds_json

SYSTEM, MIX, PLAN = "system.json", "mix.json", "plan.json"


class NotComparable(ValueError):
    """Two measurements that may not be compared; the message names each field and both values."""


@dataclass(frozen=True)
class ComparabilityKey:
    """System revision, mix, scenario, precision and settings, as text by field name."""

    fields: Mapping[str, str]

    def differences(self, other: ComparabilityKey) -> tuple[str, ...]:
        """One sentence for each field that differs; empty when the two are comparable."""
        names = sorted({*self.fields, *other.fields})
        return tuple(
            f"{name}: got {other.fields.get(name, 'nothing')}, "
            f"wanted {self.fields.get(name, 'nothing')}"
            for name in names
            if self.fields.get(name) != other.fields.get(name)
        )

    def require(self, other: ComparabilityKey) -> None:
        """Raises NotComparable unless ``other`` is the same key."""
        found = self.differences(other)
        if found:
            raise NotComparable("not comparable: " + "; ".join(found))


def key_of(evidence: Path) -> ComparabilityKey:
    """The key of an evidence folder, from its plan, system and mix. Raises EvidenceError."""
    try:
        plan = MeasurementPlan.from_json(_document(evidence / PLAN))
    except ValueError as error:
        raise EvidenceError(f"{PLAN}: {error}") from error
    system, mix = _document(evidence / SYSTEM), _document(evidence / MIX)
    try:
        fields = {
            "system.name": str(system["name"]),
            "system.revision": str(system["revision"]),
            "system.fingerprint": str(system["machine"]["fingerprint"]),
            "mix.model_sha256": str(mix["model_sha256"]),
            "mix.samples_sha256": str(mix["samples_sha256"]),
            "mix.unit": str(mix["unit"]),
        }
    except (KeyError, TypeError) as error:
        raise EvidenceError(f"{SYSTEM} or {MIX}: not as registered ({error!r})") from error
    seeds = plan.seeds
    return ComparabilityKey(
        {
            **fields,
            "scenario": plan.scenario,
            "precision": plan.precision,
            "settings.method_version": plan.method_version,
            "settings.cores": ",".join(map(str, plan.cores)),
            "settings.run_seconds": str(plan.run_seconds),
            **_floor(plan),
            "settings.seeds": f"{seeds.qsl},{seeds.sample_index},{seeds.schedule}",
        }
    )


def _floor(plan: MeasurementPlan) -> dict[str, str]:
    """The fields that signed registry lines have had since the first plan, or those of its task."""
    floor = plan.accuracy_floor
    if isinstance(floor, CosineFloor):
        found = {"settings.accuracy_floor_cosine": str(floor.cosine.normalize())}
    else:
        terms = ", ".join(f"{name} {value}" for name, value in floor_json(floor).items())
        found = {"task": plan.task, "settings.accuracy_floor": terms}
    bounds = bounds_json(plan.bounds) or {}
    return found | {f"settings.{name}": str(value) for name, value in bounds.items()}


def _document(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path.name}: cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise EvidenceError(f"{path.name}: wanted a JSON object")
    return value
