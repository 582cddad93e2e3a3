"""A chat endpoint as a stack: a real decoder behind a streaming server, and servers that lie."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from metering import loadgen, stacks
from metering.loadgen import RunSpec, SutSpec, verdict
from metering.loadgen.library import write_library
from metering.stacks import GenerationLimit, StackError
from metering.stacks.endpoint.events import Piece, pieces
from metering.stacks.endpoint.failure import EndpointError
from metering.stacks.endpoint.openai_chat import check_claim, settle_tokens
from metering.stacks.endpoint.tokens import open_tokenizer
from tests.metering.measure.endpoint_servers import ChatServer, RawServer, register, serving
from tests.metering.measure.tiny_decoder import END, VOCABULARY, Decoder, whole

MakeSpec = Callable[..., RunSpec]
LIMIT, PROMPTS, NAME = 10, 12, "tiny"
USUAL = GenerationLimit(LIMIT, END)
FIRST = 0x100  # The letter of token 0; letters follow one another.
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One letter a token, and no token of two."""
    vocabulary = {chr(FIRST + number): number for number in range(VOCABULARY)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.Fuse()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    ids = [rng.integers(0, VOCABULARY, size=size) for size in rng.integers(2, 9, PROMPTS)]
    path = tmp_path_factory.mktemp("prompts") / "prompts.npz"
    write_library(path, ids)
    return path, ids


def decode(prompt: str, limit: int) -> Iterator[tuple[str, bool]]:
    """What the small decoder says, token by token, as it computes them."""
    decoder = Decoder()
    token = [decoder.step(ord(letter) - FIRST) for letter in prompt][-1]
    for _ in range(limit):
        yield chr(FIRST + token), token == END
        if token == END:
            return
        token = decoder.step(token)


@pytest.fixture
def chat_spec(
    make_spec: MakeSpec, tokenizer: Path, prompts: tuple[Path, list[np.ndarray]], tmp_path: Path
) -> Callable[..., RunSpec]:
    def make(address: str, sut: dict[str, Any] | None = None, **fields: Any) -> RunSpec:
        limits = {"connect_s": 2, "read_s": 2, "request_s": 4}
        folder = register(tmp_path / "endpoint", address, "openai-chat", NAME, limits=limits)
        values = {
            "model": str(tokenizer),
            "samples": str(prompts[0]),
            "task": "generation",
            "max_new_tokens": LIMIT,
            "end_token": END,
            "min_query_count": PROMPTS,
            "warmup_ms": 0,
            **fields,
        }
        return make_spec(
            {"stack": "openai", "batch": 1, "package": folder, **(sut or {})}, **values
        )

    return make


def test_what_is_streamed_is_what_the_model_said(
    chat_spec: Callable[..., RunSpec], prompts: tuple[Path, list[np.ndarray]], tmp_path: Path
) -> None:
    with serving(ChatServer(decode, NAME)) as address:
        spec = chat_spec(f"{address}/v1", mode="accuracy")
        result = loadgen.run(spec, tmp_path / "run")
        assert result.state == "VALID", result.reasons
        log = (tmp_path / "run" / verdict.ACCURACY).read_bytes()
        expected = [whole(prompt, LIMIT, END) for prompt in prompts[1]]
        assert verdict.accuracy_tokens(log) == expected
        assert len({len(answer) for answer in expected}) > 1
        timed = loadgen.run(
            chat_spec(f"{address}/v1", scenario="SingleStream", min_query_count=64),
            tmp_path / "timed",
        )
    assert timed.state == "VALID", timed.reasons
    assert timed.tokens is not None


def test_a_server_that_lies_about_its_tokens_ends_the_run(
    chat_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    with serving(ChatServer(decode, NAME, claim=lambda tokens: 3 * tokens)) as address:
        result = loadgen.run(chat_spec(f"{address}/v1"), tmp_path / "run")
    assert result.state == "ERROR"
    assert "EndpointError: answer: usage claims" in result.reasons[0]


def event(text: str | None = None, finish: str | None = None, **fields: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    value = {"choices": [{"delta": delta, "finish_reason": finish}], **fields}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


LETTER = chr(FIRST + 7)
ANSWER = [event(LETTER) for _ in range(LIMIT)]
DONE = b"data: [DONE]\n\n"


def for_ever(part: bytes) -> Iterator[bytes]:
    while True:
        yield part


LIES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "gone in the middle": (lambda: ANSWER[:4], "dropped", "before [DONE]"),
    "gone inside an event": (lambda: [*ANSWER, b"data: {"], "dropped", "inside an event"),
    "done too early": (lambda: [*ANSWER, DONE], "answer", "before a finish_reason"),
    "text after the end": (
        lambda: [*ANSWER, event(finish="length"), event(LETTER), DONE],
        "answer",
        "after its finish_reason",
    ),
    "more after the end": (
        lambda: [*ANSWER, event(finish="length"), DONE, event(LETTER)],
        "answer",
        "after [DONE]",
    ),
    "shorter than it says": (
        lambda: [*ANSWER[:6], event(finish="length"), DONE],
        "answer",
        "with 6 tokens",
    ),
    "never ends": (lambda: for_ever(event(LETTER)), "answer", "more than the 10 tokens"),
    "silent for ever": (lambda: for_ever(b": ping\n\n" * 5000), "size", "limit"),
    "an endless line": (lambda: for_ever(b"data: " + b"x" * 65536), "size", "line"),
    "an endless event": (lambda: for_ever(b"data: " + b"x" * 9999 + b"\n"), "size", "event"),
    "filtered": (
        lambda: [*ANSWER, event(finish="content_filter"), DONE],
        "answer",
        "content_filter",
    ),
    "an error as an event": (
        lambda: [*ANSWER[:2], b'data: {"error": {"message": "out of memory"}}\n\n'],
        "status",
        "out of memory",
    ),
    "more claimed than said": (
        lambda: [*ANSWER, event(finish="length", usage={"completion_tokens": 400}), DONE],
        "answer",
        "usage claims 400",
    ),
    "fewer claimed than said": (
        lambda: [*ANSWER, event(finish="length", usage={"completion_tokens": 1}), DONE],
        "answer",
        "usage claims 1",
    ),
    "a claim that is none": (
        lambda: [*ANSWER, event(finish="length", usage={"completion_tokens": "ten"}), DONE],
        "form",
        "usage",
    ),
    "not JSON": (lambda: [b"data: hello\n\n"], "form", "not JSON"),
    "not UTF-8": (lambda: [b"data: \xff\n\n"], "form", "not UTF-8"),
    "two choices": (lambda: [b'data: {"choices": [{}, {}]}\n\n'], "form", "choices"),
    "no delta": (lambda: [b'data: {"choices": [{"text": "a"}]}\n\n'], "form", "delta"),
    "no text": (
        lambda: [b'data: {"choices": [{"delta": {"content": [1]}}]}\n\n'],
        "form",
        "wanted texts",
    ),
}


@pytest.fixture
def answered(tokenizer: Path, tmp_path: Path) -> Callable[..., list[int]]:
    """Tokens of one answer of a server that sends given parts."""

    def ask(parts: Any, limit: GenerationLimit = USUAL) -> list[int]:
        def act(peer: Any, head: bytes) -> None:
            peer.sendall(STREAM)
            for part in parts:
                peer.sendall(part)

        limits = {"connect_s": 2, "read_s": 2, "request_s": 8, "answer_bytes": 5_000_000}
        with serving(RawServer(act)) as address:
            folder = register(tmp_path / "e", address, "openai-chat", NAME, limits=limits)
            system = stacks.open_generator(SutSpec("openai", package=folder), tokenizer, "")
            with contextlib.closing(system):
                steps = list(system.generate([np.array([1, 2])], limit))
        assert {position for position, _ in steps} == {0}
        return [token for _, tokens in steps for token in tokens]

    return ask


@pytest.mark.parametrize(("parts", "kind", "text"), LIES.values(), ids=LIES)
def test_every_lie_has_its_name(
    answered: Callable[..., list[int]], parts: Callable[[], Any], kind: str, text: str
) -> None:
    with pytest.raises(EndpointError) as caught:
        answered(parts())
    assert caught.value.kind == kind, caught.value
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "tokens"),
    [
        ([*ANSWER, event(finish="length"), DONE], [7] * LIMIT),
        ([event(LETTER), event(LETTER, "stop"), DONE], [7, 7, END]),
        # Several tokens a piece, comments, other fields and carriage returns are the protocol too.
        (
            [
                b": hello\r\nid: 1\r\n",
                event(LETTER * 6).replace(b"\n", b"\r\n"),
                *ANSWER[:4],
                event(finish="length"),
                b"retry: 5\n\n",
                DONE,
            ],
            [7] * LIMIT,
        ),
        ([b"".join([*ANSWER, event(finish="length")])[:-1], b"\n" + DONE], [7] * LIMIT),
        ([event(""), *ANSWER, event(finish="stop"), DONE], [7] * LIMIT),
    ],
)
def test_honest_streams_are_read(
    answered: Callable[..., list[int]], parts: list[bytes], tokens: list[int]
) -> None:
    assert answered(parts) == tokens


