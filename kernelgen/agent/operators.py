"""The searches over a model's operators, the costliest first, each with its part of the budget.

In: a bench and a time share per operator, a deadline, the options. Out: what every search found.
Never here: the model; races between whole models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernelgen.agent.bench import Bench
from kernelgen.agent.knowledge import Knowledge
from kernelgen.agent.ledger import Ledger
from kernelgen.agent.llm import Line
from kernelgen.agent.options import Options
from kernelgen.agent.proposals import Proposal
from kernelgen.agent.records import Records, Trial
from kernelgen.agent.results import EventKind
from kernelgen.agent.search import Found, search, transferred
from kernelgen.agent.team import assemble, known_best, limits
from kernelgen.machine import Machine
from kernelgen.schedule import Schedule, SearchSpace, space

WORTH_SEARCHING = 0.02
"""An operator below this part of the model's time keeps its default: no gain there could be seen.
"""

Say = Callable[[EventKind, str | None, str, float | None], None]


class TuneError(RuntimeError):
    """The model cannot be tuned here; names what failed and what to do."""


@dataclass
class Searches:
    """Runs the searches one after the other; `trials` counts over all of them."""

    machine: Machine
    seed: int
    records: Records
    ledger: Ledger
    options: Options
    knowledge: Knowledge
    line: Line | None
    say: Say
    lost: Collection[str] = ()
    """Stock choices that lost inside the whole model: no operator begins with one of them."""
    trials: int = 0
    interrupted: bool = False
    found: dict[str, Found] = field(default_factory=dict)

    def run(
        self, benches: Mapping[str, Bench], shares: Mapping[str, float], end: float
    ) -> dict[str, Found]:
        """Search every operator worth it until `end` (monotonic seconds)."""
        queue = [name for name, share in shares.items() if share >= WORTH_SEARCHING]
        for place, name in enumerate(queue):
            left = end - time.monotonic()
            # The first operator is always looked at, however slow the shares were to come.
            if self.interrupted or (place and (left <= 0 or self._spent())):
                break
            part = shares[name] / sum(shares[other] for other in queue[place:])
            self.say("operator", name, f"{shares[name]:.1%} of the model's time", None)
            self._one(name, benches[name], left * part, shares[name])
        return self.found

    def _one(self, name: str, bench: Bench, budget_s: float, share: float) -> None:
        choices = space(bench.operator, self.machine)
        team = assemble(
            choices,
            bench.operator,
            bench.points,
            self.machine,
            knowledge=self.knowledge,
            line=self.line,
            book=bench.book_tokens,
            kernels=False,
        )
        result = search(
            choices,
            bench,
            np.random.default_rng([self.seed, *name.encode()]),
            budget_s=budget_s,
            starts={
                **self._starts(choices),
                **{name: one for name, one in team.starts.items() if name not in self.lost},
            },
            proposers=team.proposers,
            limits=limits(
                self.options,
                share=share,
                price_per_minute=self.ledger.price_per_core_hour / 60,
                trials_done=self.trials,
                spent=self.ledger.cost,
            ),
            stopwatch=time.monotonic,
            on_trial=self._heard,
        )
        self.found[name] = result
        self.interrupted = result.interrupted
        if self.interrupted:
            self.say("interrupted", name, "keeping the best so far", None)
        if result.schedule is None and not self.interrupted:
            refused = result.trials[0]
            raise TuneError(f"{name}: no correct kernel; {refused.reason}: {refused.detail}")

    def _starts(self, choices: SearchSpace) -> dict[str, Proposal]:
        starts: dict[str, Proposal] = {}
        known = known_best(self.records, choices.operator)
        if isinstance(known, Schedule):
            starts["records"] = known
        for name, result in self.found.items():
            if result.schedule is not None and result.schedule != result.default:
                moved = transferred(choices, result.schedule)
                if moved is not None:
                    starts[f"transfer from {name}"] = moved
        return starts

    def _spent(self) -> bool:
        options = self.options
        trials = options.trials is not None and self.trials >= options.trials
        return trials or (options.money is not None and self.ledger.cost >= options.money)

    def _heard(self, trial: Trial) -> None:
        self.trials += 1
        won = trial.accepted and trial.ratio is not None
        kind: EventKind = "kept" if won else "resumed" if trial.seconds == 0.0 else "trial"
        text = f"{trial.reason} {trial.schedule.partition(': ')[2]}"
        self.say(kind, trial.operator, text, trial.ratio)
