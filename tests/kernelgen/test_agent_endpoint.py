"""One exchange with a real local server that is good, slow, hostile, malformed or gone.

The server is a thread of this process and speaks HTTP over a real socket.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernelgen.agent.endpoint import Answer, Endpoint, EndpointError
from kernelgen.agent.options import endpoint

KEY = "sk-test-0123456789abcdef"
Script = Callable[[BaseHTTPRequestHandler, dict[str, object]], None]


COUNTED = {"prompt_tokens": 100, "completion_tokens": 20}


def completion(text: str, usage: object = COUNTED) -> bytes:
    """A chat completion as a server writes it."""
    return json.dumps(
        {
            "choices": [{"message": {"role": "assistant", "content": text}}],
            "usage": usage,
        }
    ).encode()


class Server:
    """Answers each request by the next script; the last one repeats. Keeps what was asked."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.asked: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                number = len(outer.asked)
                outer.asked.append(body)
                outer.headers.append(dict(self.headers))
                script = outer.scripts[min(number, len(outer.scripts) - 1)]
                try:
                    script(self, body)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client had enough, as it should

            def log_message(self, *words: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def send(
    data: bytes, status: int = 200, headers: dict[str, str] | None = None, kind: str = "json"
) -> Script:
    def script(handler: BaseHTTPRequestHandler, body: dict[str, object]) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", f"application/{kind}")
        handler.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return script


def says(text: str) -> Script:
    return send(completion(text))


def drip(piece: bytes, pause_s: float) -> Script:
    """Never ends, and never lets a socket time out."""

    def script(handler: BaseHTTPRequestHandler, body: dict[str, object]) -> None:
        handler.send_response(200)
        handler.end_headers()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(pause_s)

    return script


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def ask(server: Server, limit_s: float = 1.5, **changes: object) -> Answer:
    options: dict[str, object] = {"key": KEY, "limit_s": limit_s, "wait_s": 0.05, **changes}
    return Endpoint(server.url, "tiny", **options).ask([{"role": "user", "content": "hi"}], 7)  # type: ignore[arg-type]


def test_a_good_answer_comes_back_with_its_tokens(server: Server) -> None:
    server.scripts = [says("hello")]
    answer = ask(server)
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("hello", 100, 20)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.asked[0]["model"] == "tiny"
    assert server.asked[0]["stream"] is False


BOMB = gzip.compress(b"0" * (64 << 20))

REFUSED: dict[str, tuple[Script, str]] = {
    "redirect to another host": (
        send(b"", 302, {"Location": "http://192.0.2.1/v1/chat/completions"}),
        "redirect",
    ),
    "redirect to a file": (send(b"", 307, {"Location": "file:///etc/passwd"}), "redirect"),
    "gzip bomb": (send(BOMB, headers={"Content-Encoding": "gzip"}), "encoding"),
    "huge body": (send(b"[" * (2 << 20)), "too_large"),
    "no JSON": (send(b"<html>"), "malformed"),
    "deep JSON": (send(b"[" * 100_000), "malformed"),
    "no choices": (send(b'{"choices": []}'), "malformed"),
    "content is a number": (
        send(b'{"choices": [{"message": {"content": 7}}]}'),
        "malformed",
    ),
    "JSON of another kind": (send(b'"choices"'), "malformed"),
    "unauthorised": (send(b"no", 401), "status"),
    "always 500": (send(b"", 500), "status"),
    "429 with a long wait": (send(b"", 429, {"Retry-After": "3600"}), "status"),
    "a byte now and then": (drip(b" ", 0.05), "time_limit"),
    "endless stream": (drip(b"x" * 65536, 0.0), "too_large"),
    "never answers": (lambda handler, body: time.sleep(4), "time_limit"),
    "not HTTP": (lambda handler, body: handler.wfile.write(b"SSH-2.0-x\r\n\r\n"), "connection"),
    "closes at once": (lambda handler, body: handler.connection.close(), "connection"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_answer_is_an_error_within_the_time_limit(server: Server, name: str) -> None:
    script, kind = REFUSED[name]
    server.scripts = [script]
    began = time.monotonic()
    with pytest.raises(EndpointError) as caught:
        ask(server)
    assert caught.value.kind == kind
    assert time.monotonic() - began < 4
    assert KEY not in str(caught.value)


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.scripts = [send(b"", 429, {"Retry-After": "0"}), send(b"", 500), says("now")]
    assert ask(server).text == "now"
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "script",
    [says(f"your key is {KEY}"), send(f"bad key {KEY}".encode(), 401)],
    ids=["in an answer", "in an error"],
)
def test_a_key_that_a_server_sends_back_is_taken_out(server: Server, script: Script) -> None:
    server.scripts = [script]
    try:
        text = ask(server).text
    except EndpointError as error:
        text = str(error)
    assert KEY not in text
    assert "[key]" in text


@pytest.mark.parametrize("usage", [{"prompt_tokens": -5}, {"prompt_tokens": "many"}, [], "x"])
def test_token_counts_that_make_no_sense_are_estimated(server: Server, usage: object) -> None:
    server.scripts = [send(completion("four" * 10, usage))]
    answer = ask(server)
    assert not answer.counted
    assert answer.tokens_out == 10


@pytest.mark.parametrize(
    ("url", "key", "wanted"),
    [
        ("file:///etc/passwd", "", "http://HOST"),
        ("ftp://host/v1", "", "http://HOST"),
        ("http://user:secret-password@host/v1", "", "no user or password"),
        ("http://host:99999/v1", "", "port"),
        ("http://host/a b", "", "spaces"),
        ("http://host/v1", "line\nbreak-secret", "8 or more"),
        ("http://host/v1", "short", "8 or more"),
    ],
)
def test_a_wrong_configuration_is_named_without_its_secret(url: str, key: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted) as caught:
        Endpoint(url, "tiny", key)
    assert "secret" not in str(caught.value)


def test_the_environment_configures_and_options_go_first() -> None:
    environment = {
        "IGNITION_LLM_URL": "http://a/v1",
        "IGNITION_LLM_MODEL": "m",
        "IGNITION_LLM_KEY": KEY,
    }
    found = endpoint(None, None, None, environment)
    assert found is not None
    assert (found.url, found.model, found.key) == ("http://a/v1", "m", KEY)
    assert KEY not in repr(found)
    assert endpoint("http://b/v1", "n", None, environment) == Endpoint("http://b/v1", "n", KEY)
    assert endpoint(None, None, None, {}) is None
    with pytest.raises(ValueError, match="model"):
        endpoint("http://b/v1", None, None, {})
