"""Judges that are killed while they start a child: what `test_orphans.py` counts the remains of.

In, as words: how to start, a mark that ends up in the child's command line, a program that runs for
ever, a folder, how many judges. Each is a fork of this process and dies by SIGKILL, a little later
than the one before. Never here: counting.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from kernelgen.judge import sandbox, tool
from kernelgen.targets.cpu import compile_shared

LAST_S = 0.08
"""Well past the moment at which the child of an idle machine is up and running."""

NEIGHBOURS = 2


def _confined(mark: str, program: Path, _folder: Path) -> None:
    sandbox.start(program, [mark])


def _plain(mark: str, program: Path, _folder: Path) -> None:
    sandbox.bubblewrap = lambda: None  # type: ignore[assignment]
    sandbox.start(program, [mark])


def _tool(mark: str, _program: Path, folder: Path) -> None:
    # A compiler driver, too, is a program that waits for others.
    tool.run(
        ["/bin/sh", "-c", f"sleep {mark}; :"], folder, limit_s=99.0, memory_mib=512, file_mib=1
    )


def _compiler(mark: str, _program: Path, folder: Path) -> None:
    command = ["/bin/sh", "-c", f"sleep {mark}; :"]
    compile_shared("", (), folder / f"{os.getpid()}.so", command=command)


WAYS: Mapping[str, Callable[[str, Path, Path], None]] = {
    "confined": _confined,
    "plain": _plain,
    "tool": _tool,
    "compiler": _compiler,
}


def fork(work: Callable[[], None]) -> int:
    number = os.fork()
    if number == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return number


def busy() -> None:
    while True:
        pass


def main(way: str, mark: str, program: Path, folder: Path, judges: int) -> None:
    # One core for all of them, and neighbours on it: a start then takes long, in many turns.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sandbox.protection()
    sandbox.seccomp_program(spawning=True)

    def judge() -> None:
        os.write(ready, b"x")
        WAYS[way](mark, program, folder)
        signal.pause()

    neighbours = [fork(busy) for _ in range(NEIGHBOURS)]
    seen, ready = os.pipe()
    try:
        for turn in range(judges):
            number = fork(judge)
            os.read(seen, 1)
            time.sleep(LAST_S * turn / judges)
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
    finally:
        for number in neighbours:
            os.kill(number, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
