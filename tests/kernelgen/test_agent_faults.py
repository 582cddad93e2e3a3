"""What a search does when the machine fails under it: full disk, killed compiler, killed candidate,
a server that goes away. Each loses at most the trial in flight; the best so far is kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from kernelgen.agent.bench import Bench
from kernelgen.agent.ledger import Ledger, append_line
from kernelgen.agent.llm import GIVE_UP, LanguageModel
from kernelgen.agent.options import Options
from kernelgen.agent.proposals import FAULT
from kernelgen.agent.proposers import standard
from kernelgen.agent.records import Records, Trial, read
from kernelgen.agent.search import FAULTS_IN_A_ROW, Limits, search
from kernelgen.agent.single import Single
from kernelgen.agent.transcript import Transcript
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine, describe
from kernelgen.ops import GemmBias
from kernelgen.ops.softmax import Softmax
from kernelgen.schedule import space
from tests.kernelgen.test_agent_endpoint import Server, says

CORE = min(os.sched_getaffinity(0))
OPERATOR = GemmBias(64, 128)
POINTS = (Point({"m": 48}),)
# Compiled in a tenth of the time; a product where there must be a compiler to catch at work.
ROW = Softmax(128)
ROW_POINTS = (Point({"m": 24}),)
LONG_S = 600
"""Budget of searches that something else ends, on the busiest machine too."""


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


def _bench(folder: Path, machine: Machine, work: Path | None = None, *, row: bool = False) -> Bench:
    return Bench(
        ROW if row else OPERATOR,
        ROW_POINTS if row else POINTS,
        machine=machine,
        core=CORE,
        work=work or folder / "work",
        ledger=Ledger(folder / "ledger.jsonl", Decimal(1), "USD"),
        records=Records(folder / "trials.jsonl"),
    )


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A real file system of 64 KiB (four blocks of it are its own)."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(folder)]
    subprocess.run(command, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system")


def _fill(path: Path) -> None:
    """Take every byte that is left, down to the last one."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 1024):
            pass


@needs_root
def test_a_full_disk_ends_the_search_with_the_best_kept(tmp_path: Path, machine: Machine) -> None:
    with small_disk(tmp_path / "disk") as disk:
        bench = _bench(disk, machine, tmp_path / "work", row=True)
        seen: list[Trial] = []

        def fill(trial: Trial) -> None:
            seen.append(trial)
            if len(seen) == 2:
                _fill(disk / "other")

        found = search(
            space(ROW, machine),
            bench,
            np.random.default_rng(1),
            budget_s=LONG_S,
            limits=Limits(trials=30),
            on_trial=fill,
        )
        assert found.ended == "faults"
        assert found.best is not None
        # A line may still fit into the last page of its file; then nothing does.
        assert [t.reason for t in found.trials[-FAULTS_IN_A_ROW:]] == [FAULT] * FAULTS_IN_A_ROW
        assert "No space left" in found.trials[-1].detail
        kept = list(read(disk / "trials.jsonl"))
        # What the file holds is what was stamped; a win that no disk took is a win all the same.
        assert [t.schedule for t in kept] == [t.schedule for t in found.trials if t.at]
        assert all(t.accepted or t.reason == FAULT for t in found.trials if not t.at)
        assert bench.unwritten >= 1
        (disk / "other").unlink()
        again = _bench(disk, machine, tmp_path / "work2", row=True)
        trial = again.evaluate(found.best, None, number=0, proposer="records")
        assert trial.accepted, trial


def _append_for_ever(path: Path) -> None:
    for number in count():
        append_line(path, {"number": number, "text": "x" * 500})


