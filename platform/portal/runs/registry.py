"""The registry of a contract version's baselines: what is entered, what counts, what is due.

In: signed lines that the pipeline made from evidence, the contract's policy, a time. Out: one
issued row a line, the state a page shows, and marks for baselines that have to be measured again.
The engine (`metering.baseline.registry`, `schedule`) works out every figure and reason; it is
loaded where it is needed, since most pages need none of it. Never here: a change of an entry, or of
anything that was billed on one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from portal.accounts.access import Actor, Platform
from portal.contracts.models import ContractVersion
from portal.events.services import event_record
from portal.keystore import platform_keys
from portal.runs.models import BaselineDue, BaselineEntry
from portal.runs.services import RunsError
from portal.workspace import relative

if TYPE_CHECKING:
    from metering.baseline.registry import Effective, Entry
    from metering.baseline.schedule import Due
    from metering.contract import BaselinePolicy


@transaction.atomic
def entry_store(
    *, actor: Actor, contract_version: ContractVersion, line: bytes, evidence: Path
) -> BaselineEntry:
    """Store the next line of a registry; the row of a baseline that is there is returned again.

    EvidenceError unless the platform signed it and it follows the last one.
    """
    from metering.baseline import registry
    from metering.loadgen.files import sha256_bytes

    if not isinstance(actor, Platform):
        raise RunsError("baseline.register: only the platform's own jobs store results")
    # Two workers never make the same next line.
    ContractVersion.objects.select_for_update(no_key=True).get(pk=contract_version.pk)
    rows: list[BaselineEntry] = list(
        BaselineEntry.objects.filter(contract_version=contract_version).order_by("number")
    )
    lines = [row.line.encode() for row in rows]
    public = platform_keys().statement.public_key()
    named = line.decode("ascii")
    for row in rows:
        if row.line == named:
            return row
    entry = registry.read([*lines, line], public)[-1]
    stored = BaselineEntry(
        organisation=contract_version.organisation,
        contract_version=contract_version,
        number=entry.number,
        line=named,
        line_sha256=sha256_bytes(line),
        baseline_sha256=entry.baseline_sha256,
        stack=entry.stack,
        stack_version=entry.version,
        samples_per_second=entry.samples_per_second,
        evidence_path=relative(evidence),
        frozen_at=entry.frozen_at,
    )
    stored.save(force_insert=True)
    event_record(
        action="baseline.register",
        actor=actor,
        subject=stored,
        organisation=stored.organisation,
        data={
            "number": stored.number,
            "line_sha256": stored.line_sha256,
            "baseline_sha256": stored.baseline_sha256,
            "samples_per_second": str(stored.samples_per_second),
        },
    )
    return stored


def due_mark(*, now: datetime) -> list[BaselineDue]:
    """Mark the newest entry of every registry that is due at `now` and not marked yet."""
    newest: dict[object, BaselineEntry] = {}
    rows = BaselineEntry.objects.select_related("organisation").order_by("number")
    for row in rows:
        newest[row.contract_version_id] = row
    marked = set(BaselineDue.objects.values_list("entry_id", flat=True))
    waiting = [row for row in newest.values() if row.pk not in marked]
    return [mark for row in waiting if (mark := _marked(row, now)) is not None]


@transaction.atomic
def _marked(row: BaselineEntry, now: datetime) -> BaselineDue | None:
    found = due_of([row], now)
    if not found.reasons or BaselineDue.objects.filter(entry=row).exists():
        return None
    mark = BaselineDue(
        organisation=row.organisation, entry=row, by=found.by, reasons=list(found.reasons)
    )
    mark.save(force_insert=True)
    event_record(
        action="baseline.due",
        actor=Platform(row.organisation),
        subject=mark,
        organisation=row.organisation,
        data={"entry": str(row.pk), "reasons": mark.reasons},
    )
    return mark


def due_of(rows: Sequence[BaselineEntry], now: datetime) -> "Due":
    """When the last of `rows` is measured again, and every reason why it is due at `now`."""
    from metering import stacks
    from metering.baseline.schedule import due

    return due(
        entries_of(rows[-1:], checked=False)[0],
        every_days=settings.BASELINE_EVERY_DAYS,
        now=now,
        installed=stacks.discover_stock(),
    )


def entries_of(rows: Sequence[BaselineEntry], *, checked: bool = True) -> tuple["Entry", ...]:
    """The engine's entries of stored lines.

    EvidenceError where chain or signatures do not hold, unless `checked` is False.
    """
    from metering import canonical
    from metering.baseline.registry import Entry, read

    lines = [row.line.encode() for row in rows]
    if checked:
        return read(lines, platform_keys().statement.public_key())
    found = [canonical.loads(line) for line in lines]
    return tuple(Entry.from_json(value["entry"]) for value in found if isinstance(value, dict))


@dataclass(frozen=True)
class Standing:
    """What a policy makes of the entries at a time. `number` is that of the entry in force."""

    policy: str
    number: int
    counts_from: datetime
    reason: str
    effective: tuple["Effective", ...]


WHY = {
    "fixed": "The policy is fixed: the first entry stays in force, whatever is measured later.",
    "reset": "The policy is reset: a re-measured baseline is in force from the day it is frozen.",
    "ratchet": "The policy is ratchet: the cost of the baseline never rises, so a re-measurement "
    "counts where it is cheaper than all before it.",
    "glide": "The policy is glide: each re-measurement moves the cost by the agreed part of the "
    "way.",
}


def standing(entries: Sequence["Entry"], policy: "BaselinePolicy", moment: datetime) -> Standing:
    """Which entry is in force at `moment`, and why. Refusal for a time before the first."""
    from metering.baseline.registry import counting_at, effective

    # The contract's policy names no dates of its own: each entry counts from its own.
    resets = [entry.frozen_at for entry in entries[1:]] or [entries[0].frozen_at]
    found = effective(entries, policy, resets if policy.kind == "reset" else ())
    now = counting_at(found, moment)
    return Standing(policy.kind, now.entry.number, now.counts_from, WHY[policy.kind], found)


def differences(
    rows: Sequence[BaselineEntry], others: Sequence[BaselineEntry]
) -> list[tuple[BaselineEntry, tuple[str, ...]]]:
    """Other registries' first entries, each with every field in which it is not comparable."""
    if not rows:
        return []
    key = entries_of(rows[:1], checked=False)[0].key
    return [(other, key.differences(entries_of([other], checked=False)[0].key)) for other in others]
