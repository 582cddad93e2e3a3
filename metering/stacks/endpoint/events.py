"""Server-sent events out of lines, and chat completions out of events.

In: the lines of a ``text/event-stream``. Out: what a streamed chat completion said, piece by piece,
and how it ended. Pure. What the server claims (usage, reason) is passed on as a claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from metering.stacks.endpoint.failure import EndpointError, quoted

DONE = "[DONE]"
_LONGEST_EVENT = 2**20


@dataclass(frozen=True)
class Piece:
    """One step: new text (perhaps none), why it ended if it did, tokens claimed if it said so."""

    text: str
    finish: str | None = None
    claimed_tokens: int | None = None


def event_data(lines: Iterable[bytes]) -> Iterator[str]:
    """Data of each event: lines ``data:`` joined by newlines, ended by an empty line (WHATWG HTML,
    "Server-sent events"). Comments and other fields are skipped. Raises EndpointError.
    """
    held: list[str] = []
    size = 0
    for raw in lines:
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            raise EndpointError("form", f"an event that is not UTF-8: {quoted(raw)}") from None
        if line == "":
            if held:
                yield "\n".join(held)
            held, size = [], 0
        elif line.startswith("data:"):
            held.append(line[5:].removeprefix(" "))
            size += len(line)
            if size > _LONGEST_EVENT:
                raise EndpointError("size", f"an event of more than {_LONGEST_EVENT} characters")
    if held:
        # An event without its empty line is one that was cut off.
        raise EndpointError("dropped", "the stream ended inside an event")


def pieces(lines: Iterable[bytes]) -> Iterator[Piece]:
    """Steps of one streamed completion, up to ``[DONE]``. Raises EndpointError.

    The lines are read to their end, so that the connection can carry the next request.
    """
    finished = done = False
    for data in event_data(lines):
        if done:
            raise EndpointError("answer", f"an event after {DONE}: {quoted(data)}")
        if data == DONE:
            if not finished:
                raise EndpointError("answer", f"{DONE} before a finish_reason")
            done = True
            continue
        piece = _piece(data)
        if finished and piece.text:
            raise EndpointError("answer", "text after its finish_reason")
        finished = finished or piece.finish is not None
        yield piece
    if not done:
        raise EndpointError("dropped", f"the stream ended before {DONE}")


def _piece(data: str) -> Piece:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise EndpointError("form", f"an event that is not JSON: {quoted(data)}") from None
    if not isinstance(value, Mapping):
        raise EndpointError("form", f"an event that is no object: {quoted(data)}")
    if "error" in value:
        raise EndpointError("status", f"the server reports {quoted(str(value['error']))}")
    choices = value.get("choices")
    if not isinstance(choices, list) or len(choices) > 1:
        raise EndpointError("form", f"choices: wanted none or one: {quoted(data)}")
    claimed = _claimed(value.get("usage"))
    if not choices:
        return Piece("", None, claimed)
    choice = choices[0]
    delta = choice.get("delta") if isinstance(choice, Mapping) else None
    if not isinstance(delta, Mapping):
        raise EndpointError("form", f"delta: wanted an object: {quoted(data)}")
    text, finish = delta.get("content") or "", choice.get("finish_reason")
    if not isinstance(text, str) or not (finish is None or isinstance(finish, str)):
        raise EndpointError("form", f"content and finish_reason: wanted texts: {quoted(data)}")
    return Piece(text, finish, claimed)


def _claimed(usage: Any) -> int | None:
    if usage is None:
        return None
    tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    if type(tokens) is not int or tokens < 0:
        raise EndpointError("form", f"usage: got {quoted(str(usage))}, wanted completion_tokens")
    return tokens