def test_a_model_that_stops_needs_its_end_token_named(answered: Callable[..., list[int]]) -> None:
    with pytest.raises(EndpointError, match="name the model's end token"):
        answered([*ANSWER[:3], event(finish="stop"), DONE], GenerationLimit(LIMIT, None))


def test_pieces_keep_what_was_said_and_claimed() -> None:
    lines = b"".join([event("a"), event(None, "stop", usage={"completion_tokens": 2}), DONE])
    assert list(pieces(lines.split(b"\n"))) == [Piece("a"), Piece("", "stop", 2)]


LIMIT8 = GenerationLimit(8, 0)


@pytest.mark.parametrize(
    ("whole_text", "by_piece", "finish", "settled"),
    [
        ([5, 6, 7], [5, 6, 7], "stop", [5, 6, 7, 0]),
        # A token cut in two by the server: two more tokens by piece are still explained.
        ([5, 6, 7], [5, 1, 2, 7], "stop", [5, 1, 2, 7, 0]),
        ([1] * 8, [1] * 8, "length", [1] * 8),
        ([1] * 7, [1] * 8, "length", [1] * 8),
        ([1] * 8, [1] * 9, "length", [1] * 8),
    ],
)
def test_tokens_of_a_text(
    whole_text: list[int], by_piece: list[int], finish: str, settled: list[int]
) -> None:
    assert settle_tokens(whole_text, by_piece, finish, LIMIT8) == settled


