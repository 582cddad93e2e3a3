"""Cases: a contract, the facts of its periods and what happened to its documents, in one file.

Nouns: `Case` (contract versions, facts, steps), facts (`UnitCost`, `Usage`, `Stated` savings,
`Gate`), `Step` (bill, dispute, resolve, credit, audit), `Answer` (every amount that follows).
Invariants: a case computes through the very functions that bill: `fee`, `release_or_credit`,
`build_invoice`, `credit_note`, `dispute`; the same case gives the same bytes; the order of its
facts never matters, the order of its steps does; nothing in a case is ignored.
Never here: a formula of its own, a clock, a number that an issued document could be taken for.
The file format is `fee_case.schema.json` beside this module; docs/contracts.md explains it.
"""

from metering.cases.answer import Answer
from metering.cases.case import CASE_SCHEMA, Case, schema_text
from metering.cases.facts import Gate, Stated, UnitCost, Usage
from metering.cases.play import play
from metering.cases.sandbox import Moved, WhatIf, what_if
from metering.cases.steps import Step

__all__ = [
    "CASE_SCHEMA",
    "Answer",
    "Case",
    "Gate",
    "Moved",
    "Stated",
    "Step",
    "UnitCost",
    "Usage",
    "WhatIf",
    "play",
    "schema_text",
    "what_if",
]
