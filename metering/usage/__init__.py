"""Usage: CloudEvents in, volumes per model and system out, every line accounted for.

Nouns: `UsageEvent` (one accepted line), `EventBatch` (a file read, as columns), `UsageTotals` (a
period), fates (what happened to each line).
Invariants: rows = sum of all fates; (source, id) counts once for ever; the same key with other
content counts for nobody until a person decides which one does; the order and the repetition of
lines never change a volume; a period is half-open in the contract's zone; nothing is dropped
silently.
Never here: a clock (receive times come with the events), a guess at a missing field, a clamp.
"""

from metering.usage.aggregate import CLOCK_TOLERANCE, aggregate, metered
from metering.usage.batch import EventBatch, read_events
from metering.usage.coverage import Coverage
from metering.usage.decisions import Decision, Decisions, decisions_document, read_decisions
from metering.usage.events import EVENT_TYPE, Refused, UsageEvent
from metering.usage.generate import TrafficShare, generate_month
from metering.usage.table import read_csv
from metering.usage.totals import UsageIncident, UsageTotals, Volume

__all__ = [
    "CLOCK_TOLERANCE",
    "EVENT_TYPE",
    "Coverage",
    "Decision",
    "Decisions",
    "EventBatch",
    "Refused",
    "TrafficShare",
    "UsageEvent",
    "UsageIncident",
    "UsageTotals",
    "Volume",
    "aggregate",
    "decisions_document",
    "generate_month",
    "metered",
    "read_csv",
    "read_decisions",
    "read_events",
]
