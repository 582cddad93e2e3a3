"""Which compiler is here, and our own small C programs, compiled once per version of source and
compiler.

In: C files of this package. Out: executables in the user's cache. The programs started here end by
themselves within a moment; everything else is started through `guard`, which is built here.
Never here: kernels and other generated code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

BUILD_LIMIT_S = 120.0


def compiler() -> str:
    """Path of the C compiler. Raises `FileNotFoundError` with the next step when there is none."""
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        raise FileNotFoundError(
            "no C compiler on PATH: wanted gcc, install it (Debian: gcc libc6-dev)"
        )
    return found


def compiler_version() -> str:
    """First line of `gcc --version`; part of every key under which a timing is kept."""
    return version_of(compiler())


@cache
def version_of(program: str) -> str:
    """First line of `program --version`."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def own_program(
    source: Path, command: Sequence[str], end: Sequence[str] = (), *, key: str = ""
) -> Path:
    """Path of what `command` (a compiler and its flags) makes of `source`, from the cache where it
    has been made before. `end` follows the source on the command line; `key` is what else the
    result comes from.

    Raises `OSError` with the compiler's words.
    """
    words = (source.read_text(encoding="utf-8"), key, *command, *end, version_of(command[0]))
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()
    path = _cache() / f"{source.stem}-{digest[:32]}"
    if path.exists():
        return path
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    done = subprocess.run(
        [*command, "-o", str(partial), str(source), *end],
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
    )
    if done.returncode != 0:
        raise OSError(f"the compiler refused {source.name}: {done.stderr[-2000:]}")
    partial.replace(path)
    return path


@cache
def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "ignition-kernelgen"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    except OSError:
        pass  # a home nobody can write (a service account): a private folder serves this run
    return Path(tempfile.mkdtemp(prefix="ignition-kernelgen-"))
