"""The first process of a run: it forks the one that measures, and leaves nothing behind.

In: the process id of the supervisor. Out: the measuring process goes on; the warden sleeps until
that ends or the supervisor dies, kills whatever else the run started, whichever session it moved
to, and ends in the same way. It takes no time from a measurement: it only waits for signals.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import NoReturn

from metering.loadgen.processes import kill_children

EXIT_ORPHAN = 3
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_WAITED = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM)


def stand(supervisor: int) -> None:
    """Fork: returns in the measuring process alone, and only while ``supervisor`` lives."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    _die_with(supervisor, signal.SIGUSR1)
    warden = os.getpid()
    worker = os.fork()
    if worker:
        _guard(worker)
    # The kernel kills it with the warden, however the warden dies.
    _die_with(warden, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED)


def _die_with(parent: int, number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        # It died between starting us and the line above, so no signal will come.
        os._exit(EXIT_ORPHAN)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _guard(worker: int) -> NoReturn:
    while True:
        number = signal.sigwait(_WAITED)
        if number == signal.SIGUSR1:
            kill_children()
            os._exit(EXIT_ORPHAN)
        # SIGTERM goes to the whole group: the worker ends by it, and we with the worker.
        status = _ended(worker)
        if status is not None:
            kill_children()
            _end_as(status)


def _ended(worker: int) -> int | None:
    """Reap what ended, orphans of the run too; the wait status of the worker if it is among it."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in (0, worker):
            return status if pid else None


def _end_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(os.getpid(), -code)
    os._exit(EXIT_ORPHAN)
