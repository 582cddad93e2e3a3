"""One connection to one endpoint, with a limit on everything.

In: a checked target, networks, limits and perhaps a token. Out: the body of a 200 answer, whole or
by the line. Built on httpcore2, which follows no redirect, reads no proxy from the environment and
unpacks nothing; this module adds the address rules at the moment of connecting and one deadline
over a whole request, so that a server that sends a byte a second still ends. Used by one thread.
Nothing is tried twice: a second try would hide a failure and spoil a latency.
"""

from __future__ import annotations

import contextlib
import json
import math
import ssl
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpcore2

from metering.stacks.endpoint.address import Network, Target, resolve
from metering.stacks.endpoint.failure import EndpointError, quoted

_CHUNK = 64 * 1024
_LONGEST_LINE = 2**20


@dataclass(frozen=True)
class Limits:
    """Seconds to connect, for one read, and for a whole request; bytes of one answer."""

    connect_s: float = 5.0
    read_s: float = 30.0
    request_s: float = 120.0
    answer_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name in ("connect_s", "read_s", "request_s", "answer_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not 0 < value < math.inf:
                raise EndpointError("form", f"limits.{name}: got {value!r}, wanted above 0")


class _Deadline:
    """The moment the request in progress must have ended by."""

    def __init__(self) -> None:
        self.at = math.inf

    def within(self, seconds: float | None) -> float:
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout
        return left if seconds is None else min(seconds, left)


class _TimedStream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.within(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces, each against the deadline: a server that reads slowly is a slow server.
        view = memoryview(buffer)
        for start in range(0, len(view), _CHUNK):
            piece = bytes(view[start : start + _CHUNK])
            self._stream.write(piece, self._deadline.within(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        stream = self._stream.start_tls(
            ssl_context, server_hostname, self._deadline.within(timeout)
        )
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _CheckedBackend(httpcore2.NetworkBackend):
    """Resolves and checks by itself, and connects to the very address it checked."""

    def __init__(self, target: Target, networks: Sequence[Network], deadline: _Deadline) -> None:
        self._target, self._networks, self._deadline = target, networks, deadline
        self._plain = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        failed: Exception | None = None
        for address in resolve(self._target, self._networks):
            try:
                stream = self._plain.connect_tcp(
                    address, port, self._deadline.within(timeout), None, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
                continue
            return _TimedStream(stream, self._deadline)
        raise failed if failed is not None else httpcore2.ConnectError("no address")


class Client:
    """Requests to one endpoint. Every method raises EndpointError."""

    def __init__(
        self,
        target: Target,
        *,
        networks: Sequence[Network] = (),
        limits: Limits | None = None,
        token: str = "",
    ) -> None:
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            raise EndpointError("form", "token: wanted printable ASCII without spaces")
        self.target, self.limits = target, limits or Limits()
        self._token = token
        self._deadline = _Deadline()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl.create_default_context() if target.scheme == "https" else None,
            max_connections=1,
            retries=0,
            http2=False,
            network_backend=_CheckedBackend(target, networks, self._deadline),
        )

    def get_json(self, path: str) -> Any:
        """The JSON value at ``path`` under the endpoint's own path."""
        return self._json("GET", path, None)

    def post_json(self, path: str, value: Any) -> Any:
        return self._json("POST", path, value)

    def post_lines(self, path: str, value: Any) -> Generator[bytes, None, None]:
        """Lines of a streamed answer of events as they arrive, without their ends.

        Closing the generator early closes the connection.
        """
        with self._answer("POST", path, value, "text/event-stream") as chunks:
            rest = b""
            for chunk in chunks:
                *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    raise EndpointError(
                        "size", f"{path}: a line of more than {_LONGEST_LINE} bytes"
                    )
                yield from lines
            if rest:
                yield rest

    def close(self) -> None:
        self._pool.close()

    def _json(self, method: str, path: str, value: Any) -> Any:
        with self._answer(method, path, value, "application/json") as chunks:
            body = b"".join(chunks)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise EndpointError("form", f"{path}: not JSON ({quoted(str(error))})") from error

    @contextlib.contextmanager
    def _answer(self, method: str, path: str, value: Any, media: str) -> Iterator[Iterator[bytes]]:
        """Chunks of the body of a 200 answer of type ``media``, counted against the limit."""
        headers: dict[bytes | str, bytes | str] = {
            "Accept": media,
            "User-Agent": "ignition-measurement",
        }
        content = None
        if value is not None:
            content = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        limits = self.limits
        self._deadline.at = time.monotonic() + limits.request_s
        timeouts = {"connect": limits.connect_s, "read": limits.read_s, "write": limits.read_s}
        try:
            with self._pool.stream(
                method,
                f"{self.target.origin}{self.target.path}{path}",
                headers=headers,
                content=content,
                extensions={"timeout": {**timeouts, "pool": limits.connect_s}},
            ) as response:
                self._check(path, response, media)
                yield self._counted(path, response)
        except httpcore2.TimeoutException as error:
            raise EndpointError("timeout", f"{path}: {self._overdue(error)}") from error
        except httpcore2.ConnectError as error:
            raise EndpointError("connect", f"{self.target.origin}: {_reason(error)}") from error
        except httpcore2.NetworkError as error:
            raise EndpointError("dropped", f"{path}: {_reason(error)}") from error
        except httpcore2.RemoteProtocolError as error:
            text = _reason(error)
            kind = "dropped" if "disconnected" in text or "peer closed" in text else "form"
            raise EndpointError(kind, f"{path}: {text}") from error  # type: ignore[arg-type]
        except httpcore2.LocalProtocolError as error:
            raise EndpointError("form", f"{path}: {_reason(error)}") from error

    def _check(self, path: str, response: httpcore2.Response, media: str) -> None:
        headers = {
            name.lower().decode("latin-1"): text.decode("latin-1")
            for name, text in response.headers
        }
        if 300 <= response.status < 400:
            where = quoted(headers.get("location", "nowhere"))
            raise EndpointError(
                "redirect", f"{path}: {response.status} to {where}; register the final address"
            )
        if response.status != 200:
            said = b""
            for chunk in response.iter_stream():
                said += chunk
                if len(said) > 1000:
                    break
            raise EndpointError("status", f"{path}: {response.status}: {quoted(said)}")
        if headers.get("content-encoding", "identity") != "identity":
            raise EndpointError("form", f"{path}: an encoded body, which was not asked for")
        got = headers.get("content-type", "").partition(";")[0].strip().lower()
        if got != media:
            raise EndpointError("form", f"{path}: content type {quoted(got)!r}, wanted {media}")
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > self.limits.answer_bytes:
            raise self._too_large(path)

    def _counted(self, path: str, response: httpcore2.Response) -> Iterator[bytes]:
        total = 0
        for chunk in response.iter_stream():
            total += len(chunk)
            if total > self.limits.answer_bytes:
                raise self._too_large(path)
            yield chunk

    def _overdue(self, error: httpcore2.TimeoutException) -> str:
        if isinstance(error, httpcore2.ConnectTimeout):
            return f"no connection within {self.limits.connect_s:g} s"
        if time.monotonic() >= self._deadline.at:
            return f"no whole answer within {self.limits.request_s:g} s"
        return f"not a byte for {self.limits.read_s:g} s"

    def _too_large(self, path: str) -> EndpointError:
        return EndpointError(
            "size", f"{path}: more than the limit of {self.limits.answer_bytes} bytes"
        )


def _reason(error: Exception) -> str:
    return quoted(str(error)) or type(error).__name__
