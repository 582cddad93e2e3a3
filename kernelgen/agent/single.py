"""The search over one operator from start to end, and the same search again from its records.

In: an operator with its sizes, a machine, a folder, options. Out: `Found`; in the folder the best
kernel so far (`kernel.c`, replaced whenever a better one is accepted, so that even a kill keeps
it), `trials.jsonl`, `ledger.jsonl`, `answers.jsonl` and `search.json`, which says how to replay.
Never here: argument parsing, printing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np

from kernelgen.agent.bench import Bench
from kernelgen.agent.knowledge import Knowledge, landscapes
from kernelgen.agent.ledger import Ledger
from kernelgen.agent.llm import Line
from kernelgen.agent.options import Options
from kernelgen.agent.proposals import FAULT, Offer, Proposal, Unusable, Written
from kernelgen.agent.records import Records, Trial, read
from kernelgen.agent.replay import Recorded, runs
from kernelgen.agent.search import Evaluator, Found, search
from kernelgen.agent.team import assemble, known_best, limits
from kernelgen.agent.transcript import ANSWERS, Replayed, Transcript, read_exchanges
from kernelgen.emit import source
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine
from kernelgen.ops import from_spec
from kernelgen.ops.operator import Operator
from kernelgen.schedule import ScheduleError, space

KERNEL, TRIALS, LEDGER, SEARCH = "kernel.c", "trials.jsonl", "ledger.jsonl", "search.json"


class Single:
    """One operator's search. `run` makes it; `Single.replay` repeats a finished one."""

    def __init__(
        self,
        operator: Operator,
        points: Sequence[Point],
        machine: Machine,
        *,
        seed: int,
        budget_s: float,
        options: Options,
        price_per_core_hour: Decimal,
    ) -> None:
        self.operator = operator
        self.points = tuple(points)
        self.machine = machine
        self.seed = seed
        self.budget_s = budget_s
        self.options = options
        self.price_per_core_hour = price_per_core_hour

    def run(
        self,
        out: Path,
        *,
        core: int,
        currency: str,
        records: Path | None = None,
        on_trial: Callable[[Trial], None] | None = None,
    ) -> Found:
        """Search live and leave everything in `out`."""
        out.mkdir(parents=True, exist_ok=True)
        options = self.options
        ledger = Ledger(
            out / LEDGER,
            self.price_per_core_hour,
            currency,
            customer=options.customer,
            token_price=options.token_price,
        )
        work = out / "work"
        kept = Records(records or out / TRIALS)
        bench = Bench(
            self.operator,
            self.points,
            machine=self.machine,
            core=core,
            work=work,
            ledger=ledger,
            records=kept,
        )
        self._write_down(out, bench.run, records)
        line = None if options.llm is None else Transcript(out / ANSWERS, options.llm.ask)
        place = _Kept(out / KERNEL, bench, self.operator)
        try:
            found = self._search(
                place, kept, line, bench.book_tokens, on_trial, stopwatch=time.monotonic
            )
            place.settle(found.best)
            return found
        finally:
            place.close()
            shutil.rmtree(work, ignore_errors=True)

    def _search(
        self,
        evaluator: Evaluator,
        records: Records,
        line: Line | None,
        book: Callable[[str, int, int], None],
        on_trial: Callable[[Trial], None] | None,
        stopwatch: Callable[[], float],
    ) -> Found:
        choices = space(self.operator, self.machine)
        options = self.options
        team = assemble(
            choices,
            self.operator,
            self.points,
            self.machine,
            knowledge=Knowledge(landscapes(records.trials(), records)).joined(options.knowledge),
            line=line,
            book=book,
            kernels=True,
        )
        known = known_best(records, self.operator.name)
        starts: dict[str, Proposal] = {} if known is None else {"records": known}
        return search(
            choices,
            evaluator,
            np.random.default_rng(self.seed),
            budget_s=self.budget_s,
            starts={**starts, **team.starts},
            proposers=team.proposers,
            limits=limits(options, share=1.0, price_per_minute=self.price_per_core_hour / 60),
            stopwatch=stopwatch,
            on_trial=on_trial,
        )

    @classmethod
    def replay(cls, out: Path, on_trial: Callable[[Trial], None] | None = None) -> Found:
        """The last search in `out` again, from its files alone: no compiler, judge, server.

        Raises `ValueError` when the files do not hold a search.
        """
        path = out / SEARCH
        if not path.exists():
            raise ValueError(f"{path}: not there, wanted the folder of a finished search")
        facts = json.loads(path.read_text(encoding="ascii"))
        stated = facts["options"]
        records = Path(facts["records"]) if facts["records"] else out / TRIALS
        options = Options(
            trials=stated["trials"],
            money=_money(stated["money"]),
            value=_money(stated["value"]),
            knowledge=Path(stated["knowledge"]) if stated["knowledge"] else None,
        )
        single = cls(
            from_spec(facts["operator"]),
            [Point(dims, weight) for dims, weight in facts["points"]],
            Machine.from_dict(facts["machine"]),
            seed=facts["seed"],
            budget_s=facts["budget_s"],
            options=options,
            price_per_core_hour=Decimal(facts["price_per_core_hour"]),
        )
        before = Records(records, before=facts["run"])
        every = runs(read(records), single.operator.name)
        mine = [trial for run in every for trial in run if trial.run == facts["run"]]
        line = Replayed(read_exchanges(out / ANSWERS)) if facts["language_model"] else None
        return single._search(
            Recorded(mine), before, line, lambda *tokens: None, on_trial, stopwatch=lambda: 0.0
        )

    def _write_down(self, out: Path, run: str, records: Path | None) -> None:
        options = self.options
        facts = {
            "run": run,
            "operator": self.operator.spec(),
            "points": [[dict(point.dims), point.weight] for point in self.points],
            "machine": self.machine.to_dict(),
            "seed": self.seed,
            "budget_s": self.budget_s,
            "price_per_core_hour": str(self.price_per_core_hour),
            "records": None if records is None else str(records.resolve()),
            "language_model": None if options.llm is None else options.llm.model,
            "options": {
                "trials": options.trials,
                "money": None if options.money is None else str(options.money),
                "value": None if options.value is None else str(options.value),
                "knowledge": None if options.knowledge is None else str(options.knowledge),
            },
        }
        text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
        (out / SEARCH).write_text(text, encoding="ascii")


