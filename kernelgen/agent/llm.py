"""The proposer that asks a language model, and asks again with the evidence when it was wrong.

In: the operator, its sizes, the machine, two functions (ask, clean) that are live or replayed, a
place to book tokens. Out: a schedule, a whole kernel, or an unusable answer that counts as a trial.
Never here: an exception for anything a server said; the server's address or key; a verdict. What
the model answers meets the same judge as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from kernelgen.agent.endpoint import Answer, EndpointError, Message
from kernelgen.agent.prompt import follow_up, messages
from kernelgen.agent.proposals import Offer, Unusable, Written
from kernelgen.agent.proposers import History
from kernelgen.agent.records import Trial
from kernelgen.agent.reply import ReplyError, read_reply
from kernelgen.judge.contest import Point
from kernelgen.judge.session import Refusal
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.schedule import Schedule, SearchSpace

REPAIRS = 3
"""Answers to one proposal's failures before the model has to start afresh."""

GIVE_UP = 3
"""Exchanges in a row without an answer after which the server counts as gone."""

MOST_EXCHANGES = 40
"""Questions of one search; what more answers could bring, other proposers bring cheaper."""

BookTokens = Callable[[str, int, int], None]
"""Outcome, tokens sent, tokens answered."""


class Line(Protocol):
    """The way to a model: `kernelgen.agent.transcript.Transcript` or `Replayed`."""

    def ask(self, messages: Sequence[Message], seed: int) -> Answer: ...

    def clean(self, text: str) -> str: ...


class LanguageModel:
    """Proposes what the model answers. `kernels` allows whole kernels beside schedules."""

    name = "llm"

    def __init__(
        self,
        line: Line,
        operator: Operator,
        points: Sequence[Point],
        machine: Machine,
        *,
        book: BookTokens,
        kernels: bool = True,
        repairs: int = REPAIRS,
    ) -> None:
        self._line = line
        self._operator = operator
        self._points = tuple(points)
        self._machine = machine
        self._book = book
        self._kernels = kernels
        self._repairs = repairs
        self._talk: list[Message] = []
        self._repaired = 0
        self._asked = 0
        self._silent = 0

    @property
    def gone(self) -> bool:
        """Whether the server failed so often in a row that it is not asked any more."""
        return self._silent >= GIVE_UP

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Offer | None:
        """A new conversation about what is known by now; None once the server is gone."""
        if self.gone or self._asked >= MOST_EXCHANGES:
            return None
        self._repaired = 0
        self._talk = messages(
            self._operator, self._points, self._machine, space, history, kernels=self._kernels
        )
        return self._offer(space, history, rng)

    def repair(
        self, space: SearchSpace, history: History, trial: Trial, rng: np.random.Generator
    ) -> Offer | None:
        """The model's next try after `trial`, within `repairs` tries; None without an answer."""
        if self._repaired >= self._repairs or self._asked >= MOST_EXCHANGES or self._silent:
            return None
        self._repaired += 1
        self._talk.append({"role": "user", "content": follow_up(trial)})
        return self._offer(space, history, rng)

    def _offer(self, space: SearchSpace, history: History, rng: np.random.Generator) -> Offer:
        self._asked += 1
        try:
            answer = self._line.ask(self._talk, int(rng.integers(2**31)))
        except EndpointError as error:
            # A server that answers nonsense is there; one that does not answer is not.
            self._silent = 0 if error.kind == "malformed" else self._silent + 1
            self._book(error.kind, error.tokens_in, error.tokens_out)
            reason = "malformed_answer" if error.kind == "malformed" else "no_answer"
            return self._unusable(reason, str(error))
        self._silent = 0
        # Of a too long answer the conversation keeps only a part: it is sent back every time.
        self._talk.append({"role": "assistant", "content": answer.text[:16_000]})
        try:
            offer = self._read(answer.text, space)
        except ReplyError as error:
            self._book(error.reason, answer.tokens_in, answer.tokens_out)
            return self._unusable(error.reason, error.detail)
        known = (
            offer in history.speed
            if isinstance(offer, Schedule)
            else offer.text() in history.written
        )
        self._book("known_answer" if known else "done", answer.tokens_in, answer.tokens_out)
        if known:
            return self._unusable("known_answer", f"{offer.text()} was tried before")
        return offer

    def _read(self, text: str, space: SearchSpace) -> Schedule | Written:
        found = read_reply(text, space, kernels=self._kernels)
        if isinstance(found, Schedule):
            return found
        try:
            return Written(self._operator.name, self._line.clean(found))
        except Refusal as refused:
            raise ReplyError("source_refused", refused.detail[:2000]) from None

    def _unusable(self, reason: str, detail: str) -> Unusable:
        return Unusable(self._operator.name, self._asked, reason, detail[:2000])
