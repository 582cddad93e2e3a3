"""Every exchange with a language model on disk, so that a search replays without its server.

In: questions and answers as they happen. Out: `answers.jsonl`, one line per exchange: digest of the
question, the answer's text or why there was none, tokens, and the C text after preprocessing.
Never here: the key, the server's address, the question's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelgen.agent.endpoint import Answer, EndpointError, Message
from kernelgen.agent.ledger import append_line
from kernelgen.judge.intake import closed_text
from kernelgen.judge.session import Refusal

ANSWERS = "answers.jsonl"

Ask = Callable[[Sequence[Message], int], Answer]


@dataclass(frozen=True)
class Exchange:
    """One line of `answers.jsonl`. `kind` is "answer", or the kind of an `EndpointError`; `text` is
    the answer or the error. A line of kind "source" keeps what the preprocessor made of a C block,
    or "refused" what it said against it.
    """

    question_sha256: str
    kind: str
    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    counted: bool = False


def digest(messages: Sequence[Message], seed: int) -> str:
    text = json.dumps([[dict(m) for m in messages], seed], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def source_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Transcript:
    """Asks, cleans sources, and writes down what came of both."""

    def __init__(self, path: Path, ask: Ask) -> None:
        self.path = path
        self._ask = ask

    def ask(self, messages: Sequence[Message], seed: int) -> Answer:
        """As `Endpoint.ask`; raises `OSError` when the exchange cannot be written down."""
        name = digest(messages, seed)
        try:
            answer = self._ask(messages, seed)
        except EndpointError as error:
            self._write(Exchange(name, error.kind, error.detail, error.tokens_in, error.tokens_out))
            raise
        self._write(
            Exchange(
                name, "answer", answer.text, answer.tokens_in, answer.tokens_out, answer.counted
            )
        )
        return answer

    def clean(self, text: str) -> str:
        """As `judge.intake.closed_text`."""
        name = source_digest(text)
        try:
            source = closed_text(text)
        except Refusal as refused:
            self._write(Exchange(name, "refused", refused.detail))
            raise
        self._write(Exchange(name, "source", source))
        return source

    def _write(self, exchange: Exchange) -> None:
        append_line(self.path, asdict(exchange))


class Replayed:
    """The same two questions answered from a transcript; what is not in it is no answer."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._answers: dict[str, list[Exchange]] = {}
        self._sources: dict[str, Exchange] = {}
        for exchange in exchanges:
            if exchange.kind in ("source", "refused"):
                self._sources[exchange.question_sha256] = exchange
            else:
                self._answers.setdefault(exchange.question_sha256, []).append(exchange)

    def ask(self, messages: Sequence[Message], seed: int) -> Answer:
        known = self._answers.get(digest(messages, seed))
        if not known:
            raise EndpointError("not_recorded", "this question is not in the transcript")
        exchange = known.pop(0) if len(known) > 1 else known[0]
        if exchange.kind != "answer":
            raise EndpointError(
                exchange.kind,
                exchange.text,
                tokens_in=exchange.tokens_in,
                tokens_out=exchange.tokens_out,
            )
        return Answer(exchange.text, exchange.tokens_in, exchange.tokens_out, exchange.counted)

    def clean(self, text: str) -> str:
        known = self._sources.get(source_digest(text))
        if known is None:
            raise Refusal("forbidden_source", "this text is not in the transcript")
        if known.kind == "refused":
            raise Refusal("forbidden_source", known.text)
        return known.text


def read_exchanges(path: Path) -> list[Exchange]:
    """The exchanges of a transcript; raises `ValueError` naming a damaged line."""
    found: list[Exchange] = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), start=1):
        try:
            found.append(Exchange(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path.name} line {number}: {error}") from error
    return found
