"""Where files lie: everything under IGNITION_HOME, written whole or not at all.

In: bytes and a place. Out: a file that is complete the moment it has its name (temporary file,
fsync, rename). Rows store paths relative to the home, so that the home can move. A run that was
killed leaves only `*.tmp` names, which `remove_stale` clears before the next run.
"""

import hashlib
import os
import shutil
from pathlib import Path

from django.conf import settings

CHUNK_BYTES = 1 << 20


class WorkspaceError(Exception):
    """A stored file is missing, has other bytes than recorded, or lies outside the home."""


def home() -> Path:
    """The folder everything lies under."""
    return Path(settings.IGNITION_HOME)


def relative(path: Path) -> str:
    """`path` as text relative to the home; WorkspaceError when it lies outside."""
    try:
        return path.resolve().relative_to(home().resolve()).as_posix()
    except ValueError as error:
        raise WorkspaceError(f"{path} lies outside {home()}") from error


def absolute(stored: str) -> Path:
    """The place of a stored relative path; WorkspaceError when it would leave the home."""
    path = (home() / stored).resolve()
    if not path.is_relative_to(home().resolve()):
        raise WorkspaceError(f"{stored} leads outside {home()}")
    return path


def sha256_file(path: Path) -> str:
    """Lower-case hex SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write `data` to `path` in one step: readers see the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    handle = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def remove_stale(folder: Path) -> list[str]:
    """Delete what a killed process left unfinished under `folder`; return the names.

    Unfinished are names that end in `.tmp` and hidden ones: every writer of the product builds
    beside the target under such a name and renames at the end. Locks stay. Only to be called
    when nobody else works under `folder`.
    """
    gone = []
    for path in sorted(folder.rglob("*")):
        stale = path.name.endswith(".tmp") or (
            path.name.startswith(".") and not path.name.endswith("lock")
        )
        if not stale:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.exists() or path.is_symlink():
            path.unlink()
        else:
            continue
        gone.append(path.name)
    return gone
