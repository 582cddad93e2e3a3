"""Files of a run: digests and whole-or-nothing writes.

In: bytes or JSON-able values. Out: files that are complete or absent, never half. Nothing here
knows what the files mean.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Digest of a file's present content; never cached, since evidence may be tampered with."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@functools.lru_cache(maxsize=256)
def _digest_of(path: str, size: int, mtime_ns: int, inode: int) -> str:
    return sha256_file(Path(path))


def sha256_input(path: Path) -> str:
    """Digest of a large input (a model), hashed again only when size, time or inode changed."""
    status = path.stat()
    return _digest_of(str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino)


def json_bytes(value: Any) -> bytes:
    """Deterministic JSON: sorted keys, one space of indent, UTF-8, a final newline."""
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def write_atomic(path: Path, data: bytes) -> None:
    """Write next to ``path``, flush to disk, then rename: a reader sees all of it or none."""
    for torn in path.parent.glob(f".{path.name}.*.tmp"):
        torn.unlink()  # Left by a process that was killed while it wrote; one writer per folder.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def write_json(path: Path, value: Any) -> str:
    """Write JSON whole; returns the SHA-256 of the bytes written."""
    data = json_bytes(value)
    write_atomic(path, data)
    return sha256_bytes(data)
