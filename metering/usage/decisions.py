"""Decisions: which content counts under a key that came with several.

In: what a person decided about one (source, id), as JSON of the evidence.
Out: `Decision`, and the decisions of a period by key.
Never here: a decision made by a rule; one that counts for a content nobody looked at.

A decision names every content it was made between. Another content under its key, come later,
was not looked at: the key is contested again, and counts for nobody until it is decided anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from metering.fields import Fields, instant_text
from metering.refusal import Refusal

__all__ = ["Decision", "Decisions", "decisions_document", "read_decisions"]

SCHEMA = "ignition.usage-decisions.v1"
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Decision:
    """Under (source, id) the content `content` counts, once; `contents` are all that were there.

    Digests are `UsageEvent.content`. `decided_by` names the person and the role they acted in.
    """

    source: str
    id: str
    content: str
    contents: tuple[str, ...]
    decided_by: str
    decided_at: datetime
    reason: str

    def __post_init__(self) -> None:
        for digest in (self.content, *self.contents):
            if not _DIGEST.fullmatch(digest):
                raise Refusal("decision.contents", repr(digest), "a SHA-256 in lower case hex")
        if list(self.contents) != sorted(set(self.contents)) or len(self.contents) < 2:
            raise Refusal(
                "decision.contents", f"{len(self.contents)} digests", "two or more, ascending"
            )
        if self.content not in self.contents:
            raise Refusal("decision.content", self.content, "one of decision.contents")
        if not self.reason.strip():
            raise Refusal("decision.reason", repr(self.reason), "a reason", "say why")

    @property
    def key(self) -> tuple[str, str]:
        """(source, id)."""
        return (self.source, self.id)

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "source": self.source,
            "id": self.id,
            "content": self.content,
            "contents": list(self.contents),
            "decided_by": self.decided_by,
            "decided_at": instant_text(self.decided_at),
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, value: object) -> Decision:
        """Inverse of `to_json`."""
        fields = Fields(value, "decision")
        decision = cls(
            source=fields.text("source"),
            id=fields.text("id"),
            content=fields.text("content"),
            contents=fields.texts("contents"),
            decided_by=fields.text("decided_by"),
            decided_at=fields.instant("decided_at"),
            reason=fields.text("reason"),
        )
        fields.finish()
        return decision


Decisions = Mapping[tuple[str, str], Decision]


def decisions_document(decisions: Iterable[Decision]) -> dict[str, object]:
    """JSON object of a period's decisions, in the order of their keys."""
    ordered = sorted(decisions, key=lambda decision: decision.key)
    return {"schema": SCHEMA, "decisions": [decision.to_json() for decision in ordered]}


def read_decisions(value: object) -> Decisions:
    """Inverse of `decisions_document`, by key; refuses a key that is decided twice."""
    fields = Fields(value, "decisions")
    fields.text("schema", [SCHEMA])
    found: dict[tuple[str, str], Decision] = {}
    for item in fields.items("decisions"):
        decision = Decision.from_json(item)
        if decision.key in found:
            raise Refusal("decisions", f"{decision.key} twice", "one decision a key")
        found[decision.key] = decision
    fields.finish()
    return found
