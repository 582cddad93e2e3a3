"""One exchange with an OpenAI-compatible server that may be slow, wrong or hostile.

In: an address, a model name and a key from the operator's own configuration; messages. Out: the
text of the answer with its tokens, or an `EndpointError` with a reason.
Limits hold whatever the server does: one wall-time limit over connecting, sending and reading (also
for a byte a second), one limit on bytes, no redirects, no compressed bodies, `http` and `https`
only, no proxy from the environment. The key goes into one header and nowhere else; it is removed
from every text that comes back.
Never here: what is asked; whether an answer is any good.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

ANSWER_LIMIT_BYTES = 512 << 10
EXCHANGE_LIMIT_S = 120.0
MOST_TOKENS = 8192
TRIES = 3
"""Tries in one exchange when the server says "later" (429, 500, 502, 503, 504)."""

WAIT_S = 1.0
"""Before the second try; doubled for the third. A server's Retry-After is followed if shorter than
what is left of the exchange's time.
"""

LATER = frozenset({429, 500, 502, 503, 504})
MOST_COUNTED = 10_000_000

_KEY = re.compile(r"^[A-Za-z0-9._~+/=-]{8,}\Z")

Message = Mapping[str, str]


class EndpointError(RuntimeError):
    """No usable answer. `kind` is stable: connection, time_limit, too_large, redirect, status,
    encoding, malformed.
    """

    def __init__(self, kind: str, detail: str, *, tokens_in: int = 0, tokens_out: int = 0) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out


@dataclass(frozen=True)
class Answer:
    """`counted` is false where the server gave no token counts and they were estimated (a token for
    four characters).
    """

    text: str
    tokens_in: int
    tokens_out: int
    counted: bool


@dataclass(frozen=True)
class Endpoint:
    """Where a language model is. `url` is the API's base, as `http://host:8000/v1`."""

    url: str
    model: str
    key: str = field(default="", repr=False)
    limit_s: float = EXCHANGE_LIMIT_S
    limit_bytes: int = ANSWER_LIMIT_BYTES
    wait_s: float = WAIT_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        shown = f"{parts.scheme}://{parts.hostname or ''}"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"language model URL: got {shown!r}, wanted http://HOST or https://HOST"
            )
        if parts.username is not None or parts.password is not None:
            raise ValueError("language model URL: wanted no user or password in it; use the key")
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"language model URL {shown}: the port is no number") from None
        if port == 0 or not self.url.isascii() or any(c.isspace() for c in self.url):
            raise ValueError(f"language model URL {shown}: wanted plain ASCII without spaces")
        if not self.model:
            raise ValueError("language model: got no model name, wanted the server's name for it")
        # http.client would name the whole header, key included, in its own complaint.
        # Too short a key could not be taken out of an answer without harm to the answer.
        if self.key and not _KEY.match(self.key):
            raise ValueError(
                "language model key: wanted 8 or more of A-Z a-z 0-9 . _ ~ + / = - or none"
            )

    def ask(self, messages: Sequence[Message], seed: int) -> Answer:
        """One answer. Raises `EndpointError`; nothing a server does raises anything else."""
        deadline = time.monotonic() + self.limit_s
        body = json.dumps(
            {
                "model": self.model,
                "messages": [dict(message) for message in messages],
                "max_tokens": MOST_TOKENS,
                "temperature": 0.7,
                "seed": seed,
                "stream": False,
            }
        ).encode()
        asked = sum(len(message["content"]) for message in messages)
        for number in range(TRIES):
            status, headers, raw = self._exchange(body, deadline)
            if status == 200:
                return self._read(headers, raw, asked)
            if status not in LATER or number == TRIES - 1:
                break
            pause = _pause(headers, self.wait_s * 2**number)
            if time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        if 300 <= status < 400:
            raise EndpointError("redirect", f"status {status}; redirects are not followed")
        shown = self._clean(raw.decode("utf-8", "replace"))[:300]
        raise EndpointError("status", f"{status} {shown}".strip())

    def _exchange(self, body: bytes, deadline: float) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        left = deadline - time.monotonic()
        if left <= 0:
            raise EndpointError("time_limit", f"no answer within {self.limit_s:g} s")
        link = kind(str(parts.hostname), parts.port, timeout=left)
        path = parts.path.rstrip("/") + "/chat/completions"
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        cut = threading.Event()
        held: list[socket.socket] = []

        def end() -> None:
            # A reader that waits for a byte a second never meets a socket time-out of its own.
            cut.set()
            for open_socket in held:
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)

        watch = threading.Timer(left, end)
        watch.daemon = True
        watch.start()
        try:
            link.connect()
            held.append(link.sock)  # the connection forgets it once the answer has begun
            query = f"?{parts.query}" if parts.query else ""
            link.request("POST", path + query, body, headers)
            with link.getresponse() as answer:
                found = {name.lower(): value for name, value in answer.getheaders()}
                raw = self._body(answer)
            if cut.is_set():
                raise EndpointError("time_limit", f"no whole answer within {self.limit_s:g} s")
            return answer.status, found, raw
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            if cut.is_set() or isinstance(error, TimeoutError):
                raise EndpointError(
                    "time_limit", f"no whole answer within {self.limit_s:g} s"
                ) from None
            words = self._clean(f"{type(error).__name__} {error}")
            raise EndpointError("connection", words[:300]) from None
        finally:
            watch.cancel()
            link.close()
            for open_socket in held:
                open_socket.close()

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        while chunk := answer.read1(65536):
            parts.append(chunk)
            size += len(chunk)
            if size > self.limit_bytes:
                raise EndpointError("too_large", f"the answer has over {self.limit_bytes} bytes")
        return b"".join(parts)

    def _read(self, headers: Mapping[str, str], raw: bytes, asked: int) -> Answer:
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise EndpointError("encoding", f"a body in {encoding[:40]!r}; wanted it plain")
        guess_in, guess_out = asked // 4, len(raw) // 4
        try:
            data = json.loads(raw)
            text = data["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise EndpointError(
                "malformed",
                f"no chat completion in the answer ({type(error).__name__})",
                tokens_in=guess_in,
                tokens_out=guess_out,
            ) from None
        if not isinstance(text, str):
            raise EndpointError(
                "malformed",
                "the answer's content is no text",
                tokens_in=guess_in,
                tokens_out=guess_out,
            )
        usage = data.get("usage") if isinstance(data, dict) else None
        sent, answered = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        counted = sent is not None and answered is not None
        return Answer(
            self._clean(text),
            guess_in if sent is None else sent,
            len(text) // 4 if answered is None else answered,
            counted,
        )

    def _clean(self, text: str) -> str:
        """The text without the key, which a server knows and may send back."""
        if not self.key:
            return text
        return text.replace(self.key, "[key]").replace(self.key.replace("/", "\\/"), "[key]")


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    sane = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNTED
    return value if sane else None


def _pause(headers: Mapping[str, str], usual: float) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return usual
