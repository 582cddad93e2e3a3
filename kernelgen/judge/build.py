"""The harness executable, compiled once per version of its source and compiler.

In: `harness.c` next to this file. Out: the path of an executable in the user's cache.
Never here: candidate code.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from kernelgen.judge.verdict import JudgeError
from kernelgen.targets.cpu import compiler, compiler_version

SOURCE = Path(__file__).with_name("harness.c")
PLAIN = ("-O2", "-Wall")
SANITIZED = ("-O1", "-g", "-DSANITIZE", "-fsanitize=address,undefined")


@cache
def harness(*, sanitize: bool = False) -> Path:
    """Path of the harness. Raises `JudgeError` with the compiler's words when it cannot be built.
    """
    flags = SANITIZED if sanitize else PLAIN
    key = hashlib.sha256(
        b"\0".join([SOURCE.read_bytes(), " ".join(flags).encode(), compiler_version().encode()])
    ).hexdigest()
    path = _folder() / f"harness-{key[:32]}"
    if path.exists():
        return path
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    command = [
        compiler(),
        *flags,
        "-o",
        str(partial),
        str(SOURCE),
        "-ldl",
        "-Wl,--no-as-needed",
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise JudgeError(f"harness: the compiler refused {SOURCE.name}: {done.stderr[-2000:]}")
    partial.replace(path)
    return path


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "ignition-kernelgen"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    except OSError:
        pass  # a home nobody can write (a service account): a private folder serves this run
    return Path(tempfile.mkdtemp(prefix="ignition-kernelgen-"))
