"""One request against servers that misbehave: each ending has its name, and none takes for ever."""

from __future__ import annotations

import datetime
import gzip
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from metering.stacks.endpoint.address import parse_networks, parse_url
from metering.stacks.endpoint.client import Client, Limits
from metering.stacks.endpoint.failure import EndpointError, quoted
from tests.metering.measure.endpoint_servers import RawServer, serving

LOOPBACK = parse_networks(["127.0.0.0/8"])
LIMITS = Limits(connect_s=2, read_s=0.3, request_s=0.6, answer_bytes=100_000)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
Act = Callable[[socket.socket, bytes], None]


def sends(*parts: bytes) -> Act:
    def act(peer: socket.socket, head: bytes) -> None:
        for part in parts:
            peer.sendall(part)

    return act


def stalls(peer: socket.socket, head: bytes) -> None:
    peer.recv(1)  # Nothing comes until the client leaves.
    peer.recv(1)


def drips(start: bytes, drop: bytes) -> Act:
    """A byte at a time, each well within the limit of one read."""

    def act(peer: socket.socket, head: bytes) -> None:
        peer.sendall(start)
        while True:
            peer.sendall(drop)
            time.sleep(0.02)

    return act


def for_ever(start: bytes, part: bytes) -> Act:
    def act(peer: socket.socket, head: bytes) -> None:
        peer.sendall(start)
        while True:
            peer.sendall(part)

    return act


def body(data: bytes, extra: bytes = b"") -> bytes:
    return HEAD + extra + f"Content-Length: {len(data)}\r\n\r\n".encode() + data


