"""An installed program, such as a compiler, run on text nobody trusts.

In: a command and a folder, the only place it can write to. Out: how it ended and what it said.
Never here: what the folder then holds, and candidates themselves (those run in `sandbox.start`).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from kernelgen.judge import sandbox
from kernelgen.targets import guard

CPU_LIMIT_S = 300
SYSTEM = ("",)
TOOLS = ("bin", "libexec", "local/bin", "local/libexec")
"""Folders below `/usr` that a tool may see: all of it, or programs alone (libraries always)."""


def run(
    command: Sequence[str],
    folder: Path,
    *,
    limit_s: float,
    memory_mib: int,
    file_mib: int,
    cpu_s: int = CPU_LIMIT_S,
    sees: Sequence[str] = SYSTEM,
) -> sandbox.Outcome:
    """Run an installed tool (a compiler) in `folder`, the only place it can write to.

    With bubblewrap it sees the folders `sees` below `/usr` read-only and `folder` as `/work`, no
    network and no environment.
    Without, it runs in `folder` as the candidate's user, with the same limits and nothing else.
    `folder` must belong to `candidate_uid()` when root calls.
    """
    # The shell counts memory in KiB and files in blocks of 512 bytes.
    limits = f"ulimit -v {memory_mib << 10}; ulimit -f {file_mib << 11}; ulimit -c 0; "
    # Soft below hard: a limit is then told from a kill by somebody.
    limits += f"ulimit -S -t {cpu_s}; ulimit -H -t {cpu_s + 5}"
    words = ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", *command]
    read_end, write_end = os.pipe()
    began = time.monotonic()
    try:
        with os.fdopen(write_end, "wb") as sink:
            child = _start_tool(words, folder, sink, sees)
        text, ended_by = sandbox.collect(read_end, began + limit_s, sandbox.TEXT_LIMIT_BYTES)
    finally:
        os.close(read_end)
    if ended_by == "itself" and child.wait(max(0.1, began + limit_s - time.monotonic())) is None:
        ended_by = "wall limit"
    code = child.kill()
    return sandbox.Outcome(
        code, ended_by, text.decode("utf-8", "replace"), time.monotonic() - began
    )


def _start_tool(
    words: Sequence[str], folder: Path, sink: IO[bytes], sees: Sequence[str]
) -> sandbox.Child:
    found = sandbox.bubblewrap()
    keep: list[int] = []
    where = str(folder)
    with ExitStack() as stack:
        if found is not None:
            where = "/"
            wall = [found, *sandbox.walls(with_proc=False)]
            for name in (f"/usr/{part}" for part in sees):
                wall += ["--ro-bind-try", name, name]
            wall += ["--tmpfs", "/tmp"]  # noqa: S108 - inside the walls, empty and private
            wall += ["--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "LC_ALL", "C"]
            wall += ["--dev", "/dev", "--symlink", "usr/bin", "/bin"]
            wall += ["--bind", str(folder), "/work", "--remount-ro", "/", "--chdir", "/work"]
            program = sandbox.seccomp_program(spawning=True)
            if program is not None:
                rules = stack.enter_context(tempfile.TemporaryFile())
                rules.write(program)
                rules.seek(0)
                keep.append(rules.fileno())
                wall += ["--seccomp", str(rules.fileno())]
            words = [*wall, *words]
        process = guard.start(
            words,
            user=sandbox.user(),
            stdout=sink,
            stderr=sink,
            keep=keep,
            folder=Path(where),
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
        )
    return sandbox.Child(process, None, None)
