"""Where a measuring process may connect to: the rules that keep a registered address from becoming
a way into the network it runs in (server-side request forgery).

In: a URL that a person registered, and the private networks an operator opened. Out: its parts, and
after resolution the addresses that may be connected to. Every address a name resolves to must be
allowed, and the one that was checked is the one that is used: a name that answers otherwise a
moment later changes nothing. Never here: a connection.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from metering.stacks.endpoint.failure import EndpointError, quoted

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")

# No operator opens these: machine metadata and credentials, and places that are nobody's.
_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "192.0.0.0/24",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "fe80::/10",
        "fec0::/10",
        "fd00:ec2::/32",
        "ff00::/8",
    )
)
# An IPv6 address that stands for an IPv4 one: judged by what it stands for.
_MAPPED = ipaddress.ip_network("::ffff:0:0/96")
# Translators whose far end cannot be known from the address.
_TRANSLATED = tuple(
    ipaddress.ip_network(text)
    for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)


@dataclass(frozen=True)
class Target:
    """Parts of a checked URL. ``path`` has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Parts of ``http(s)://host[:port][/path]`` and of nothing else. Raises EndpointError.

    User names, queries, fragments, escapes and spaces are refused: each has been used to make two
    programs read two hosts in one URL.
    """

    def refuse(wanted: str) -> EndpointError:
        return EndpointError("address", f"url: got {quoted(url)!r}, wanted {wanted}")

    if not url.isascii() or any(mark in url for mark in "\\@?#% \t\r\n"):
        raise refuse("http(s)://host[:port][/path] without user, query, fragment, escape or space")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refuse("a port from 1 to 65535") from None
    if parts.scheme not in _PORTS:
        raise refuse("http or https")
    host = parts.hostname or ""
    if not _is_literal(host) and not _HOST.fullmatch(host):
        raise refuse("a host name or an IP address")
    if port == 0:
        raise refuse("a port from 1 to 65535")
    if not _PATH.fullmatch(parts.path) or "/../" in f"{parts.path}/" or "/./" in f"{parts.path}/":
        raise refuse("a plain path")
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks in CIDR notation. Raises EndpointError."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise EndpointError("address", f"networks: {error}; wanted CIDR notation") from None


def check_address(text: str, networks: Sequence[Network]) -> None:
    """Raises EndpointError unless the address is public, or in a network that was opened."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address in _MAPPED:
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _NEVER if network.version == address.version):
        raise EndpointError("address", f"{text} is never connected to")
    if any(address in network for network in networks if network.version == address.version):
        return
    translated = any(
        address in network for network in _TRANSLATED if network.version == address.version
    )
    if translated or not address.is_global or address.is_multicast:
        raise EndpointError(
            "address",
            f"{text} is not public and in none of the networks the operator opened; "
            "name its network in the registration if it is meant",
        )


def resolve(target: Target, networks: Sequence[Network]) -> tuple[str, ...]:
    """Addresses of the target's host, each of them allowed. Raises EndpointError."""
    try:
        found = socket.getaddrinfo(
            target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except (OSError, UnicodeError) as error:
        raise EndpointError("connect", f"{target.host}: cannot be resolved ({error})") from error
    addresses = tuple(dict.fromkeys(str(item[4][0]) for item in found))
    for address in addresses:
        check_address(address, networks)
    return addresses


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
