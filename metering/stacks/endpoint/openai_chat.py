"""A language model behind an OpenAI-compatible server: chat completions, streamed.

In: a registration (its URL ends where ``/chat/completions`` begins) and, as the model file, the
tokenizer. Out: a Generator. A prompt is decoded to text and sent as one user message; the server's
template and its queue are part of what is measured. What comes back is text, so its tokens are
counted here: the first token is there with the first text, and a usage that differs from our own
count by more than retokenising can explain is a lie, with that name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.endpoint.events import pieces
from metering.stacks.endpoint.failure import EndpointError, quoted
from metering.stacks.endpoint.registration import MANIFEST, load_registration
from metering.stacks.endpoint.tokens import open_tokenizer
from metering.stacks.system import (
    GenerationLimit,
    Generator,
    StackError,
    StackInfo,
    System,
    TokenIds,
)

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default",)
# A text may have other tokens than those it was generated from, by a few.
_SLACK_TOKENS, _SLACK_PERCENT = 2, 5


def discover(sut: SutSpec | None = None) -> StackInfo:
    """The server's list of models; the digest is of that text, its own claim."""
    if sut is None or sut.package is None:
        return StackInfo("openai", "", "", False, f"sut.package: wanted a folder with {MANIFEST}")
    try:
        registration = load_registration(Path(sut.package), "openai-chat")
        client = registration.client()
        try:
            listed = client.get_json("/models")
        finally:
            client.close()
        entry = _entry(listed, registration.model)
    except EndpointError as error:
        return StackInfo("openai", "", "", False, str(error))
    digest = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
    return StackInfo("openai", f"{registration.model} (its own claim)", digest, True, "")


class ChatGenerator:
    """One connection; prompts follow one another, so instances are the requests in flight."""

    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        if sut.package is None:
            raise StackError(f"sut.package: wanted a folder with {MANIFEST}")
        registration = load_registration(Path(sut.package), "openai-chat")
        self._model = registration.model
        self._client = registration.client()
        self._tokenizer = open_tokenizer(model)

    def generate(
        self, batch: Sequence[TokenIds], limit: GenerationLimit
    ) -> Iterator[tuple[int, Sequence[int]]]:
        for position, prompt in enumerate(batch):
            for tokens in self._answer(prompt, limit):
                yield position, tokens

    def _answer(self, prompt: TokenIds, limit: GenerationLimit) -> Iterator[Sequence[int]]:
        request = {
            "model": self._model,
            "messages": [{"role": "user", "content": self._tokenizer.decode(prompt.tolist())}],
            "max_tokens": limit.max_new_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        texts: list[str] = []
        by_piece: list[int] = []
        finish: str | None = None
        claimed: int | None = None
        with contextlib.closing(self._client.post_lines("/chat/completions", request)) as lines:
            for piece in pieces(lines):
                finish = piece.finish or finish
                claimed = claimed if piece.claimed_tokens is None else piece.claimed_tokens
                if not piece.text:
                    continue
                new = self._tokenizer.encode(piece.text)
                if not by_piece and new:
                    yield new[:1]
                by_piece += new
                texts.append(piece.text)
                if len(by_piece) > limit.max_new_tokens + _slack(limit.max_new_tokens):
                    raise EndpointError(
                        "answer", f"more than the {limit.max_new_tokens} tokens it was asked for"
                    )
        whole = self._tokenizer.encode("".join(texts))
        answer = settle_tokens(whole, by_piece, finish, limit)
        check_claim(claimed, answer, limit)
        yield answer[1:] if by_piece else answer

    def close(self) -> None:
        self._client.close()


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    raise StackError("openai: generates text, and has no embeddings")


def open_generator(sut: SutSpec, model: Path, output: str) -> Generator:
    return ChatGenerator(sut, model, output)


def settle_tokens(
    whole: Sequence[int], by_piece: Sequence[int], finish: str | None, limit: GenerationLimit
) -> list[int]:
    """The tokens of an answer from its text: ``whole`` at once, or ``by_piece`` as it came.

    A server sends a piece for each token, mostly, so the pieces give the tokens it generated, and
    the whole text the fewest there can be. Pieces cut smaller than tokens would buy a better time
    per token: more of them than the whole text explains is refused. Ends with the end token where
    the server says the model stopped. Raises EndpointError.
    """
    if len(by_piece) > len(whole) + _slack(len(whole)):
        raise EndpointError(
            "answer", f"pieces of {len(by_piece)} tokens, the text they make has {len(whole)}"
        )
    if finish == "length":
        for tokens in (by_piece, whole):
            if len(tokens) == limit.max_new_tokens and list(tokens[:1]) == list(by_piece[:1]):
                return list(tokens)
        raise EndpointError(
            "answer",
            f"ended at its length with {len(by_piece)} tokens ({len(whole)} as one text), "
            f"wanted {limit.max_new_tokens}",
        )
    if finish != "stop":
        raise EndpointError("answer", f"finish_reason {quoted(str(finish))}, wanted length or stop")
    if len(by_piece) > limit.max_new_tokens:
        raise EndpointError(
            "answer", f"{len(by_piece)} tokens, wanted at most {limit.max_new_tokens}"
        )
    if len(by_piece) == limit.max_new_tokens:
        return list(by_piece)
    if limit.end_token is None:
        raise EndpointError(
            "answer",
            f"stopped after {len(by_piece)} tokens, wanted {limit.max_new_tokens}; "
            "name the model's end token to allow it",
        )
    return [*by_piece, limit.end_token]


def check_claim(claimed: int | None, answer: Sequence[int], limit: GenerationLimit) -> None:
    """Holds the server's ``completion_tokens`` to the tokens of its text. Raises EndpointError."""
    if claimed is None:
        return
    if claimed > limit.max_new_tokens or abs(claimed - len(answer)) > _slack(len(answer)):
        raise EndpointError(
            "answer",
            f"usage claims {claimed} tokens, its text has {len(answer)}, the limit was "
            f"{limit.max_new_tokens}",
        )


def _slack(tokens: int) -> int:
    return _SLACK_TOKENS + tokens * _SLACK_PERCENT // 100


def _entry(listed: object, model: str) -> object:
    data = listed.get("data") if isinstance(listed, dict) else None
    entries = data if isinstance(data, list) else []
    found = [entry for entry in entries if isinstance(entry, dict) and entry.get("id") == model]
    if len(found) != 1:
        names = [str(entry.get("id")) for entry in entries if isinstance(entry, dict)]
        raise EndpointError(
            "answer", f"/models: wanted {model!r} once, it lists {quoted(', '.join(names))}"
        )
    return found[0]
