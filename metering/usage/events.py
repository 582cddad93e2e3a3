"""Usage events: what one CloudEvents 1.0 event in structured JSON means.

In: the bytes of one event.
Out: one `UsageEvent`, or a refusal that names the field.
Never here: a second event (repetition needs the whole batch, see `aggregate`), speed (see
`shapes`), repair of a bad field.

    {"specversion": "1.0", "type": "ignition.usage.v1", "source": "gateway-1", "id": "01J...",
     "time": "2026-11-03T08:00:00Z", "receivedtime": "2026-11-03T08:00:02Z",
     "datacontenttype": "application/json",
     "data": {"model": "text-encoder", "system": "cpu-2c", "samples": 1200}}

`time` is when the work happened; `receivedtime` (extension, stamped by the receiver) is when it
arrived and is not part of the content. Other attributes are kept in the content hash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from metering import canonical
from metering.fields import Fields, instant_text
from metering.refusal import Refusal

__all__ = [
    "EVENT_TYPE",
    "MAX_LINE_BYTES",
    "MAX_NAME",
    "NegativeVolume",
    "Refused",
    "UsageEvent",
    "read_event",
]

EVENT_TYPE = "ignition.usage.v1"
MAX_LINE_BYTES = 64 * 1024
MAX_NAME = 200
_MAX_SAMPLES = 2**53 - 1
# What no database column, log line or label can hold.
_UNNAMEABLE = re.compile("[\x00-\x1f\ud800-\udfff]")
# Every time of these years can be moved into every zone.
_YEARS = range(1970, 2200)


@dataclass(frozen=True)
class UsageEvent:
    """One countable event. `content` is the SHA-256 of its canonical content."""

    source: str
    id: str
    occurred_at: datetime
    received_at: datetime | None
    model: str
    system: str
    samples: int
    content: str
    line: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """(source, id): unique for ever."""
        return (self.source, self.id)

    def to_cloudevent(self) -> dict[str, object]:
        """The event as structured CloudEvents JSON, without attributes this room does not use."""
        event: dict[str, object] = {
            "specversion": "1.0",
            "type": EVENT_TYPE,
            "source": self.source,
            "id": self.id,
            "time": instant_text(self.occurred_at),
            "datacontenttype": "application/json",
            "data": {"model": self.model, "system": self.system, "samples": self.samples},
        }
        if self.received_at is not None:
            event["receivedtime"] = instant_text(self.received_at)
        return event


@dataclass(frozen=True)
class Refused:
    """A line that is not a countable event. `fate` is malformed or negative."""

    line: int
    fate: str
    reason: str
    key: tuple[str, str] | None = None


class NegativeVolume(Exception):
    """A volume below zero: an incident of its own, never clamped to zero."""

    def __init__(self, key: tuple[str, str], samples: int) -> None:
        self.key = key
        super().__init__(
            f"data.samples: got {samples}; wanted zero or more; reverse an event by a correction"
        )


def read_event(data: bytes, line: int = 0) -> UsageEvent:
    """The event in `data`; Refusal when it is none, NegativeVolume when it takes volume away."""
    if len(data) > MAX_LINE_BYTES:
        raise Refusal("line", f"{len(data)} bytes", f"at most {MAX_LINE_BYTES} bytes")
    value = canonical.loads(data)
    fields = Fields(value, "event")
    fields.text("specversion", ["1.0"])
    fields.text("type", [EVENT_TYPE])
    if fields.has("datacontenttype"):
        fields.text("datacontenttype", ["application/json"])
    source, identifier = _name(fields, "source"), _name(fields, "id")
    occurred = _instant(fields, "time")
    received = _instant(fields, "receivedtime") if fields.has("receivedtime") else None
    payload = Fields(fields.any("data"), "data")
    samples = payload.integer("samples")
    model, system = _name(payload, "model"), _name(payload, "system")
    payload.finish()
    if samples < 0:
        raise NegativeVolume((source, identifier), samples)
    if samples > _MAX_SAMPLES:
        raise Refusal("data.samples", samples, f"at most {_MAX_SAMPLES}")
    content = dict(cast("dict[str, object]", value))
    content.pop("receivedtime", None)
    content["time"] = instant_text(occurred)
    return UsageEvent(
        source=source,
        id=identifier,
        occurred_at=occurred,
        received_at=received,
        model=model,
        system=system,
        samples=samples,
        content=canonical.digest(content),
        line=line,
    )


def _instant(fields: Fields, name: str) -> datetime:
    instant = fields.instant(name)
    if instant.year not in _YEARS:
        raise Refusal(f"event.{name}", instant_text(instant), "a year from 1970 to 2199")
    return instant


def _name(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if len(text) > MAX_NAME or _UNNAMEABLE.search(text):
        raise Refusal(
            f"{fields.where}.{name}", repr(text), f"at most {MAX_NAME} characters, none of control"
        )
    return text
