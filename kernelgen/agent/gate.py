"""Whether new kernels win inside the whole model; the model is judged as one operator on the
traffic's sentences.

In: a graph, the default schedules, schedules that won alone, samples of traffic. Out: the schedules
to ship.
Never here: a search over operators; packaging.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelgen.agent.assembly import Assembly
from kernelgen.agent.ledger import Booking, Ledger, Work
from kernelgen.emit import MODEL
from kernelgen.graph import TextEncoder
from kernelgen.graph.types import IDS, OFFSETS
from kernelgen.judge.clock import Effort
from kernelgen.judge.contest import Point, Race
from kernelgen.judge.session import Refusal
from kernelgen.judge.trial import race
from kernelgen.judge.verdict import Candidate
from kernelgen.machine import Machine
from kernelgen.ops.operator import Array, Tensor, offsets_of
from kernelgen.package.manifest import LIBRARY, read_manifest
from kernelgen.schedule import Schedule, SearchSpace

ANSWERS_KEPT = 256
"""Of the oracle, each a row of numbers per sequence."""

MODEL_EFFORT = Effort(fewest=12, most=24, hopeless=0.985)


@dataclass(frozen=True, eq=False)
class TrafficEncoder(TextEncoder):
    """A text encoder whose nominal inputs are real sentences; other regimes stay random ids."""

    samples: tuple[npt.NDArray[np.int64], ...] = field(default=(), repr=False)
    _memory: dict[bytes, Array] = field(default_factory=dict, repr=False)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """As the model's own, built once: the judge asks at every call."""
        return super().tensors

    def spec(self) -> dict[str, object]:
        return TextEncoder(self.model).spec()

    def embed(self, ids: Array, offsets: Array) -> Array:
        """As the model's own, kept for the latest inputs: oracle and bound ask for the same ones,
        and so does a second judgement with the same secret.
        """
        digest = hashlib.sha256(ids.tobytes() + offsets.tobytes()).digest()
        if digest not in self._memory:
            if len(self._memory) >= ANSWERS_KEPT:
                del self._memory[next(iter(self._memory))]
            self._memory[digest] = super().embed(ids, offsets)
        return self._memory[digest]

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        """Random ids; nominal rounds take sentences, fitted so that they make `dims["tokens"]`
        tokens.
        """
        base = super().sample(rng, dims, regime)
        if regime != "nominal" or not self.samples:
            return base
        chosen = [self.samples[int(i)] for i in rng.integers(len(self.samples), size=dims["n"])]
        lengths = fit([len(ids) for ids in chosen], dims["tokens"], self.graph.max_tokens)
        ids = [np.resize(ids, length) for ids, length in zip(chosen, lengths, strict=True)]
        return {
            **base,
            IDS: np.concatenate(ids).astype(np.int64),
            OFFSETS: offsets_of(np.array(lengths, dtype=np.int64)),
        }


def fit(lengths: Sequence[int], total: int, longest: int) -> list[int]:
    """`lengths` changed as little as possible, one token at a time in turn, so that they sum to
    `total`.
    """
    fitted = [min(max(1, length), longest) for length in lengths]
    at = 0
    while (gap := total - sum(fitted)) != 0:
        step = 1 if gap > 0 else -1
        if 1 <= fitted[at] + step <= longest:
            fitted[at] += step
        elif all(not 1 <= length + step <= longest for length in fitted):
            raise ValueError(f"dims: {total} tokens do not fit {len(lengths)} sequences")
        at = (at + 1) % len(fitted)
    return fitted


@dataclass(frozen=True)
class Chosen:
    """Schedules that won inside the model, in the order they were tried, and those that did not."""

    schedules: Mapping[str, Schedule]
    kept: tuple[str, ...]
    dropped: tuple[str, ...]

    def adding(
        self, schedules: Mapping[str, Schedule], kept: tuple[str, ...], dropped: tuple[str, ...]
    ) -> Chosen:
        """`schedules`, which came of a further round of races, with the names of both rounds."""
        return Chosen(schedules, (*self.kept, *kept), (*self.dropped, *dropped))