@needs_root
def test_a_line_that_does_not_fit_leaves_no_stump(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "lines.jsonl"
        with pytest.raises(OSError, match="No space left"):
            _append_for_ever(path)
        lines = path.read_bytes().splitlines(keepends=True)
        assert all(line.endswith(b"}\n") for line in lines)


def test_a_file_size_limit_is_told_in_one_line(tmp_path: Path) -> None:
    """The whole command in a process that may write no file above 8 KiB."""
    words = ["tune", "--op", "gemm_bias:k=64,n=128", "--shape", "m=48", "--trials", "6"]
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
        "from kernelgen.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("kills", "faults"), [(1, 0), (2, 1)])
def test_a_killed_compiler_costs_at_most_one_trial(
    kills: int, faults: int, tmp_path: Path, machine: Machine
) -> None:
    """SIGKILL to cc1 at its work: once is made good, twice in a row costs the trial."""
    choices = space(OPERATOR, machine)
    bench = _bench(tmp_path, machine)
    first = bench.evaluate(choices.default(), None, number=0, proposer="default")
    assert first.accepted, first
    with Hunter(b"cc1", str(tmp_path / "work").encode(), kills) as hunter:
        found = search(
            choices, bench, np.random.default_rng(1), budget_s=LONG_S, limits=Limits(trials=4)
        )
    assert hunter.killed == kills
    assert found.ended == "trials"
    assert found.best is not None, [(t.reason, t.detail[:300]) for t in found.trials]
    reasons = [trial.reason for trial in found.trials]
    assert reasons.count(FAULT) == faults, [t.detail[:200] for t in found.trials]
    assert "not_compiled" not in reasons


class Hunter:
    """A thread that kills (SIGKILL) so many of this process's descendants with these words."""

    def __init__(self, first: bytes, other: bytes, most: int) -> None:
        self._words = (first, other)
        self._most = most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._hunt)
        self.killed = 0

    def __enter__(self) -> Hunter:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _hunt(self) -> None:
        done: set[int] = set()
        while not self._stop.is_set() and self.killed < self._most:
            for pid in _descendants(os.getpid()):
                if pid not in done and self._is_game(pid):
                    os.kill(pid, signal.SIGKILL)
                    done.add(pid)
                    self.killed += 1
                    break
            time.sleep(0.003)

    def _is_game(self, pid: int) -> bool:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        program = line.partition(b"\0")[0]
        return program.endswith(self._words[0]) and self._words[1] in line


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue  # it ended between two looks
        for child in children:
            yield int(child)
            yield from _descendants(int(child))


def test_a_killed_candidate_is_not_blamed(tmp_path: Path, machine: Machine) -> None:
    choices = space(OPERATOR, machine)
    bench = _bench(tmp_path, machine)
    with Hunter(b"/run/exe", b"/run/kernel.so", 1) as hunter:
        trial = bench.evaluate(choices.default(), None, number=0, proposer="default")
    assert hunter.killed == 1, "the candidate was gone before it could be killed"
    assert trial.reason == FAULT, trial
    again = bench.evaluate(choices.default(), None, number=1, proposer="default")
    assert again.accepted, again


def test_a_server_that_goes_away_leaves_the_search_to_the_others(
    tmp_path: Path, machine: Machine
) -> None:
    from kernelgen.agent.endpoint import Endpoint

    server = Server()
    server.scripts = [says("no block at all")]
    bench = _bench(tmp_path, machine, row=True)
    line = Transcript(
        tmp_path / "answers.jsonl", Endpoint(server.url, "tiny", limit_s=1.0, wait_s=0.01).ask
    )
    model = LanguageModel(line, ROW, ROW_POINTS, machine, book=bench.book_tokens)

    def close(trial: Trial) -> None:
        if trial.proposer == "llm" and server.asked and trial.reason == "malformed_answer":
            server.close()

    found = search(
        space(ROW, machine),
        bench,
        np.random.default_rng(1),
        budget_s=LONG_S,
        proposers=(model, *standard()),
        limits=Limits(trials=9),
        on_trial=_once(close),
    )
    assert found.ended == "trials"
    assert found.best is not None
    reasons = [t.reason for t in found.trials if t.proposer == "llm"]
    assert reasons[0] == "malformed_answer"
    assert set(reasons[1:]) == {"no_answer"}
    assert reasons.count("no_answer") <= GIVE_UP
    assert sum(t.proposer not in ("llm", "default") for t in found.trials) >= 4


def _once(call: Callable[[Trial], None]) -> Callable[[Trial], None]:
    done: list[bool] = []

    def first(trial: Trial) -> None:
        if not done and trial.proposer == "llm":
            done.append(True)
            call(trial)

    return first


def test_a_killed_search_leaves_its_best_kernel(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["tune", "--op", "gemm_bias:k=64,n=128", "--shape", "m=48", "--budget", "9m"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelgen", *words, "--out", str(out), "--core", str(CORE)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(read(out / "trials.jsonl"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    trials = list(read(out / "trials.jsonl"))
    assert len(trials) >= 3
    best = [trial for trial in trials if trial.accepted][-1]
    assert best.schedule in (out / "kernel.c").read_text()
    again = Single.replay(out)
    assert [t.schedule for t in again.trials[: len(trials)]] == [t.schedule for t in trials]


def test_ctrl_c_keeps_the_best(tmp_path: Path, machine: Machine) -> None:
    single = Single(
        ROW,
        ROW_POINTS,
        machine,
        seed=0,
        budget_s=LONG_S,
        options=Options(),
        price_per_core_hour=Decimal(0),
    )

    def interrupt(trial: Trial) -> None:
        if trial.number == 2:
            raise KeyboardInterrupt

    found = single.run(tmp_path / "out", core=CORE, currency="USD", on_trial=interrupt)
    assert found.interrupted
    assert found.ended == "interrupted"
    assert found.best is not None
    assert found.best.text() in (tmp_path / "out" / "kernel.c").read_text()
    assert not (tmp_path / "out" / "work").exists()
