"""Which processes belong to one run, what they hold, and the end of them all.

In: a process id, or the run folder that every process of a run carries in its environment. Out:
process ids, bytes. Linux only; nothing here knows LoadGen.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

MARK = "IGNITION_RUN"
"""The environment variable whose value is the run folder."""

_ROUNDS = 100
_PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """The living and unreaped children of every thread of ``pid``."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """Children, their children and so on; ``pid`` itself is not among them."""
    found = children(pid)
    for child in found:  # The list grows while it is walked.
        found += children(child)
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that ``pids`` hold in RAM together; what two of them share counts twice."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


def disk_bytes(folder: Path) -> int:
    """Bytes on disk of every file in ``folder`` and below."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


def kill_children() -> None:
    """Kill and reap every descendant of this process, which must be a subreaper.

    The children of a child that dies become ours, so a few rounds reach all of them.
    """
    for _ in range(_ROUNDS):
        pids = children(os.getpid())
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def kill_marked(out: Path) -> None:
    """Kill every process that carries the mark of the run folder ``out``, wherever it went."""
    mark = f"{MARK}={out}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
