"""Nothing that the judge starts outlives it, whatever the moment at which it is killed.

bubblewrap's own `--die-with-parent` holds only some time after it runs: of 150 judges killed within
the first 30 ms of a start on a busy core, 19 left a sandbox behind for good.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from kernelgen.judge import sandbox
from kernelgen.targets import guard
from kernelgen.targets.compiler import compiler
from tests.quick import some

PROJECT = Path(__file__).resolve().parents[2]
MARKS = count()
FOREVER = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


@pytest.fixture
def mark() -> str:
    """Seconds that nobody else sleeps: they name the processes of one test."""
    return f"9{next(MARKS):03d}.{os.getpid():08d}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orphans")
    (folder / "forever.c").write_text(FOREVER)
    path = folder / "forever"
    subprocess.run([compiler(), "-o", str(path), str(folder / "forever.c")], check=True)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.getuid() == 0:
        for path in (tmp_path, *tmp_path.parents[:2]):
            path.chmod(0o755)
        os.chown(tmp_path, sandbox.candidate_uid(), sandbox.candidate_uid())
    return tmp_path


def marked(mark: str) -> list[int]:
    """Processes that have `mark` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue  # it ended while we looked
        if mark.encode() in words:
            found.append(int(entry.name))
    return found


def left(mark: str, limit_s: float) -> list[int]:
    """Marked processes that are still there when none is left or the time is up."""
    deadline = time.monotonic() + limit_s
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("way", ["confined", "plain", "tool", "compiler"])
def test_a_judge_killed_at_any_moment_leaves_nothing_behind(
    way: str, mark: str, program: Path, folder: Path
) -> None:
    judges = len(some(range(120), 15))
    words = ["-m", "tests.kernelgen.dying_judge", way, mark, program, folder, judges]
    subprocess.run([sys.executable, *map(str, words)], cwd=PROJECT, check=True)
    assert left(mark, 20.0) == []


def test_what_nobody_guards_is_seen_to_stay(mark: str) -> None:
    script = (
        "import subprocess, time\n"
        f"subprocess.Popen(['sleep', '{mark}'])\n"
        "print(flush=True)\n"
        "time.sleep(99)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        # Right after exec a command line reads as empty for a moment; the parent's is the second.
        deadline = time.monotonic() + 60
        while len(marked(mark)) < 2:
            assert time.monotonic() < deadline, "the unguarded program was never seen"
            time.sleep(0.01)
        parent.kill()
    found = left(mark, 0.2)
    for number in found:
        os.kill(number, signal.SIGKILL)
    assert len(found) == 1


def test_a_program_that_left_its_group_and_lost_its_parent_is_ended_too(mark: str) -> None:
    script = f"(setsid sleep {mark} & setsid sleep {mark} &) ; exec sleep {mark}"
    process = guard.start(["sh", "-c", script])
    while len(marked(mark)) < 4:  # the guard's own command line is the fourth
        time.sleep(0.01)
    assert guard.end(process) == 128 + signal.SIGKILL
    assert marked(mark) == []


def test_whoever_stays_when_the_program_ends_is_ended(mark: str) -> None:
    done = guard.run(["sh", "-c", f"setsid sleep {mark} > /dev/null 2>&1 & exit 3"], limit_s=20)
    assert done.returncode == 3
    assert marked(mark) == []


def test_a_guard_passes_on_how_its_program_ended() -> None:
    done = guard.run(["sh", "-c", "cat; echo words >&2; kill -SEGV $$"], limit_s=20, given=b"in")
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGSEGV, "in", "words\n")


def test_the_time_limit_ends_it_and_its_children(mark: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        guard.run(["sh", "-c", f"sleep {mark}; :"], limit_s=0.2)
    assert marked(mark) == []


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        guard.start(["no-such-program"])


def test_a_guard_whose_caller_is_gone_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "started"
    command = [str(guard._guard()), "1", "-1", "-1", "/usr/bin/touch", str(path)]
    assert subprocess.run(command, start_new_session=True, check=False).returncode == 137
    assert not path.exists()
