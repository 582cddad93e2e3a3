"""Child processes that cannot outlive this one, however it ends.

In: a command. Out: a process whose parent is the guard (`guard.c`): once this process is gone, even
by SIGKILL in the middle of a start, the guard ends the command and everything it has started.
Never here: walls around a program; those are `judge.sandbox`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from kernelgen.targets.compiler import compiler, own_program

SOURCE = Path(__file__).with_name("guard.c")
END_LIMIT_S = 10.0
_Stream = int | IO[bytes] | None


@cache
def _guard() -> Path:
    return own_program(SOURCE, (compiler(), "-O2", "-Wall"))


def start(
    words: Sequence[str],
    *,
    user: int | None = None,
    info: int | None = None,
    stdin: _Stream = subprocess.DEVNULL,
    stdout: _Stream = None,
    stderr: _Stream = None,
    keep: Sequence[int] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `words` in a process group of its own. `user` is the id the program (not its guard)
    runs under; `info` a descriptor that gets its process id as bubblewrap writes it; descriptors in
    `keep` stay open under their numbers.

    The process returned is the guard: it exits as the program does, with 128 + N for signal N, and
    is to be ended by `end`. Raises `FileNotFoundError` when there is no such program.
    """
    found = shutil.which(words[0])
    if found is None:
        raise FileNotFoundError(f"no program {words[0]!r} on PATH")
    given = [str(-1 if number is None else number) for number in (user, info)]
    return subprocess.Popen(
        [str(_guard()), str(os.getpid()), *given, found, *words[1:]],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(*keep, *(() if info is None else (info,))),
        cwd=folder,
        env=environment,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes]) -> int:
    """End the program and all it started, collect them, and return the exit code."""
    process.terminate()
    try:
        return process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()  # a guard that somebody stopped; its program asked to die with it
        return process.wait()


def run(
    words: Sequence[str],
    *,
    limit_s: float,
    given: bytes | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`words` to its end, with what it wrote.

    Raises `FileNotFoundError`, and `subprocess.TimeoutExpired` once it has been ended.
    """
    process = start(
        words,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        environment=environment,
    )
    try:
        out, err = process.communicate(given, timeout=limit_s)
    finally:
        if process.returncode is None:
            end(process)
            process.communicate()
    texts = [part.decode("utf-8", "replace") for part in (out, err)]
    return subprocess.CompletedProcess(list(words), process.returncode, *texts)
