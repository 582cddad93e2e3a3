"""The processes of a run, found by what every one of them has in its environment."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


def alive(out: Path, within_s: float = 20.0) -> list[int]:
    """Processes that carry the mark of the run folder and are still there after a while."""
    deadline = time.monotonic() + within_s
    while (found := _marked(out)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _marked(out: Path) -> list[int]:
    mark = f"IGNITION_RUN={out}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