CASES: dict[str, tuple[Act, str, str]] = {
    "no answer": (stalls, "timeout", "not a byte for 0.3 s"),
    "headers a byte at a time": (drips(HEAD, b"X"), "timeout", "no whole answer"),
    "body a byte at a time": (drips(CHUNKED, b"1\r\n \r\n"), "timeout", "no whole answer"),
    "continue, for ever": (
        drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "timeout",
        "no whole answer",
    ),
    "gone before an answer": (sends(), "dropped", "disconnected"),
    "gone inside the head": (sends(b"HTTP/1.1 200 O"), "dropped", ""),
    "gone inside the body": (sends(body(b"[1, 2, 3]")[:-4]), "dropped", "peer closed"),
    "gone inside a chunk": (sends(CHUNKED, b"ff\r\n[1, "), "dropped", "peer closed"),
    "another host": (
        sends(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n"),
        "redirect",
        "register the final address",
    ),
    "another host, same method": (
        sends(b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
        "redirect",
        "127.0.0.1:1",
    ),
    "an error page": (
        sends(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n\x1b[2Jhello"),
        "status",
        "503: ?[2Jhell",
    ),
    "an endless error page": (
        for_ever(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nwhy?\r\n"),
        "status",
        "500: why?why?",
    ),
    "no rights": (sends(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "status", "401"),
    "nothing to say": (sends(b"HTTP/1.1 204 No\r\n\r\n"), "status", "204"),
    "an endless body": (for_ever(CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n"), "size", "100000"),
    "a body that says it is endless": (
        sends(HEAD + b"Content-Length: 99999999999999999999\r\n\r\n"),
        "size",
        "100000",
    ),
    "endless headers": (for_ever(HEAD, b"X-More: " + b"y" * 1000 + b"\r\n"), "form", ""),
    "packed": (
        sends(body(gzip.compress(b" " * 10**6), b"Content-Encoding: gzip\r\n")),
        "form",
        "encoded",
    ),
    "not HTTP": (sends(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "form", ""),
    "two lengths": (
        sends(HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        "form",
        "Content-Length",
    ),
    "a page": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}"),
        "form",
        "text/html",
    ),
    "no JSON": (sends(body(b"{'a': 1}")), "form", "not JSON"),
    "too deep": (sends(body(b"[" * 50_000)), "form", "not JSON"),
    "too long a number": (sends(body(b"1" * 9_000)), "form", "not JSON"),
    "not UTF-8": (sends(body(b'"\xff"')), "form", "not JSON"),
}


@pytest.fixture
def ask() -> Iterator[Callable[..., Any]]:
    """Ask a raw server for JSON, with short limits."""
    clients = []

    def asked(address: str, value: Any = None, **options: Any) -> Any:
        client = Client(parse_url(address), **{"networks": LOOPBACK, "limits": LIMITS, **options})
        clients.append(client)
        return client.get_json("/x") if value is None else client.post_json("/x", value)

    yield asked
    for client in clients:
        client.close()


@pytest.mark.parametrize(("act", "kind", "text"), CASES.values(), ids=CASES)
def test_every_bad_ending_has_its_name(
    ask: Callable[..., Any], act: Act, kind: str, text: str
) -> None:
    server = RawServer(act)
    with serving(server) as address, pytest.raises(EndpointError) as caught:
        ask(address)
    assert caught.value.kind == kind, caught.value
    assert text in str(caught.value)
    assert str(caught.value).isprintable()
    # Neither a second try nor a visit elsewhere.
    assert server.came == 1


def test_a_good_answer_is_read(ask: Callable[..., Any]) -> None:
    server = RawServer(sends(CHUNKED, b"3\r\n[1,\r\n", b"3\r\n 2]\r\n0\r\n\r\n"))
    with serving(server) as address:
        assert ask(f"{address}/base", {"a": 1}) == [1, 2]
    head = server.heads[0].decode()
    assert head.startswith("POST /base/x HTTP/1.1\r\n")
    assert "gzip" not in head


def test_a_server_that_never_reads_ends_too(ask: Callable[..., Any]) -> None:
    def act(peer: socket.socket, head: bytes) -> None:
        time.sleep(1.5)

    limits = Limits(connect_s=2, read_s=5, request_s=0.5)
    with serving(RawServer(act)) as address, pytest.raises(EndpointError) as caught:
        ask(address, "x" * 30_000_000, limits=limits)
    assert caught.value.kind == "timeout"


def test_nobody_there_is_a_failed_connection(ask: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(EndpointError) as caught:
        ask(f"http://127.0.0.1:{port}")
    assert caught.value.kind == "connect"


def test_a_closed_network_is_not_even_knocked_at(ask: Callable[..., Any]) -> None:
    server = RawServer(sends(body(b"1")))
    with serving(server) as address, pytest.raises(EndpointError) as caught:
        ask(address, networks=())
    assert caught.value.kind == "address"
    assert server.came == 0


def test_a_name_is_resolved_once_and_the_checked_address_used(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebinding: a second look at the name would find the metadata service."""
    real, looks = socket.getaddrinfo, []

    def getaddrinfo(host: str, *rest: Any, **options: Any) -> list[Any]:
        looks.append(host)
        if host != "models.example":
            return real(host, *rest, **options)
        found = "127.0.0.1" if looks.count(host) == 1 else "169.254.169.254"
        return real(found, *rest, **options)

    server = RawServer(sends(body(b"[1]")))
    with serving(server) as address:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        assert ask(address.replace("127.0.0.1", "models.example")) == [1]
    assert looks.count("models.example") == 1
    assert b"Host: models.example" in server.heads[0]


def test_no_proxy_of_the_environment_is_used(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, server = RawServer(sends(body(b'"proxy"'))), RawServer(sends(body(b'"server"')))
    with serving(proxy) as there, serving(server) as here:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, there)
        assert ask(here) == "server"
    assert proxy.came == 0


def test_a_token_goes_to_the_server_and_nowhere_else(ask: Callable[..., Any]) -> None:
    server = RawServer(sends(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"))
    with serving(server) as address, pytest.raises(EndpointError) as caught:
        ask(address, token="secret-4711")
    assert b"Authorization: Bearer secret-4711" in server.heads[0]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["a b", "a\r\nX: y", "\u00fc"])
def test_a_token_that_would_break_a_header_is_refused(token: str) -> None:
    with pytest.raises(EndpointError, match="printable ASCII"):
        Client(parse_url("http://127.0.0.1"), token=token)


@pytest.mark.parametrize("field", ["connect_s", "read_s", "request_s", "answer_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), True])
def test_a_limit_that_is_none_is_refused(field: str, value: float) -> None:
    with pytest.raises(EndpointError, match=field):
        Limits(**{field: value})


def test_a_certificate_nobody_vouches_for_ends_the_connection(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (tmp_path / "both.pem").write_bytes(
        certificate.public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    handshakes: list[str] = []

    class TlsServer(RawServer):
        def get_request(self) -> Any:
            peer, where = self.socket.accept()
            try:
                return context.wrap_socket(peer, server_side=True), where
            except ssl.SSLError as error:
                handshakes.append(str(error))
                peer.close()
                raise

    server = TlsServer(sends(body(b"1")))
    with serving(server) as address, pytest.raises(EndpointError) as caught:
        ask(address.replace("http", "https"))
    assert caught.value.kind == "connect"
    assert "self-signed" in str(caught.value)
    assert server.heads == []


def test_foreign_text_is_quoted_short_and_printable() -> None:
    assert quoted("a\x1b[31m\u202eb\n") == "a?[31m?b?"
    assert quoted(b"\xff" * 4) == "????"
    assert len(quoted("x" * 10_000)) == 123
