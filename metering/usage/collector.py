"""Collector: what a counter showed last and what was not delivered yet, in one file.

In: a path, what a scrape added. Out: the file, replaced as a whole.
Never here: the network, a clock.

Marks and events are written together before anything is sent. A process that ends before that has
counted nothing, one that ends after it sends the same ids again: the portal counts an id once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from metering import canonical
from metering.fields import Fields
from metering.refusal import Refusal
from metering.usage.prometheus import CounterState, Scraped

__all__ = ["Collected"]


@dataclass(frozen=True)
class Collected:
    """The marks of one target, and its events that the portal has not answered for."""

    state: CounterState
    pending: tuple[Mapping[str, object], ...] = ()

    @classmethod
    def load(cls, path: Path, source: str) -> Collected:
        """What `path` holds; an empty state where there is no file. Refuses another source's."""
        if not path.exists():
            return cls(CounterState(source, {}))
        fields = Fields(canonical.loads(path.read_bytes()), "collected")
        fields.text("schema", ["ignition.collected.v1"])
        state = CounterState.from_json(fields.any("state"))
        pending = cast("list[Mapping[str, object]]", fields.items("pending"))
        fields.finish()
        if state.source != source:
            raise Refusal("source", source, state.source, "one state file for each source")
        return cls(state, tuple(pending))

    def save(self, path: Path) -> None:
        """Replace the file; after a loss of power it is the old one or the new one, whole."""
        content: dict[str, object] = {
            "schema": "ignition.collected.v1",
            "state": self.state.to_json(),
            "pending": list(self.pending),
        }
        beside = path.with_name(path.name + ".new")
        with beside.open("wb") as stream:
            stream.write(canonical.dumps(content))
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def add(self, scraped: Scraped) -> Collected:
        """With the events of one scrape, and its state."""
        return Collected(scraped.state, (*self.pending, *scraped.events))

    def delivered(self, count: int) -> Collected:
        """Without the first `count` events."""
        return replace(self, pending=self.pending[count:])
