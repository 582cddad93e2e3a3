"""Rules for every test: nothing leaves this machine.

The network guard refuses any connection that is not to loopback or a local socket, so that a test
that would pass only with internet access fails here first.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parent.parent
# Models are fetched once by the test set-up (make models); tests read them and never download.
MODEL_CACHE = Path(os.environ.get("IGNITION_HOME", PROJECT / "var")) / "cache" / "models"


class NetworkForbiddenError(RuntimeError):
    """A test tried to reach beyond loopback."""


def _check(address: Any) -> None:
    if not isinstance(address, tuple):
        return  # a local (AF_UNIX) socket
    host = str(address[0])
    if host in ("", "localhost"):
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise NetworkForbiddenError(f"connection to {host!r}: tests may only use loopback")


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex

    def connect(self: socket.socket, address: Any) -> None:
        _check(address)
        real_connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        _check(address)
        return real_connect_ex(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket.socket, "connect_ex", connect_ex)
        yield


@pytest.fixture(scope="session")
def model_cache() -> Path:
    """Folder of the pinned models; a missing one fails with what to run."""
    if not MODEL_CACHE.is_dir():
        pytest.fail(f"no models in {MODEL_CACHE}: run 'make models' first")
    return MODEL_CACHE
