"""The sandbox against real programs: what they can see, touch and outlive, with bubblewrap and
without.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kernelgen.judge import sandbox
from kernelgen.targets.compiler import compiler

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "environment")) { for (char **e = environ; *e; e++) puts(*e); }
  if (!strcmp(what, "identity")) printf("%d %d\n", (int)getuid(), (int)getgid());
  if (!strcmp(what, "read")) { int f = open(argv[2], O_RDONLY); puts(f < 0 ? strerror(errno) :
  "OPENED"); } if (!strcmp(what, "write")) { int f = open(argv[2], O_WRONLY | O_CREAT, 0600); puts(f
  < 0 ? strerror(errno) : "OPENED"); } if (!strcmp(what, "socket")) { int s = socket(AF_INET,
  SOCK_STREAM, 0); puts(s < 0 ? strerror(errno) : "OPENED"); } if (!strcmp(what, "run")) {
  execl("/bin/sh", "sh", "-c", "echo SHELL", (char *)0); puts(strerror(errno)); } if (!strcmp(what,
  "kill")) { puts(kill(atoi(argv[2]), SIGKILL) ? strerror(errno) : "KILLED"); } if (!strcmp(what,
  "loop")) for (volatile int on = 1; on;) {} if (!strcmp(what, "flood")) for (;;)
  puts("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); if (!strcmp(what, "abort")) abort(); if
  (!strcmp(what, "segfault")) *(volatile int *)8 = 1; if (!strcmp(what, "linger") && fork() == 0) {
  setsid(); for (volatile int on = 1; on;) {} } fflush(stdout); return 7; }
"""

Run = Callable[..., sandbox.Outcome]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sandbox")
    source, path = folder / "program.c", folder / "program"
    source.write_text(PROGRAM)
    subprocess.run([compiler(), "-O1", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture(params=["bubblewrap", "plain"])
def run(request: pytest.FixtureRequest, program: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    if request.param == "plain":
        monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    else:
        # The test set-up installs it; a host where it cannot work must not pass unnoticed.
        assert sandbox.bubblewrap() is not None, "bubblewrap is missing or does not work here"

    def call(*words: str, limit_s: float = 5.0, **more: int) -> sandbox.Outcome:
        return _outcome(program, words, limit_s=limit_s, **more)

    return call


def _outcome(
    program: Path, words: Sequence[str], *, limit_s: float, output_bytes: int = 64 << 10
) -> sandbox.Outcome:
    """To the end, the wall limit or the output cap; stdout and stderr come back together."""
    read_end, write_end = os.pipe()
    began = time.monotonic()
    try:
        with os.fdopen(write_end, "wb") as sink:
            child = sandbox.start(program, words, stdout=sink)
        text, ended_by = sandbox.collect(read_end, began + limit_s, output_bytes)
    finally:
        os.close(read_end)
    left = max(0.0, began + limit_s - time.monotonic())
    if ended_by == "itself" and child.wait(left) is None:
        ended_by = "wall limit"
    errors = child.text()
    code = child.kill()
    whole = (text.decode("utf-8", "replace") + errors)[:output_bytes]
    return sandbox.Outcome(code, ended_by, whole, time.monotonic() - began)


def _walled(run: Run) -> bool:
    return sandbox.bubblewrap() is not None


def test_exit_code_and_signals_come_through(run: Run) -> None:
    assert run("nothing").returncode == 7
    assert run("abort").returncode == -6
    assert run("segfault").returncode == -11


def test_no_environment_passes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    outcome = run("environment")
    assert "hunter2" not in outcome.text
    assert set(outcome.text.split()) <= {"PWD=/"}


def test_the_wall_limit_ends_it(run: Run) -> None:
    outcome = run("loop", limit_s=0.5)
    assert outcome.ended_by == "wall limit"
    assert outcome.returncode == -9
    assert outcome.seconds < 3


def test_the_output_cap_ends_it(run: Run) -> None:
    outcome = run("flood", output_bytes=10_000)
    assert outcome.ended_by == "output cap"
    assert len(outcome.text) <= 10_000


@pytest.mark.skipif(os.getuid() != 0, reason="only root has to change its user")
def test_root_becomes_a_user_that_nobody_else_is(run: Run) -> None:
    number = str(sandbox.NOBODY if _walled(run) else sandbox.candidate_uid())
    assert run("identity").text.split() == [number, number]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has to change its user")
def test_outside_the_walls_it_is_that_user_too(program: Path) -> None:
    child = sandbox.start(program, ["loop"])
    try:
        owner = Path(f"/proc/{child.pid}").stat().st_uid
    finally:
        child.kill()
    assert owner == sandbox.candidate_uid()
    assert owner in sandbox.UNUSED_IDS
    with pytest.raises(KeyError):
        pwd.getpwuid(owner)


def test_only_the_c_library_is_visible(run: Run) -> None:
    if not _walled(run):
        assert "file system" in sandbox.protection.__wrapped__().missing
        return
    for path in ("/etc/passwd", "/root", "/home", str(Path(__file__))):
        assert "No such file" in run("read", path).text
    for path in ("/new", "/home/new", "/usr/lib/new"):
        assert "OPENED" not in run("write", path).text
    assert "SHELL" not in run("run").text


def test_no_socket(run: Run) -> None:
    if not _walled(run):
        assert "network namespace" in sandbox.protection.__wrapped__().missing
        return
    assert "not permitted" in run("socket").text


def test_it_cannot_signal_us(run: Run) -> None:
    if not _walled(run) and os.getuid() != 0:
        return  # same user and no wall: it could, and `protection` says so
    assert "KILLED" not in run("kill", str(os.getpid())).text


def test_nothing_outlives_the_run(run: Run, program: Path) -> None:
    if not _walled(run):
        return  # a new session escapes a process group; `protection` names the missing process list
    run("linger")
    time.sleep(0.1)
    alive = [
        entry
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _command(entry).endswith("run/exe\0linger\0")
    ]
    assert alive == []


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text()
    except OSError:
        return ""


def test_cpu_time_is_read_from_outside(program: Path) -> None:
    child = sandbox.start(program, ["loop"])
    try:
        time.sleep(0.3)
        first = child.cpu_ns()
        time.sleep(0.3)
        second = child.cpu_ns()
    finally:
        child.kill()
    assert first is not None
    assert second is not None
    assert second - first > 20_000_000


def test_a_frozen_program_uses_no_time_and_goes_on_after(program: Path) -> None:
    child = sandbox.start(program, ["loop"])
    try:
        time.sleep(0.2)
        child.freeze()
        first = child.cpu_ns()
        time.sleep(0.2)
        second = child.cpu_ns()
        child.thaw()
        time.sleep(0.3)
        third = child.cpu_ns()
    finally:
        child.kill()
    assert first is not None
    assert second is not None
    assert third is not None
    assert second == first
    assert third - second > 5_000_000


def test_freezing_one_that_has_ended_is_no_error(program: Path) -> None:
    child = sandbox.start(program, ["nothing"])
    child.wait(5.0)
    child.freeze()
    child.thaw()
    child.kill()


def test_protection_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    found = sandbox.protection.__wrapped__()
    assert found.name == "rlimits+seccomp"
    assert "file system" in found.text()
