"""The dispute sandbox: change an assumption, see every amount that moves. Nothing is written.

In: a case, and changed values by their place in it ("contracts.0.tiers.0.rate").
Out: the amounts before and after, and the difference, document by document.
Never here: an issued document. It is read, compared with, and stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from metering.canonical import dumps, loads
from metering.cases.answer import Answer
from metering.cases.case import Case
from metering.cases.play import play
from metering.decimals import exact, to_text
from metering.ledger import Invoice
from metering.refusal import Refusal

__all__ = ["Moved", "WhatIf", "what_if"]

AMOUNTS = ("fee", "holdback", "net", "tax", "payable")


@dataclass(frozen=True)
class Moved:
    """One amount of one document, before and after; a document only one side has counts as 0."""

    document: str
    amount: str
    before: Decimal
    after: Decimal

    @property
    def difference(self) -> Decimal:
        """What the change adds."""
        with exact():
            return self.after - self.before

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "document": self.document,
            "amount": self.amount,
            "before": to_text(self.before),
            "after": to_text(self.after),
            "difference": to_text(self.difference),
        }


@dataclass(frozen=True)
class WhatIf:
    """The answers before and after, and every amount that moved. `digests` prove the documents
    before are those of the unchanged case."""

    changes: Mapping[str, object]
    before: Answer
    after: Answer
    moved: tuple[Moved, ...]

    def to_json(self) -> dict[str, object]:
        """JSON object: the changes, what moved, and the document digests of both sides."""
        return {
            "schema": "ignition.what-if.v1",
            "changes": dict(self.changes),
            "moved": [row.to_json() for row in self.moved],
            "documents_before": {row.number: row.digest for row in self.before.documents},
            "documents_after": {row.number: row.digest for row in self.after.documents},
        }


def what_if(case: object, changes: Mapping[str, object]) -> WhatIf:
    """Play a case as it is and with `changes`. `case` is its JSON value, which is left alone."""
    if not changes:
        raise Refusal("changes", "none", "at least one changed assumption")
    changed = loads(dumps(copy.deepcopy(case)))
    for path, value in changes.items():
        _put(changed, path, value)
    before, after = play(Case.from_json(case)), play(Case.from_json(changed))
    return WhatIf(dict(changes), before, after, tuple(_moved(before, after)))


def _put(target: object, path: str, value: object) -> None:
    """Set a value that is there already: an assumption of a case is changed, never invented."""
    place = target
    steps = path.split(".")
    for depth, step in enumerate(steps):
        last = depth == len(steps) - 1
        if isinstance(place, list) and step.isdigit() and int(step) < len(place):
            if last:
                place[int(step)] = value
            place = place[int(step)]
        elif isinstance(place, dict) and step in place:
            if last:
                place[step] = value
            place = place[step]
        else:
            raise Refusal("changes", path, "a place that the case has")


def _moved(before: Answer, after: Answer) -> list[Moved]:
    old = {document.number: document for document in before.documents}
    new = {document.number: document for document in after.documents}
    rows = []
    for number in sorted({*old, *new}):
        for name in AMOUNTS:
            row = Moved(
                number, name, _amount(old.get(number), name), _amount(new.get(number), name)
            )
            if row.difference:
                rows.append(row)
    return rows


def _amount(document: Invoice | None, name: str) -> Decimal:
    value: Decimal = getattr(document, name) if document is not None else Decimal(0)
    return value
