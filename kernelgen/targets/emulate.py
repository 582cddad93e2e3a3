"""The judge's conversation with a harness that runs under qemu-user, in the same sandbox as native
candidates.

In: an object for another processor, an operator, two memory files. Out: what `judge.session` gives,
and exact instruction counts. Never here: a time; emulated time says nothing about a machine.

qemu is no wall: emulated code that knows it can reach the emulator's memory. What holds are the
sandbox's walls and the limits set on the emulator itself; the emulator's plugin (watch.c) only
keeps up the harness's list of system calls for code that plays fair or fails by mistake.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path

from kernelgen.judge import build, sandbox
from kernelgen.judge.session import CPU_LIMIT_S, Region, Session
from kernelgen.ops.operator import Operator
from kernelgen.targets.compiler import compiler, own_program, version_of
from kernelgen.targets.figures import EmulatedCount
from kernelgen.targets.hardware import Target
from kernelgen.targets.toolchain import Tool, missing, sysroot

HARNESS = Path(__file__).with_name("emulated.c")
WATCH = Path(__file__).with_name("watch.c")

ADDRESS_SPACE_BYTES = 6 << 30
"""For the emulator and all it emulates; its own translation buffer takes one of these."""

_LOADER = {"aarch64": "ld-linux-aarch64.so.1", "riscv64": "ld-linux-riscv64-lp64d.so.1"}
_LIBRARIES = ("libc.so.6", "libm.so.6")
_COUNT = re.compile(r"^count (\d+) (\d+)$", re.MULTILINE)


def missing_to_run(target: Target) -> tuple[Tool, ...]:
    """What running code of `target` under emulation lacks here.

    Bubblewrap is no luxury here: the harness's own filter, which alone confines a native candidate
    where there is none, cannot be installed around an emulator.
    """
    wanted = [
        (shutil.which(program) is not None, Tool(program, package))
        for program, package in (
            (f"qemu-{target.architecture}", "qemu-user"),
            ("prlimit", "util-linux"),
        )
    ]
    wanted.append((sandbox.bubblewrap() is not None, Tool("a bwrap that works", "bubblewrap")))
    return missing(target) + tuple(tool for found, tool in wanted if not found)


@cache
def qemu(architecture: str) -> tuple[Path, str]:
    """Path and version of the emulator. Raises `FileNotFoundError` naming the package."""
    found = shutil.which(f"qemu-{architecture}")
    if found is None:
        raise FileNotFoundError(Tool(f"qemu-{architecture}", "qemu-user").text())
    match = re.search(r"version (\S+)", version_of(found))
    return Path(found), match.group(1) if match else "unknown"


@cache
def _harness(target: Target) -> Path:
    return own_program(
        HARNESS,
        (f"{target.architecture}-linux-gnu-gcc", "-O2", "-Wall"),
        (f'-DHARNESS="{build.SOURCE}"', *build.LIBRARIES),
        key=build.SOURCE.read_text(encoding="utf-8"),
    )


@cache
def _watch(architecture: str) -> Path:
    # The interface's number rose to 2 with qemu 9; the calls used here did not change.
    major = int(qemu(architecture)[1].partition(".")[0])
    command = (compiler(), "-O2", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden")
    return own_program(WATCH, (*command, f"-DPLUGIN_API={1 if major < 9 else 2}"))


class EmulatedSession(Session):
    """A `Session` whose harness runs on an emulated processor. `processor` is one of
    `target.processors`. Use as a context manager.
    """

    def __init__(
        self,
        library: Path,
        operator: Operator,
        inputs: Region,
        outputs: Region,
        *,
        target: Target,
        processor: str,
        limit_s: float,
    ) -> None:
        if processor not in target.processors:
            raise ValueError(
                f"processor: got {processor!r}, {target.name} is emulated as "
                f"{', '.join(target.processors) or 'nothing'}"
            )
        lacking = missing_to_run(target)
        if lacking:
            raise FileNotFoundError("; ".join(tool.text() for tool in lacking))
        self._operator = operator
        self._limit_s = limit_s
        self.inputs = inputs
        self.outputs = outputs
        self._frozen = False
        self._basis = f"qemu-{target.architecture} {qemu(target.architecture)[1]} {processor}"
        command_read, self._command = os.pipe()
        self._answers, answer_write = os.pipe()
        read_only = inputs.read_only_descriptor()
        ends = (command_read, answer_write, read_only, outputs.descriptor)
        files, words = _command(target, processor, library, command_read, answer_write)
        limits = ("-1", str(ADDRESS_SPACE_BYTES), str(CPU_LIMIT_S))
        try:
            self._child = sandbox.start(
                Path(str(shutil.which("prlimit"))),
                [*words, *(str(number) for number in ends), *limits],
                read_only=files,
                descriptors=ends,
                # qemu reads its own memory map to find room for the guest.
                with_proc=True,
            )
        except BaseException:
            os.close(self._command)
            os.close(self._answers)
            raise
        finally:
            for number in (command_read, answer_write, read_only):
                os.close(number)

    def counts(self) -> tuple[tuple[EmulatedCount, EmulatedCount], ...]:
        """Instructions before each answer so far: in the candidate's own object, and with the C
        library calls it made. The first answer is the harness's greeting, then one per order.
        """
        return tuple(
            (
                EmulatedCount(float(own), "instructions", self._basis),
                EmulatedCount(float(every), "instructions with library", self._basis),
            )
            for own, every in _COUNT.findall(self._child.text())
        )


def _command(
    target: Target, processor: str, library: Path, command_fd: int, answer_fd: int
) -> tuple[dict[Path, str], list[str]]:
    """Files that go into the sandbox, and the words after its executable, up to the harness's
    object.
    """
    emulator, _ = qemu(target.architecture)
    files = {
        emulator: "/run/qemu",
        _harness(target): "/run/harness",
        _watch(target.architecture): "/run/watch.so",
        library: "/run/kernel.so",
    }
    for name in (_LOADER[target.architecture], *_LIBRARIES):
        files[sysroot(target) / "lib" / name] = f"/run/sys/lib/{name}"
    words = [
        f"--as={ADDRESS_SPACE_BYTES}",
        f"--cpu={CPU_LIMIT_S}",
        "--fsize=0",
        "--core=0",
        "/run/qemu",
        "-cpu",
        dict(target.emulated)[processor],
        "-L",
        "/run/sys",
        "-plugin",
        f"/run/watch.so,command={command_fd},answer={answer_fd}",
        "/run/harness",
        "/run/kernel.so",
    ]
    return files, words