class _Kept:
    """An evaluator that puts every accepted kernel in its place at once.

    The text is on disk before the trial begins, so an accepted kernel only has to be renamed: a
    disk that fills up meanwhile cannot lose it.
    """

    def __init__(self, path: Path, bench: Bench, operator: Operator) -> None:
        self._path = path
        self._next = path.with_name(f".{path.name}.next")
        self._bench = bench
        self._operator = operator

    def evaluate(
        self,
        offer: Offer,
        incumbent: Proposal | None,
        *,
        number: int,
        proposer: str,
        proposing_s: float = 0.0,
    ) -> Trial:
        if not isinstance(offer, Unusable):
            with suppress(ScheduleError):  # the bench says so in its trial
                try:
                    self._next.write_text(text_of(self._operator, offer), encoding="ascii")
                except OSError as error:
                    offer = Unusable(offer.operator, number, FAULT, f"{self._next.name}: {error}")
        trial = self._bench.evaluate(
            offer, incumbent, number=number, proposer=proposer, proposing_s=proposing_s
        )
        if trial.accepted:
            self._next.replace(self._path)
        return trial

    def settle(self, best: Proposal | None) -> None:
        """Leave `best`, also where the closing race sent the search back to where it began."""
        text = None if best is None else text_of(self._operator, best)
        if text is not None and self._path.read_text(encoding="ascii") != text:
            self._next.write_text(text, encoding="ascii")
            self._next.replace(self._path)

    def close(self) -> None:
        self._next.unlink(missing_ok=True)


def text_of(operator: Operator, best: Proposal) -> str:
    """The C text of a proposal."""
    return best.source if isinstance(best, Written) else source(operator, best)


def _money(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
