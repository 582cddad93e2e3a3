"""Where a search builds, and how a finished package takes its place.

In: the path a package will have. Out: a private folder beside it that goes away again, even after a
kill: the next search for the same package removes what a dead one left, and puts back an old
package that was moved aside.
Never here: what is built.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEFT = re.compile(r"\.(work|old)\.(\d+)$")


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """A folder beside `out` (so that a rename is atomic), named by the process that owns it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    clear(out)
    folder = out.with_name(f".{out.name}.work.{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear(out: Path) -> None:
    """Remove what dead processes left beside `out`."""
    for path in sorted(out.parent.glob(f".{out.name}.*")):
        match = _LEFT.search(path.name)
        if match is None or _alive(int(match.group(2))):
            continue
        if match.group(1) == "old" and not out.exists():
            path.rename(out)
        else:
            shutil.rmtree(path, ignore_errors=True)


def move_into_place(folder: Path, out: Path) -> None:
    """`folder` becomes `out`; a package that was there is moved aside first and removed after."""
    folder.chmod(0o755)
    old = out.with_name(f".{out.name}.old.{os.getpid()}")
    if out.exists():
        out.rename(old)
    folder.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def _alive(pid: int) -> bool:
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()
