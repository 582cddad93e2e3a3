"""Addresses a measuring process may connect to; each row is a way around such rules that was used
against some product (trust-anchors S4; trigger.dev#4172, koala73/worldmonitor#4677)."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from metering.stacks.endpoint.address import (
    Target,
    check_address,
    parse_networks,
    parse_url,
    resolve,
)
from metering.stacks.endpoint.failure import EndpointError


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://models.example", Target("http", "models.example", 80, "")),
        ("https://models.example/", Target("https", "models.example", 443, "")),
        ("https://models.example:8443/v1/", Target("https", "models.example", 8443, "/v1")),
        ("http://127.0.0.1:8000/a/b", Target("http", "127.0.0.1", 8000, "/a/b")),
        ("http://[2001:db8::1]:8000", Target("http", "2001:db8::1", 8000, "")),
    ],
)
def test_the_parts_of_a_url(url: str, target: Target) -> None:
    assert parse_url(url) == target


def test_an_ipv6_origin_keeps_its_brackets() -> None:
    assert parse_url("http://[2001:db8::1]:8000/v1").origin == "http://[2001:db8::1]:8000"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models.example",
        "ftp://models.example",
        "file:///etc/passwd",
        "gopher://models.example",
        "http://",
        "http://user@models.example",
        "http://user:secret@models.example",
        "http://models.example@evil.example",
        "http://evil.example\\@models.example",
        "http://models.example#@evil.example",
        "http://models.example/?next=http://evil.example",
        "http://models.example/%2e%2e/admin",
        "http://models.example/../admin",
        "http://models.example/a/./b",
        "http://models.example:0",
        "http://models.example:65536",
        "http://models.example:port",
        "http://models .example",
        "http://models.example\r\nHost: evil.example",
        "http://m\u00f6dels.example",
        "http://\u2460.example",
        "http://[::1",
        "http://-models.example",
    ],
)
def test_a_url_that_two_programs_may_read_differently_is_refused(url: str) -> None:
    with pytest.raises(EndpointError, match="wanted") as caught:
        parse_url(url)
    assert caught.value.kind == "address"


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_a_public_address_is_allowed(address: str) -> None:
    check_address(address, ())


PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.8",
    "172.16.5.4",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_needs_its_network_opened(address: str) -> None:
    with pytest.raises(EndpointError, match="none of the networks the operator opened"):
        check_address(address, ())


def test_an_opened_network_opens_itself_alone() -> None:
    networks = parse_networks(["10.0.0.0/8", "fd12::/16"])
    check_address("10.0.0.8", networks)
    check_address("::ffff:10.0.0.8", networks)
    check_address("fd12:3456::1", networks)
    for address in ("127.0.0.1", "192.168.1.1", "::1", "fc00::1"):
        with pytest.raises(EndpointError):
            check_address(address, networks)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "0.0.0.0",  # noqa: S104
        "::",
        "224.0.0.1",
        "255.255.255.255",
        "ff02::1",
    ],
)
def test_machine_metadata_and_nobodys_addresses_stay_closed(address: str) -> None:
    """Whatever an operator opens: one wide network must not open the credentials of the machine."""
    with pytest.raises(EndpointError, match="never connected to"):
        check_address(address, parse_networks(["0.0.0.0/0", "::/0"]))


def answers(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


TARGET = Target("http", "models.example", 80, "")


def test_one_bad_address_among_many_closes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "93.184.216.34", "93.184.216.35")
    assert resolve(TARGET, ()) == ("93.184.216.34", "93.184.216.35")
    answers(monkeypatch, "93.184.216.34", "127.0.0.1")
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1"):
        resolve(TARGET, ())


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1"])
def test_a_number_that_the_resolver_reads_as_an_address_is_judged_as_that(host: str) -> None:
    """The real resolver turns all four into 127.0.0.1."""
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1") as caught:
        resolve(parse_url(f"http://{host}:80"), ())
    assert caught.value.kind == "address"


def test_a_name_nobody_knows_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(EndpointError, match="cannot be resolved") as caught:
        resolve(TARGET, ())
    assert caught.value.kind == "connect"


@pytest.mark.parametrize("texts", [["10.0.0.1/8"], ["everything"], ["10.0.0.0/33"]])
def test_a_network_that_is_none_is_refused(texts: list[str]) -> None:
    with pytest.raises(EndpointError, match="CIDR"):
        parse_networks(texts)
