"""The search over a whole model, from the ONNX file to a judged package.

In: a model, a machine, samples of its traffic, a budget. Out: a package directory and a
`TuneResult`. Order: stock choices for the whole model -> time shares -> search per operator, the
costliest first -> races inside the model -> one full judgement of the packaged binary -> seal.
Every part has its stated share of the budget and ends between two races or trials; only the closing
judgement may take more than its own, because a package without it is worth nothing.
Never here: a verdict; a price that was not handed in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelgen.agent.bench import Bench
from kernelgen.agent.gate import MODEL_EFFORT, Chosen, Gate, TrafficEncoder, package_candidate
from kernelgen.agent.knowledge import Knowledge, landscapes
from kernelgen.agent.ledger import Booking, Ledger
from kernelgen.agent.operators import Searches, TuneError
from kernelgen.agent.options import Options
from kernelgen.agent.records import Records, harness_sha256
from kernelgen.agent.results import EventKind, TrialEvent, TuneResult
from kernelgen.agent.search import Found
from kernelgen.agent.summary import (
    brief,
    model_gate,
    operator_result,
    write_json,
)
from kernelgen.agent.traffic import model_points, operator_points
from kernelgen.agent.transcript import ANSWERS, Transcript
from kernelgen.agent.workplace import move_into_place, workplace
from kernelgen.emit import MODEL
from kernelgen.judge.contest import Point, Race
from kernelgen.judge.session import Refusal
from kernelgen.judge.trial import judge_points
from kernelgen.judge.verdict import JUDGE_VERSION, Candidate, Verdict
from kernelgen.machine import Machine, describe
from kernelgen.package.build import build, seal
from kernelgen.schedule import Schedule, space

STOCK_PART = 0.15
"""Part of the budget for stock choices of the whole model."""
SEARCH_PART = 0.75
"""Part of the budget after which no operator is searched any more; shares of the time and stock
choices come first.
"""
CLOSING_PART = 0.15
"""Part of the budget that is left for building and judging the package; races inside the model have
what lies between.
"""

MODEL_LIMIT_S = 60.0


def optimize(
    model: Path,
    *,
    out: Path,
    budget_s: float,
    samples: Sequence[npt.NDArray[np.int64]],
    seed: int = 0,
    machine: Machine | None = None,
    price_per_core_hour: Decimal = Decimal(0),
    currency: str = "USD",
    records: Path | None = None,
    core: int = 0,
    options: Options | None = None,
    on_event: Callable[[TrialEvent], None] | None = None,
) -> TuneResult:
    """Search faster kernels for `model` on `machine` (this one when None) and leave a package in
    `out`.

    `samples` are token id sequences of the traffic. `budget_s` bounds the search in seconds. Ctrl-C
    ends the search early and still packages the best so far. With `records` a later search with the
    same file skips what is known and judges the old winner again. `options` hold everything else a
    search may use or spend: trials, money, earlier knowledge, a language model. Raises `TuneError`
    when not even the default kernels are correct here.
    """
    if budget_s < 0:
        raise ValueError(f"budget_s: got {budget_s}, wanted 0 or more seconds")
    points = model_points(samples)
    options = options or Options()
    with workplace(out) as work:
        tuning = _Tuning(
            encoder=TrafficEncoder(str(model), tuple(samples)),
            points=points,
            machine=machine or describe(),
            core=core,
            seed=seed,
            work=work,
            ledger=Ledger(
                work / "ledger.jsonl",
                price_per_core_hour,
                currency,
                customer=options.customer,
                model=model.stem,
                token_price=options.token_price,
            ),
            records=Records(records or work / "trials.jsonl"),
            options=options,
            on_event=on_event,
        )
        return tuning.run(out, budget_s)


@dataclass
class _Tuning:
    encoder: TrafficEncoder
    points: tuple[Point, ...]
    machine: Machine
    core: int
    seed: int
    work: Path
    ledger: Ledger
    records: Records
    options: Options
    on_event: Callable[[TrialEvent], None] | None
    began: float = field(default_factory=time.monotonic)
    trials: int = 0
    interrupted: bool = False

    def run(self, out: Path, budget_s: float) -> TuneResult:
        self._say("started", None, f"{out.name}: {budget_s:g} s", None)
        graph = self.encoder.graph
        spaces = {name: space(op, self.machine) for name, op in graph.operators.items()}
        spaces[MODEL] = space(self.encoder, self.machine)
        defaults = {name: found.default() for name, found in spaces.items()}
        gate = Gate(
            self.encoder,
            self.points,
            machine=self.machine,
            core=self.core,
            work=self.work,
            ledger=self.ledger,
        )
        benches = {
            name: Bench(
                operator,
                operator_points(operator, self.points),
                machine=self.machine,
                core=self.core,
                work=self.work,
                ledger=self.ledger,
                records=self.records,
                first_alone=False,
                parts=gate.assembly,
            )
            for name, operator in graph.operators.items()
        }
        base = Chosen(defaults, (), ())
        shares: dict[str, float] = {}
        default_ns: dict[str, float] = {}
        try:
            if budget_s:
                base = gate.stock(spaces, budget_s=budget_s * STOCK_PART, on_race=self._raced)
                shares, default_ns = self._shares(benches, defaults)
        except KeyboardInterrupt:
            self.interrupted = True
            self._say("interrupted", MODEL, "before any search", None)
        found = self._search_operators(
            benches, shares, self.began + budget_s * SEARCH_PART, base.dropped
        )
        end = self.began + budget_s * (1.0 - CLOSING_PART)
        chosen = self._choose(gate, defaults, base, found, shares, end)
        verdict, staged = self._close(defaults, chosen)
        result = self._package(out, staged, verdict, found, shares, default_ns, defaults)
        self._say("done", None, f"{result.trials} trials", result.model_gate.ratio)
        return result

    def _shares(
        self, benches: Mapping[str, Bench], defaults: Mapping[str, Schedule]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Part of the model's time per operator, measured with the default schedules, largest
        first.
        """
        weighted: dict[str, float] = {}
        single: dict[str, float] = {}
        for name, bench in benches.items():
            try:
                times = bench.time(defaults[name])
            except Refusal as refusal:
                raise TuneError(f"{name}: the default kernel cannot be timed: {refusal}") from None
            uses = self.encoder.graph.uses(name)
            weighted[name] = uses * sum(
                point.weight * ns for point, ns in zip(bench.points, times.time_ns, strict=True)
            )
            single[name] = max(times.time_ns)
        total = sum(weighted.values())
        ordered = sorted(weighted, key=lambda name: -weighted[name])
        return {name: weighted[name] / total for name in ordered}, single

    def _search_operators(
        self,
        benches: Mapping[str, Bench],
        shares: Mapping[str, float],
        end: float,
        lost: tuple[str, ...],
    ) -> dict[str, Found]:
        llm = self.options.llm
        path = self.options.knowledge
        searches = Searches(
            machine=self.machine,
            seed=self.seed,
            records=self.records,
            ledger=self.ledger,
            options=self.options,
            knowledge=Knowledge(landscapes(self.records.trials())).joined(path),
            line=None if llm is None else Transcript(self.work / ANSWERS, llm.ask),
            say=self._heard,
            lost=lost,
        )
        found = searches.run(benches, shares, end)
        self.interrupted |= searches.interrupted
        return found

    def _heard(self, kind: EventKind, operator: str | None, text: str, ratio: float | None) -> None:
        self.trials += kind in ("kept", "trial", "resumed")
        self._say(kind, operator, text, ratio)

    def _choose(
        self,
        gate: Gate,
        defaults: Mapping[str, Schedule],
        base: Chosen,
        found: Mapping[str, Found],
        shares: Mapping[str, float],
        end: float,
    ) -> Chosen:
        winners = {
            name: result.schedule
            for name, result in sorted(
                found.items(), key=lambda item: -shares[item[0]] * np.log(item[1].speed)
            )
            if result.schedule not in (None, defaults[name], base.schedules[name])
        }
        if self.interrupted:
            # No time for races: all winners together must win the closing judgement.
            return base.adding({**base.schedules, **winners}, tuple(winners), ())
        try:
            left_s = max(0.0, end - time.monotonic())
            chosen = gate.choose(
                base.schedules, winners, budget_s=0.75 * left_s, on_race=self._raced
            )
            left_s = max(0.0, end - time.monotonic())
            proposals = space(self.encoder, self.machine).neighbours(chosen.schedules[MODEL])
            schedules = gate.explore(
                chosen.schedules, proposals, budget_s=left_s, on_race=self._raced
            )
            return base.adding(schedules, chosen.kept, chosen.dropped)
        except KeyboardInterrupt:
            self.interrupted = True
            self._say("interrupted", MODEL, "packaging the kernels it began with", None)
            return base.adding(base.schedules, (), tuple(winners))

    def _raced(self, label: str, result: Race | None) -> None:
        ratio = None if result is None else result.ratio
        self.trials += 1
        self._say("model_gate", MODEL, label, ratio)

    def _close(
        self, defaults: Mapping[str, Schedule], chosen: Chosen
    ) -> tuple[Verdict, tuple[Path, Chosen]]:
        """Package, judge the packaged binary in full, fall back to the defaults when it does not
        win against them, both built as packages are.
        """
        usual = self._stage("default", defaults)
        # Both packages are finished before either is judged, so one secret serves for both, and
        # the oracle answers once.
        secret = os.urandom(32)
        if any(chosen.schedules[name] != defaults[name] for name in defaults):
            staged = self._stage("chosen", chosen.schedules)
            verdict = self._judge_model(staged, package_candidate(usual), secret)
            if verdict.accepted:
                return verdict, (staged, chosen)
            self._say("model_gate", MODEL, f"refused: {verdict.reason}", verdict.ratio_vs_incumbent)
            chosen = Chosen(defaults, (), (*chosen.kept, *chosen.dropped))
        verdict = self._judge_model(usual, None, secret)
        if not verdict.accepted:
            raise TuneError(f"the default model is refused: {verdict.reason}: {verdict.detail}")
        return verdict, (usual, chosen)

    def _stage(self, label: str, schedules: Mapping[str, Schedule]) -> Path:
        began = time.monotonic()
        staged = build(self.encoder.graph, schedules, self.work / label, self.machine)
        self.ledger.book(Booking(MODEL, "model_build", "done", time.monotonic() - began))
        return staged

    def _judge_model(self, staged: Path, incumbent: Candidate | None, secret: bytes) -> Verdict:
        verdict = judge_points(
            package_candidate(staged),
            self.encoder,
            self.points,
            incumbent=incumbent,
            seed_bytes=secret,
            machine=self.machine,
            core=self.core,
            limit_s=MODEL_LIMIT_S,
            effort=MODEL_EFFORT,
        )
        self.ledger.book(Booking(MODEL, "model_gate", verdict.reason, verdict.seconds))
        return verdict

    def _package(
        self,
        out: Path,
        staged: tuple[Path, Chosen],
        verdict: Verdict,
        found: Mapping[str, Found],
        shares: Mapping[str, float],
        default_ns: Mapping[str, float],
        defaults: Mapping[str, Schedule],
    ) -> TuneResult:
        folder, chosen = staged
        accepted = sum(result.accepted for result in found.values())
        rejected = Counter(
            trial.reason
            for result in found.values()
            for trial in result.trials
            if not trial.accepted
        )
        closing = model_gate(verdict, chosen)
        operators = tuple(
            operator_result(
                name,
                shares.get(name, 0.0),
                found.get(name),
                chosen.schedules,
                defaults[name],
                default_ns.get(name),
            )
            for name in self.encoder.graph.operators
        )
        verdicts = {
            "model": verdict.to_dict(),
            "operators": {
                name: [brief(trial) for trial in result.trials if trial.accepted]
                for name, result in found.items()
            },
        }
        write_json(folder / "verdicts.json", verdicts)
        shutil.copyfile(self.ledger.path, folder / "ledger.jsonl")
        if (self.work / ANSWERS).exists():
            shutil.copyfile(self.work / ANSWERS, folder / ANSWERS)
        trials = folder / "trials.jsonl"
        trials.write_bytes(self.records.path.read_bytes() if self.records.path.exists() else b"")
        sha256 = seal(
            folder,
            {
                "judge_version": JUDGE_VERSION,
                "harness_sha256": harness_sha256(),
                "verdict_sha256": hashlib.sha256(
                    (folder / "verdicts.json").read_bytes()
                ).hexdigest(),
                "prepare_ns": verdict.prepare_ns,
                "search": {
                    "trials": self.trials,
                    "accepted": accepted,
                    "rejected": dict(rejected),
                    "seconds": str(self.ledger.seconds),
                    "cost": str(self.ledger.cost),
                    "currency": self.ledger.currency,
                    "seed": self.seed,
                    "points": [[dict(point.dims), point.weight] for point in self.points],
                },
            },
        )
        move_into_place(folder, out)
        return TuneResult(
            package=out,
            manifest_sha256=sha256,
            trials=self.trials,
            accepted=accepted,
            rejected=dict(rejected),
            seconds=time.monotonic() - self.began,
            cost=self.ledger.cost,
            currency=self.ledger.currency,
            operators=operators,
            model_gate=closing,
        )

    def _say(self, kind: EventKind, operator: str | None, text: str, ratio: float | None) -> None:
        if self.on_event is not None:
            elapsed = time.monotonic() - self.began
            self.on_event(TrialEvent(kind, operator, self.trials, text, ratio, elapsed))
