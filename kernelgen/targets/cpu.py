"""One generated C file becomes one shared object, within a time limit; GCC unless told otherwise.

In: C text, flags, a compiler. Out: a `CompileOutcome`. Never here: loading or running what was
built.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COMPILE_LIMIT_S = 60.0

BASE_FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-nostartfiles")


@dataclass(frozen=True)
class CompileOutcome:
    """`path` is None when the compiler refused or ran out of time; `stderr` then says why."""

    path: Path | None
    stderr: str
    seconds: float


def compiler() -> str:
    """Path of the C compiler. Raises `FileNotFoundError` with the next step when there is none."""
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        raise FileNotFoundError(
            "no C compiler on PATH: wanted gcc, install it (Debian: gcc libc6-dev)"
        )
    return found


@cache
def compiler_version() -> str:
    """First line of `gcc --version`; part of every key under which a timing is kept."""
    done = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def compile_shared(
    source: str,
    flags: Sequence[str],
    out: Path,
    *,
    limit_s: float = COMPILE_LIMIT_S,
    command: Sequence[str] | None = None,
) -> CompileOutcome:
    """Compile `source` to the shared object `out`; the C text is kept beside it as `<stem>.c`.

    The object appears under its name only when complete (atomic rename), so a reader never loads
    half a file. `command` is another compiler with its own fixed arguments, for example a cross
    compiler.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    text = out.with_suffix(".c")
    text.write_text(source, encoding="ascii")
    partial = out.with_name(f"{out.name}.{os.getpid()}.partial")
    words = [*(command or [compiler()]), *BASE_FLAGS, *flags, "-o", str(partial), str(text)]
    began = time.monotonic()
    # An own process group, so that a time-out also ends the compiler's children (cc1, as, ld).
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    try:
        _, raw = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        partial.unlink(missing_ok=True)
        return CompileOutcome(
            None, f"compile time limit of {limit_s:g} s reached", time.monotonic() - began
        )
    seconds = time.monotonic() - began
    stderr = raw.decode("utf-8", "replace")
    if child.returncode != 0:
        partial.unlink(missing_ok=True)
        return CompileOutcome(None, stderr or f"compiler exit {child.returncode}", seconds)
    os.replace(partial, out)
    return CompileOutcome(out, stderr, seconds)
