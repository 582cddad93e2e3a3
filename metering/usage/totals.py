"""Totals of one period, and every line that a person has to see.

In: JSON of stored totals, or what `aggregate` found.
Out: `UsageTotals`: volume per model and system, a count for every fate, incidents.
Never here: a rule that decides a fate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metering.fields import Fields
from metering.plan import Period
from metering.refusal import Refusal

__all__ = ["FATES", "UsageIncident", "UsageTotals", "Volume"]

FATES = (
    "accepted", "duplicate", "conflict", "early", "late", "later", "future", "negative",
    "unmatched", "malformed",
)  # fmt: skip


@dataclass(frozen=True)
class Volume:
    """Accepted samples of one model on one system."""

    model: str
    system: str
    samples: int
    events: int

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "model": self.model,
            "system": self.system,
            "samples": self.samples,
            "events": self.events,
        }


@dataclass(frozen=True)
class UsageIncident:
    """One line that did not count, with what to do about it."""

    line: int
    fate: str
    source: str
    id: str
    samples: int | None
    reason: str

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "line": self.line,
            "fate": self.fate,
            "source": self.source,
            "id": self.id,
            "samples": self.samples,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class UsageTotals:
    """What a period's usage adds up to. `rows` = sum of `counts`.

    `arrived_after_end` of the accepted events came in after the period ended but before the
    cutoff: they count. `input_sha256` is the input as it came; `content_sha256` is the SHA-256 of
    the accepted events' content digests (32 bytes each) in ascending order, so it is the same in
    whatever order or repetition they came.
    """

    period: Period
    rows: int
    counts: Mapping[str, int]
    arrived_after_end: int
    volumes: tuple[Volume, ...]
    samples: int
    incidents: tuple[UsageIncident, ...]
    input_sha256: str
    content_sha256: str

    def count(self, fate: str) -> int:
        """Lines with that fate."""
        if fate not in FATES:
            raise Refusal("fate", repr(fate), "one of " + ", ".join(FATES))
        return self.counts.get(fate, 0)

    @property
    def accepted(self) -> int:
        """Events that count."""
        return self.count("accepted")

    @property
    def duplicates(self) -> int:
        """Repetitions of an event that counts already."""
        return self.count("duplicate")

    @property
    def conflicts(self) -> int:
        """Events whose key came with other content."""
        return self.count("conflict")

    @property
    def late(self) -> int:
        """Events for a correction."""
        return self.count("late")

    @property
    def early(self) -> int:
        """Events from before the contract."""
        return self.count("early")

    @property
    def rejected(self) -> int:
        """Lines that are no events, negative, from the future or of nothing registered."""
        return sum(self.count(fate) for fate in ("malformed", "negative", "future", "unmatched"))

    def volume(self, model: str, system: str) -> int:
        """Accepted samples of one model on one system; zero when there are none."""
        return sum(v.samples for v in self.volumes if (v.model, v.system) == (model, system))

    def to_json(self) -> dict[str, object]:
        """JSON object: totals with row count, sum and digests."""
        return {
            "schema": "ignition.usage-totals.v1",
            "period": self.period.to_json(),
            "rows": self.rows,
            "counts": {fate: self.count(fate) for fate in FATES},
            "arrived_after_end": self.arrived_after_end,
            "volumes": [volume.to_json() for volume in self.volumes],
            "samples": self.samples,
            "incidents": [incident.to_json() for incident in self.incidents],
            "input_sha256": self.input_sha256,
            "content_sha256": self.content_sha256,
        }

    @classmethod
    def from_json(cls, value: object) -> UsageTotals:
        """Inverse of `to_json`; refuses totals that contradict themselves."""
        fields = Fields(value, "usage")
        fields.text("schema", ["ignition.usage-totals.v1"])
        counts = Fields(fields.any("counts"), "usage.counts")
        totals = cls(
            period=Period.from_json(fields.any("period")),
            rows=fields.integer("rows"),
            counts={fate: counts.integer(fate) for fate in FATES},
            arrived_after_end=fields.integer("arrived_after_end"),
            volumes=tuple(_volume(item) for item in fields.items("volumes")),
            samples=fields.integer("samples"),
            incidents=tuple(_incident(item) for item in fields.items("incidents")),
            input_sha256=fields.text("input_sha256"),
            content_sha256=fields.text("content_sha256"),
        )
        counts.finish()
        fields.finish()
        if totals.rows != sum(totals.counts.values()):
            raise Refusal("usage.rows", totals.rows, f"{sum(totals.counts.values())}")
        if totals.samples != sum(volume.samples for volume in totals.volumes):
            raise Refusal("usage.samples", totals.samples, "the sum of the volumes")
        return totals


def _volume(value: object) -> Volume:
    fields = Fields(value, "usage.volume")
    volume = Volume(
        fields.text("model"), fields.text("system"), fields.integer("samples"),
        fields.integer("events"),
    )  # fmt: skip
    fields.finish()
    return volume


def _incident(value: object) -> UsageIncident:
    fields = Fields(value, "usage.incident")
    incident = UsageIncident(
        line=fields.integer("line"),
        fate=fields.text("fate", FATES),
        source=str(fields.any("source")),
        id=str(fields.any("id")),
        samples=fields.integer("samples") if fields.has("samples") else None,
        reason=fields.text("reason"),
    )
    fields.finish()
    return incident