class Gate:
    """Builds whole models from schedules and races them; what it builds stays in `work`."""

    def __init__(
        self,
        encoder: TrafficEncoder,
        points: Sequence[Point],
        *,
        machine: Machine,
        core: int,
        work: Path,
        ledger: Ledger,
    ) -> None:
        self.encoder = encoder
        self.points = tuple(points)
        self._machine = machine
        self._core = core
        self._ledger = ledger
        self.assembly = Assembly(encoder.graph, machine, work)
        self._built: dict[tuple[Schedule, ...], Candidate | None] = {}

    def stock(
        self,
        spaces: Mapping[str, SearchSpace],
        *,
        budget_s: float,
        on_race: Callable[[str, Race | None], None],
    ) -> Chosen:
        """The defaults, or another stock choice for all operators at once that wins inside the
        model: what holds for one of them (a unit that the machine has, and how fast it is just
        now) mostly holds for all. Choices for which there is no time are not raced; they are
        neither kept nor dropped.
        """
        deadline = time.monotonic() + budget_s
        best = {operator: space.default() for operator, space in spaces.items()}
        kept: list[str] = []
        dropped: list[str] = []
        for name in dict.fromkeys(name for space in spaces.values() for name in space.stock()):
            if time.monotonic() >= deadline:
                break
            other = {
                operator: space.stock().get(name, best[operator])
                for operator, space in spaces.items()
            }
            better = self._wins(best, other, name, on_race)
            (kept if better else dropped).append(name)
            best = other if better else best
        return Chosen(best, tuple(kept), tuple(dropped))

    def choose(
        self,
        defaults: Mapping[str, Schedule],
        winners: Mapping[str, Schedule],
        *,
        budget_s: float,
        on_race: Callable[[str, Race | None], None],
    ) -> Chosen:
        """Add winners one by one, in the given order, to the default model; each must win inside
        it.

        Then the model's own choices, one step at a time. Time runs out between races, never inside
        one; a winner that was not raced is dropped.
        """
        deadline = time.monotonic() + budget_s
        current = dict(defaults)
        kept: list[str] = []
        dropped: list[str] = []
        for name, schedule in winners.items():
            better = time.monotonic() < deadline and self._wins(
                current, {**current, name: schedule}, name, on_race
            )
            (kept if better else dropped).append(name)
            if better:
                current[name] = schedule
        return Chosen(current, tuple(kept), tuple(dropped))

    def explore(
        self,
        current: Mapping[str, Schedule],
        proposals: Sequence[Schedule],
        *,
        budget_s: float,
        on_race: Callable[[str, Race | None], None],
    ) -> Mapping[str, Schedule]:
        """Race whole-model schedules against the best so far while time remains; returns the best
        mapping.
        """
        deadline = time.monotonic() + budget_s
        best = dict(current)
        for proposal in proposals:
            if time.monotonic() >= deadline:
                break
            if self._wins(best, {**best, MODEL: proposal}, proposal.text(), on_race):
                best[MODEL] = proposal
        return best

    def build(self, schedules: Mapping[str, Schedule]) -> Candidate | None:
        """The whole model as a candidate for races; None when it does not compile."""
        identity = tuple(sorted(schedules.values()))
        if identity not in self._built:
            outcome = self.assembly.build(schedules)
            self._book("model_build", "done" if outcome.path else "not_compiled", outcome.seconds)
            self._built[identity] = Candidate(MODEL, outcome.path) if outcome.path else None
        return self._built[identity]

    def _wins(
        self,
        current: Mapping[str, Schedule],
        proposed: Mapping[str, Schedule],
        label: str,
        on_race: Callable[[str, Race | None], None],
    ) -> bool:
        incumbent, candidate = self.build(current), self.build(proposed)
        if incumbent is None or candidate is None:
            on_race(label, None)
            return False
        began = time.monotonic()
        outcome = "done"
        result: Race | None = None
        try:
            result = race(
                candidate,
                self.encoder,
                self.points,
                incumbent=incumbent,
                seed_bytes=os.urandom(32),
                machine=self._machine,
                core=self._core,
                effort=MODEL_EFFORT,
            )
        except Refusal as refusal:
            outcome = refusal.reason
        self._book("model_gate", outcome, time.monotonic() - began)
        on_race(label, result)
        return result is not None and result.ratio_lo is not None and result.ratio_lo > 1.0

    def _book(self, work: Work, outcome: str, seconds: float) -> None:
        self._ledger.book(Booking(MODEL, work, outcome, seconds))


def package_candidate(package: Path) -> Candidate:
    """The packaged binary with the source and flags it was made from, and the instruction sets it
    is sold for, ready for the judge.
    """
    manifest = read_manifest(package)
    text = (package / "src" / "model.c").read_text(encoding="ascii")
    return Candidate(
        MODEL,
        package / LIBRARY,
        (text,),
        tuple(manifest["flags"]),
        claims=tuple(manifest["isa"]),
    )
