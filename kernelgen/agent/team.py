"""Who takes part in one operator's search: proposers, starts from earlier records, limits.

In: the operator with its sizes, the machine, what is known, the options. Out: a `Team` for
`kernelgen.agent.search`.
Never here: the search; a proposer's inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from kernelgen.agent.costmodel import operator_facts
from kernelgen.agent.knowledge import Knowledge, proposal
from kernelgen.agent.llm import BookTokens, LanguageModel, Line
from kernelgen.agent.options import Options
from kernelgen.agent.predict import Predict
from kernelgen.agent.proposals import Proposal
from kernelgen.agent.proposers import Proposer, standard
from kernelgen.agent.records import Records
from kernelgen.agent.search import Limits
from kernelgen.agent.worth import Worth
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.schedule import Schedule, SearchSpace


@dataclass(frozen=True)
class Team:
    """`starts` by where they come from; none of them counts before it is judged again."""

    proposers: tuple[Proposer, ...]
    starts: dict[str, Proposal]


def assemble(
    space: SearchSpace,
    operator: Operator,
    points: Sequence[Point],
    machine: Machine,
    *,
    knowledge: Knowledge,
    line: Line | None,
    book: BookTokens,
    kernels: bool,
) -> Team:
    """The proposers that need only the search, the learned model, and the language model if any."""
    more: list[Proposer] = [
        Predict(
            operator_facts(operator, points),
            knowledge.examples(space, operator, points, machine),
        )
    ]
    if line is not None:
        more.append(LanguageModel(line, operator, points, machine, book=book, kernels=kernels))
    starts: dict[str, Proposal] = dict(space.stock())
    starts |= knowledge.starts(space, operator, points, machine)
    if not kernels:
        starts = {origin: start for origin, start in starts.items() if space_holds(space, start)}
    return Team(standard(*more), starts)


def space_holds(space: SearchSpace, start: Proposal) -> bool:
    """Whether a start is a schedule of this space (and not a written kernel)."""
    return isinstance(start, Schedule) and space.legal(start) is None


def known_best(records: Records, operator: str) -> Proposal | None:
    """The winner of the last search with the same records, to be judged again."""
    best = records.best(operator)
    return None if best is None else proposal(operator, best.schedule, records)


def limits(
    options: Options,
    *,
    share: float,
    price_per_minute: Decimal,
    trials_done: int = 0,
    spent: Decimal = Decimal(0),
) -> Limits:
    """What is left of the options for the next operator."""
    worth = None
    if options.value is not None and price_per_minute > 0:
        worth = Worth(options.value, price_per_minute, share)
    return Limits(
        trials=None if options.trials is None else max(1, options.trials - trials_done),
        money=None if options.money is None else max(Decimal(0), options.money - spent),
        worth=worth,
    )
