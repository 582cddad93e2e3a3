"""One generated C file becomes one shared object, within a time limit; GCC unless told otherwise.

In: C text, flags, a compiler. Out: a `CompileOutcome`. Never here: loading or running what was
built.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgen.targets import guard
from kernelgen.targets.compiler import compiler

COMPILE_LIMIT_S = 60.0

BASE_FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-nostartfiles")


@dataclass(frozen=True)
class CompileOutcome:
    """`path` is None when the compiler refused or ran out of time; `stderr` then says why."""

    path: Path | None
    stderr: str
    seconds: float


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
    try:
        done = guard.run(words, limit_s=limit_s, environment={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        partial.unlink(missing_ok=True)
        return CompileOutcome(
            None, f"compile time limit of {limit_s:g} s reached", time.monotonic() - began
        )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        return CompileOutcome(None, done.stderr or f"compiler exit {done.returncode}", seconds)
    os.replace(partial, out)
    return CompileOutcome(out, done.stderr, seconds)
