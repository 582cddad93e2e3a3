"""Rules for every test: nothing leaves this machine, and nothing is timed beside another test.

The network guard refuses any connection that is not to loopback or a local socket, so that a test
that would pass only with internet access fails here first. How `-n 2` divides the tests is said in
side_by_side.py.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.side_by_side import SideBySide

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


WORKER = os.environ.get("PYTEST_XDIST_WORKER")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "SideBySide":
    from tests.side_by_side import SideBySide

    return SideBySide(config, log)


def pytest_sessionstart() -> None:
    if WORKER is not None:
        from tests.side_by_side import keep_off_the_first_core

        keep_off_the_first_core(WORKER)


@pytest.fixture(autouse=True, scope="session")
def _no_clock_beside_others() -> Iterator[None]:
    if WORKER is None:
        yield
        return
    from tests.side_by_side import no_clock

    with no_clock(WORKER):
        yield


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
