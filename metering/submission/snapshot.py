"""A folder or archive read once, safely, into memory: what is checked is what was read.

In: a path that a stranger may have prepared. Out: :class:`Snapshot`, relative paths to bytes, and
what was refused on the way. No link is followed, no archive is unpacked on disk, nothing past the
limits is read. Nothing here knows what the files mean.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metering.submission.finding import Finding

MOST_ENTRIES = 500
MOST_FILE_BYTES = 50 * 2**20
MOST_BYTES = 128 * 2**20
_DEEPEST = 12
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")


class SnapshotError(ValueError):
    """Nothing there that could be read; the message says what was wanted."""


@dataclass(frozen=True)
class Snapshot:
    """``files`` maps paths with forward slashes to content; ``faults`` are reasons to refuse."""

    files: Mapping[str, bytes]
    faults: tuple[Finding, ...]


class _Reader:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: list[Finding] = []
        self.entries = 0
        self.bytes = 0

    def fault(self, path: str, reason: str) -> None:
        self.faults.append(Finding(path, reason))

    def counted(self, path: str) -> bool:
        """One more entry; False when there are too many to go on."""
        self.entries += 1
        if self.entries == MOST_ENTRIES + 1:
            self.fault(path, f"more than {MOST_ENTRIES} entries; the rest was not read")
        return self.entries <= MOST_ENTRIES

    def fits(self, path: str, size: int) -> bool:
        if size > MOST_FILE_BYTES or self.bytes + size > MOST_BYTES:
            self.fault(path, f"{size} bytes; wanted at most {MOST_FILE_BYTES} and not read")
            return False
        return True

    def add(self, path: str, data: bytes) -> None:
        self.bytes += len(data)
        self.files[path] = data


def read(path: Path) -> Snapshot:
    """Read a folder, or a tar archive of one. Raises SnapshotError when it is neither."""
    try:
        if path.is_dir():
            return read_folder(path)
        if path.is_file():
            return read_archive(path)
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read ({error.strerror or error})") from error
    raise SnapshotError(f"{path}: nothing there; name a submission folder or a tar archive of one")


def read_folder(path: Path) -> Snapshot:
    """Read a folder without following any link inside it."""
    reader = _Reader()
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _walk(reader, root, "", 0)
    finally:
        os.close(root)
    return Snapshot(reader.files, tuple(reader.faults))


def _walk(reader: _Reader, folder: int, prefix: str, depth: int) -> None:
    names = sorted(_listed(folder))
    if not names:
        reader.fault(prefix.rstrip("/") or ".", "an empty folder")
    for name in names:
        path = prefix + name
        if not reader.counted(path):
            return
        if _PART.fullmatch(name) is None:
            reader.fault(_shown(path), "a name with characters a submission may not have")
            continue
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(kind):
            reader.fault(path, "a symbolic link; wanted plain files and folders only")
        elif stat.S_ISDIR(kind):
            if depth >= _DEEPEST:
                reader.fault(path, f"deeper than {_DEEPEST} folders; not read")
                continue
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                _walk(reader, inner, path + "/", depth + 1)
            finally:
                os.close(inner)
        elif stat.S_ISREG(kind):
            _read_file(reader, folder, name, path)
        else:
            reader.fault(path, "neither a file nor a folder")


def _listed(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count > MOST_ENTRIES:
                return
            yield entry.name


def _read_file(reader: _Reader, folder: int, name: str, path: str) -> None:
    # O_NOFOLLOW and O_NONBLOCK: the entry may have become a link or a pipe since it was looked at.
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            reader.fault(path, "neither a file nor a folder")
        elif status.st_nlink != 1:
            reader.fault(path, "a file with a second name (hard link)")
        elif reader.fits(path, status.st_size):
            reader.add(path, stream.read(status.st_size))


def read_archive(path: Path) -> Snapshot:
    """Read a tar archive, member by member, in memory. Raises SnapshotError when it is none."""
    reader = _Reader()
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if not _read_member(reader, archive, member):
                    break
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise SnapshotError(f"{path}: not a whole tar archive ({error})") from error
    return Snapshot(reader.files, tuple(reader.faults))


def _read_member(reader: _Reader, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Take one member; False to stop reading."""
    name = member.name.removeprefix("./").rstrip("/")
    shown = _shown(member.name)
    if not reader.counted(shown):
        return False
    if member.isdir():
        return True  # A folder matters for the files it holds.
    if name.startswith("/") or any(_PART.fullmatch(part) is None for part in name.split("/")):
        reader.fault(shown, "a path that leaves the archive or has characters it may not have")
    elif not member.isreg():
        reader.fault(shown, "a link or a special file; wanted plain files only")
    elif name in reader.files:
        reader.fault(shown, "in the archive twice")
    elif not reader.fits(shown, member.size):
        return False  # What is too long to read is also too long to skip.
    else:
        stream = archive.extractfile(member)
        if stream is not None:
            reader.add(name, stream.read())
    return True


def _shown(name: str) -> str:
    """A name fit for a terminal."""
    return ascii(name)[1:-1][:200]
