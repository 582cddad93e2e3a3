"""A child process for code nobody trusts: no network, no environment, no files beyond the C
library.

In: an executable, arguments, open descriptors. Out: a `Child` to talk to, which ends with this
process, however that ends (`targets.guard`). Root starts it under a user id that belongs to nobody
else. With bubblewrap: new user, pid, network, mount and IPC
namespaces, no capabilities, a root made of the C library and nothing else, a seccomp filter.
Without it: own process group, and the harness's own limits and filter; `protection()` then says
what is missing.
Never here: what the child's answers mean.
"""

from __future__ import annotations

import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from kernelgen.targets import guard

NOBODY = 65534
"""What a child sees as its own user id inside bubblewrap; outside it is `candidate_uid`."""

UNUSED_IDS = range(61184, 65520)
"""Where Linux systems hand out user ids that live as long as one service (systemd DynamicUser)."""

TEXT_LIMIT_BYTES = 64 << 10
FREEZE_LIMIT_S = 2.0
FREEZE_LOOK_S = 2e-5
_STILL = frozenset("TtZX")
LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")

# fmt: off
DENIED = (
    "accept", "accept4", "add_key", "bind", "bpf", "clone3", "connect", "delete_module", "fork",
    "init_module", "finit_module", "io_uring_enter", "io_uring_register", "io_uring_setup",
    "kexec_load", "keyctl", "listen", "memfd_create", "mount", "name_to_handle_at",
    "open_by_handle_at", "perf_event_open", "personality", "pivot_root", "process_vm_readv",
    "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key", "sendmsg", "sendto",
    "setns", "socket", "socketpair", "swapoff", "swapon", "umount2", "unshare", "userfaultfd",
    "vfork",
)
# fmt: on
"""System calls refused for the whole child. The harness adds a far stricter allow-list before
candidate code runs.
"""


SPAWNING = frozenset(("fork", "vfork"))


@dataclass(frozen=True)
class Protection:
    """What confines a child on this machine, and what does not."""

    name: str
    missing: tuple[str, ...]

    def text(self) -> str:
        return self.name + (f" (not protected: {', '.join(self.missing)})" if self.missing else "")


@dataclass(frozen=True)
class Outcome:
    """A finished run. `returncode` is negative for a signal; `ended_by` says who ended it."""

    returncode: int
    ended_by: str
    text: str
    seconds: float


@cache
def candidate_uid() -> int:
    """User id for what this process runs: of no account, and another one for another judge, so
    that two candidates cannot signal or read each other either.
    """
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    free = [number for number in UNUSED_IDS if number not in taken]
    return free[os.getpid() % len(free)] if free else NOBODY


@cache
def bubblewrap() -> str | None:
    """Path of a bubblewrap that works here (some containers forbid it), else None."""
    found = shutil.which("bwrap")
    if found is None:
        return None
    with open(os.path.realpath("/bin/true"), "rb") as probe:
        number = probe.fileno()
        try:
            process = guard.start(
                [found, *walls(with_proc=False), *_files({number: "/run/exe"}), "/run/exe"],
                user=user(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                keep=(number,),
                environment={},
            )
        except OSError:
            return None
    try:
        code = process.wait(10)
    except subprocess.TimeoutExpired:
        code = guard.end(process)
    return found if code == 0 else None


@cache
def seccomp_program(*, spawning: bool = False) -> bytes | None:
    """The deny-list as BPF, or None where libseccomp is missing; the harness's own filter does not
    need it. With `spawning` a program may start others, as a compiler driver does.
    """
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError):
        return None
    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    for name in DENIED:
        if spawning and name in SPAWNING:
            continue
        # ENOSYS lets the C library fall back from clone3 to clone; everything else is plainly
        # forbidden.
        number = 38 if name == "clone3" else 1
        try:
            rules.add_rule(pyseccomp.ERRNO(number), name)
        except (OSError, RuntimeError, ValueError):
            continue  # a call this architecture does not have, nobody can make
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


@cache
def protection() -> Protection:
    """What `start` gives here; goes into every verdict."""
    missing: list[str] = []
    if bubblewrap() is None:
        missing += ["file system", "process list", "network namespace"]
        if os.getuid() != 0:
            missing.append("own user id")
        return Protection("rlimits+seccomp", tuple(missing))
    if seccomp_program() is None:
        missing.append("deny-list before loading")
    return Protection("bubblewrap+rlimits+seccomp", tuple(missing))


def user() -> int | None:
    """User id to become, None for the own one. Root must change before bubblewrap starts: a mapped
    uid alone stays root outside.
    """
    return candidate_uid() if os.getuid() == 0 else None


def walls(*, with_proc: bool) -> list[str]:
    words = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    words += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL", "--hostname", "box"]
    for folder in LIBRARY_FOLDERS:
        path = Path(folder)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), folder]
        elif path.is_dir():
            words += ["--ro-bind", folder, folder]
    return [*words, "--proc", "/proc"] if with_proc else words


def _files(files: Mapping[int, str]) -> list[str]:
    # Files go in through descriptors, so they need not be readable for the child's user outside.
    words: list[str] = []
    for number, inside in files.items():
        words += ["--perms", "0555", "--ro-bind-data", str(number), inside]
    # Last: without it the sandbox's own root is writable.
    return [*words, "--chdir", "/", "--remount-ro", "/"]