@pytest.mark.parametrize(
    ("whole_text", "by_piece", "finish", "reason"),
    [
        # Pieces of one letter would make a model of four-letter tokens four times as fast.
        ([5, 6], [1, 2, 3, 4, 1, 2, 3, 4], "length", "pieces of 8 tokens"),
        ([1] * 6, [1] * 6, "length", "wanted 8"),
        # LoadGen was told of token 5: an answer that begins otherwise is another answer.
        ([9] * 8, [5] * 9, "length", "wanted 8"),
        ([1] * 9, [1] * 9, "stop", "wanted at most 8"),
        ([1], [1], None, "finish_reason None"),
    ],
)
def test_a_text_that_its_tokens_do_not_explain_is_refused(
    whole_text: list[int], by_piece: list[int], finish: str | None, reason: str
) -> None:
    with pytest.raises(EndpointError, match=reason):
        settle_tokens(whole_text, by_piece, finish, LIMIT8)


@pytest.mark.parametrize(("claimed", "fits"), [(None, True), (6, True), (8, True), (9, False)])
def test_a_claim_may_differ_by_what_retokenising_explains(claimed: int | None, fits: bool) -> None:
    limit = GenerationLimit(8, None)
    if fits:
        check_claim(claimed, [1] * 6, limit)
        return
    with pytest.raises(EndpointError, match="usage claims 9 tokens, its text has 6"):
        check_claim(claimed, [1] * 6, limit)


def test_a_model_that_the_server_does_not_list_is_refused(
    chat_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    with (
        serving(ChatServer(decode, "other")) as address,
        pytest.raises(StackError, match="answer: /models: wanted 'tiny' once, it lists other"),
    ):
        loadgen.run(chat_spec(address), tmp_path / "run")


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(StackError, match=r"no tokenizer\.json"):
        open_tokenizer(tmp_path / "tokenizer.json")


def test_a_chat_endpoint_has_no_embeddings(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no embeddings"):
        stacks.open_system(SutSpec("openai", package=str(tmp_path)), tmp_path, "")
