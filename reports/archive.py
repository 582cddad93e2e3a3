"""The bundle's container: a zip that has exactly one form for given contents.

In: a folder, or a zip from a stranger. Out: the zip, or a folder of plain files that is safe to
read. Entries are stored, sorted, dated 1980-01-01, mode 0644, with no extra fields and no
comments; so the container can be rebuilt from its contents and compared with the file, and a
change to any byte of it, headers and dates included, is seen. Compression would tie the bytes to
one zlib and let a small file unpack into a huge one; it is refused.
Never call `extractall`: entries are streamed under caps after every name was judged.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from reports.errors import ReportError

MAX_ENTRIES = 5_000
MAX_ENTRY_BYTES = 256 << 20
MAX_TOTAL_BYTES = 1 << 30
_CHUNK = 1 << 20

# What zipfile lets through on hostile bytes, where it should say BadZipFile. A full disk under the
# folder is an OSError too; its own words stand in the refusal.
_UNREADABLE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,  # damaged deflate data
    struct.error,  # a header that is cut off
    EOFError,  # an entry that is cut off
    RuntimeError,  # an encrypted entry; as NotImplementedError, an unknown compression
    ValueError,  # a place before the file's begin; as UnicodeError, a name in no encoding
    OverflowError,  # a size that no integer of C holds
    OSError,  # a place that no file has
)

# 1980-01-01 00:00, the zero of zip dates.
_DOS_TIME, _DOS_DATE = 0, (1 << 5) | 1
_VERSION = 20
_MADE_BY = (3 << 8) | _VERSION  # Unix, so that the mode below is read
_MODE = 0o100644 << 16
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+=,-]*")
_DRIVE = re.compile(r"[A-Za-z]:")


def require_safe_name(name: str) -> str:
    """The name, if it is a plain relative path that means the same on every system.

    Raises ReportError for traversal, absolute and drive paths, backslashes, control characters,
    anything outside A-Z a-z 0-9 . _ @ + = , - or a segment that starts with a dot or a dash.
    """
    if not name or len(name) > 200:
        raise ReportError(f"entry name {name!r:.80} must have 1 to 200 characters")
    if "\\" in name:
        raise ReportError(f"entry name {name!r} holds a backslash")
    if name.startswith("/"):
        raise ReportError(f"entry name {name!r} is absolute")
    if _DRIVE.match(name):
        raise ReportError(f"entry name {name!r} names a drive")
    if ".." in name.split("/"):
        raise ReportError(f"entry name {name!r} leaves the folder (traversal)")
    if any(not _SEGMENT.fullmatch(segment) for segment in name.split("/")):
        raise ReportError(f"entry name {name!r} holds a character or a part that is not allowed")
    return name


def files_under(folder: Path) -> tuple[str, ...]:
    """Relative names of all files, sorted. Raises ReportError for links and special files."""
    names = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ReportError(f"{name} is a link or a special file; only plain files may be kept")
        if path.is_file():
            names.append(require_safe_name(name))
    return tuple(sorted(names))


def pack(folder: Path, names: tuple[str, ...] | None = None) -> Iterator[bytes]:
    """The one zip of these files, in pieces. Sizes are bounded by the caps above."""
    chosen = files_under(folder) if names is None else tuple(sorted(names))
    if not 0 < len(chosen) <= MAX_ENTRIES:
        raise ReportError(f"a bundle holds 1 to {MAX_ENTRIES} files, got {len(chosen)}")
    directory, offset = b"", 0
    for name in chosen:
        path = folder / name
        size = path.stat().st_size
        if size > MAX_ENTRY_BYTES or offset + size > MAX_TOTAL_BYTES:
            raise ReportError(f"{name} makes the bundle too big ({size} bytes)")
        checksum = 0
        for chunk in _chunks(path):
            checksum = zlib.crc32(chunk, checksum)
        encoded = name.encode("ascii")
        shared = struct.pack(
            "<HHHHHIIIHH",
            *(_VERSION, 0, 0, _DOS_TIME, _DOS_DATE),
            *(checksum, size, size, len(encoded), 0),
        )
        yield b"PK\x03\x04" + shared + encoded
        yield from _chunks(path)
        directory += b"PK\x01\x02" + struct.pack("<H", _MADE_BY) + shared
        directory += struct.pack("<HHHII", 0, 0, 0, _MODE, offset) + encoded
        offset += 4 + len(shared) + len(encoded) + size
    yield directory
    count = len(chosen)
    yield b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), offset, 0)


def write(folder: Path, target: Path) -> None:
    """Write the zip of `folder` to `target`, whole or not at all."""
    temporary = target.with_name(f".{target.name}.part")
    with temporary.open("wb") as stream:
        for piece in pack(folder):
            stream.write(piece)
    temporary.replace(target)


def unpack(bundle: Path, folder: Path) -> tuple[str, ...]:
    """Stream the entries of `bundle` into the empty `folder`; returns their names.

    Raises ReportError for a zip that is not exactly what `pack` would make of its contents.
    """
    if bundle.stat().st_size > MAX_TOTAL_BYTES + (1 << 22):
        raise ReportError(f"bundle has {bundle.stat().st_size} bytes, at most {MAX_TOTAL_BYTES}")
    try:
        with zipfile.ZipFile(bundle) as archive:
            names = _judge(archive.infolist())
            for info in archive.infolist():
                _extract(archive, info, folder / PurePosixPath(info.filename))
    except _UNREADABLE as error:
        raise ReportError(f"not a readable zip: {error}") from error
    _require_canonical(bundle, folder, names)
    return names


def _judge(entries: list[zipfile.ZipInfo]) -> tuple[str, ...]:
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise ReportError(f"zip holds {len(entries)} entries, wanted 1 to {MAX_ENTRIES}")
    seen: set[str] = set()
    total = 0
    for info in entries:
        # The name as stored: zipfile itself turns backslashes and NUL into something else.
        name = require_safe_name(info.orig_filename)
        if info.filename != name:
            raise ReportError(f"entry name {name!r} is read in two ways")
        if name.casefold() in seen:
            raise ReportError(f"entry {name!r} appears twice")
        seen.add(name.casefold())
        kind = (info.external_attr >> 16) & 0o170000
        if kind != 0o100000:
            raise ReportError(f"entry {name!r} is a link, a folder or a special file")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ReportError(f"entry {name!r} is compressed; a bundle stores its files")
        total += info.file_size
        if info.file_size > MAX_ENTRY_BYTES or total > MAX_TOTAL_BYTES:
            raise ReportError(f"entry {name!r} is too big ({info.file_size} bytes)")
    for name in seen:
        for parent in PurePosixPath(name).parents:
            if str(parent) in seen:
                raise ReportError(f"entry {name!r} lies under another entry that is a file")
    return tuple(info.filename for info in entries)


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, path.open("xb") as target:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise ReportError(f"entry {info.filename!r} is bigger than it says")
            target.write(chunk)
    if left:
        raise ReportError(f"entry {info.filename!r} is smaller than it says")


def _require_canonical(bundle: Path, folder: Path, names: tuple[str, ...]) -> None:
    with bundle.open("rb") as stream:
        for piece in pack(folder, names):
            if stream.read(len(piece)) != piece:
                raise ReportError(
                    "the container is not the one form its contents have (an entry is out of "
                    "order, or a header, date, attribute or offset was changed)"
                )
        if stream.read(1):
            raise ReportError("the container goes on after its end")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