class Child:
    """A running sandboxed process. The owner must call `kill` or `wait` (safe to repeat)."""

    def __init__(
        self, process: subprocess.Popen[bytes], info: int | None, folder: Path | None
    ) -> None:
        self._process = process
        self._info = info
        self._folder = folder
        self._pid: int | None = None
        self._text = b""

    @property
    def pid(self) -> int:
        """Process id of the program itself, seen from here; falls back to the sandbox's own
        process.
        """
        if self._pid is None:
            self._pid = self._find_pid()
        return self._pid

    def _find_pid(self) -> int:
        if self._info is None:
            return self._process.pid
        info, self._info = self._info, None
        with os.fdopen(info, "rb") as stream:
            match = re.search(rb'"child-pid":\s*(\d+)', stream.read())
        if match is None:
            return self._process.pid
        first = int(match.group(1))
        if self._folder is not None:
            return first  # no walls around it: it is the program itself
        try:
            inner = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        except OSError:
            return first
        return int(inner[0]) if inner else first

    def cpu_ns(self) -> int | None:
        """CPU time the program has used so far, read from outside; None once it is gone."""
        try:
            return time.clock_gettime_ns((~self.pid << 3) | 2)
        except OSError:
            return None

    def freeze(self) -> None:
        """Stop the program where it is and return once it stands still. No program can refuse.

        Raises `RuntimeError` when it neither stops nor ends.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + FREEZE_LIMIT_S
        while self._state() not in _STILL:
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {self.pid} does not stop")
            time.sleep(FREEZE_LOOK_S)  # it may need this very core to hear of it

    def thaw(self) -> None:
        """Let a frozen program go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended; whoever talks to it next hears so
            os.kill(self.pid, number)

    def _state(self) -> str:
        """One letter of /proc, "X" once it is gone."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return "X"
        return text.rpartition(")")[2].split()[0]

    def text(self) -> str:
        """What the child wrote to stderr, at most 64 KiB. Data to show, never to believe."""
        stream = self._process.stderr
        if stream is not None and not stream.closed:
            os.set_blocking(stream.fileno(), False)
            while len(self._text) < TEXT_LIMIT_BYTES:
                try:
                    chunk = os.read(stream.fileno(), TEXT_LIMIT_BYTES - len(self._text))
                except BlockingIOError:
                    break
                if not chunk:
                    break
                self._text += chunk
        return self._text.decode("utf-8", "replace")

    def wait(self, limit_s: float) -> int | None:
        """Exit code (negative for a signal, seen through bubblewrap too), or None when it still
        runs.
        """
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        return 128 - code if code > 128 else code

    def kill(self) -> int:
        """End it with all it started and collect it; returns the exit code."""
        self.text()
        code = guard.end(self._process)
        if self._process.stderr is not None:
            self._process.stderr.close()
        if self._info is not None:
            os.close(self._info)
            self._info = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        return 128 - code if code > 128 else code

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._process


def start(
    executable: Path,
    arguments: Sequence[str],
    *,
    read_only: Mapping[Path, str] | None = None,
    descriptors: Sequence[int] = (),
    with_proc: bool = False,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
) -> Child:
    """Start `executable` confined. `read_only` maps files here to their path inside; an argument
    equal to such an inner path is passed as the outer one where there is no bubblewrap.
    `descriptors` stay open under their numbers.
    """
    files = {executable: "/run/exe", **(read_only or {})}
    if bubblewrap() is None:
        return _start_plain(files, arguments, descriptors, stdout)
    info_read, info_write = os.pipe()
    program = seccomp_program()
    try:
        with ExitStack() as stack:
            stack.callback(os.close, info_write)
            opened = {
                stack.enter_context(open(path, "rb")).fileno(): inside
                for path, inside in files.items()
            }
            keep = [info_write, *opened, *descriptors]
            command = [str(bubblewrap()), *walls(with_proc=with_proc)]
            command += ["--info-fd", str(info_write)]
            if program is not None:
                rules = stack.enter_context(tempfile.TemporaryFile())
                rules.write(program)
                rules.seek(0)
                keep.append(rules.fileno())
                command += ["--seccomp", str(rules.fileno())]
            process = guard.start(
                [*command, *_files(opened), "/run/exe", *arguments],
                user=user(),
                stdout=stdout,
                stderr=subprocess.PIPE,
                keep=keep,
                environment={},
            )
    except BaseException:
        os.close(info_read)
        raise
    return Child(process, info_read, None)


def _start_plain(
    files: Mapping[Path, str],
    arguments: Sequence[str],
    descriptors: Sequence[int],
    stdout: int | IO[bytes],
) -> Child:
    folder = Path(tempfile.mkdtemp(prefix="kernelgen-"))
    folder.chmod(0o755)
    outer: dict[str, str] = {}
    for path, inside in files.items():
        copy = folder / Path(inside).name
        shutil.copyfile(path, copy)
        copy.chmod(0o555)
        outer[inside] = str(copy)
    info_read, info_write = os.pipe()
    try:
        process = guard.start(
            [outer["/run/exe"], *(outer.get(word, word) for word in arguments)],
            user=user(),
            info=info_write,
            stdout=stdout,
            stderr=subprocess.PIPE,
            keep=descriptors,
            folder=Path("/"),
            environment={},
        )
    except BaseException:
        os.close(info_read)
        raise
    finally:
        os.close(info_write)
    return Child(process, info_read, folder)


def collect(stream: int, deadline: float, output_bytes: int) -> tuple[bytes, str]:
    text = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return text, "wall limit"
        ready, _, _ = select.select([stream], [], [], left)
        if not ready:
            continue
        chunk = os.read(stream, 65536)
        if not chunk:
            return text, "itself"
        text += chunk
        if len(text) > output_bytes:
            return text[:output_bytes], "output cap"
