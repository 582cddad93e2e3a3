"""The tools a target needs, whether this machine has them, and which package brings those it lacks.

In: a target. Out: a `Toolchain`, or the list of what is missing; a compiled and disassembled
object. Never here: running what was built.
"""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelgen.targets import guard
from kernelgen.targets.compiler import version_of
from kernelgen.targets.cpu import CompileOutcome, compile_shared
from kernelgen.targets.hardware import Target

SHUFFLE = Path(__file__).with_name("shuffle.h")

# Newest first that was tried; clang before 17 has no RISC-V vectors of fixed size worth having.
_LLVM = ("19", "20", "21")
_DEBIAN = {"x86_64": "x86-64", "aarch64": "aarch64", "riscv64": "riscv64"}
_LIBC = {
    "x86_64": "libc6-dev-amd64-cross",
    "aarch64": "libc6-dev-arm64-cross",
    "riscv64": "libc6-dev-riscv64-cross",
}


@dataclass(frozen=True)
class Tool:
    """A program (or file) by the name it is looked for, and the Debian package that has it."""

    program: str
    package: str

    def text(self) -> str:
        return f"{self.program} is missing (Debian: {self.package})"


@dataclass(frozen=True)
class Toolchain:
    """`command` compiles, with its fixed arguments; `objdump` disassembles what it made."""

    command: tuple[str, ...]
    objdump: str
    version: str


def native(target: Target) -> bool:
    """Whether this machine's own processor family is the target's."""
    return platform.machine() == target.architecture


def sysroot(target: Target) -> Path:
    """Where Debian's cross packages put the target's C library."""
    return Path(f"/usr/{target.architecture}-linux-gnu")


def missing(target: Target) -> tuple[Tool, ...]:
    """What compiling for `target` lacks here; empty when nothing does."""
    triple = f"{target.architecture}-linux-gnu"
    wanted: list[tuple[bool, Tool]] = []
    if native(target):
        gcc, objdump = Tool("gcc", "gcc"), Tool("objdump", "binutils")
        library = Path("/usr/include/stdlib.h"), "libc6-dev"
    else:
        gcc = Tool(f"{triple}-gcc", f"gcc-{_DEBIAN[target.architecture]}-linux-gnu")
        objdump = Tool(f"{triple}-objdump", f"binutils-{_DEBIAN[target.architecture]}-linux-gnu")
        library = sysroot(target) / "include" / "stdlib.h", _LIBC[target.architecture]
    # clang links with the start files and the C library that come with GCC.
    wanted += [(shutil.which(tool.program) is not None, tool) for tool in (gcc, objdump)]
    wanted.append((library[0].exists(), Tool(str(library[0]), library[1])))
    if target.compiler == "clang":
        clang = llvm("clang")
        wanted.append((clang is not None, Tool("clang-19", "clang-19")))
        wanted.append((llvm("ld.lld") is not None, Tool("ld.lld-19", "lld-19")))
    return tuple(tool for found, tool in wanted if not found)


@cache
def llvm(program: str) -> str | None:
    """Path of an LLVM program in a version that was tried, else None."""
    for version in _LLVM:
        found = shutil.which(f"{program}-{version}")
        if found is not None:
            return found
    return None


def toolchain(target: Target) -> Toolchain:
    """Raises `FileNotFoundError` that names every missing program and its package."""
    lacking = missing(target)
    if lacking:
        raise FileNotFoundError("; ".join(tool.text() for tool in lacking))
    triple = f"{target.architecture}-linux-gnu"
    prefix = "" if native(target) else f"{triple}-"
    command: tuple[str, ...] = (str(shutil.which(f"{prefix}gcc")),)
    if target.compiler == "clang":
        command = (
            str(llvm("clang")),
            f"--target={triple}",
            f"-fuse-ld={llvm('ld.lld')}",
            "-include",
            str(SHUFFLE),
        )
    return Toolchain(command, str(shutil.which(f"{prefix}objdump")), version_of(command[0]))


def build(
    target: Target, source: str, flags: Sequence[str], out: Path, *, limit_s: float = 120.0
) -> CompileOutcome:
    """Compile `source` for `target`; the target's own flags come last."""
    tools = toolchain(target)
    return compile_shared(
        source, (*flags, *target.flags), out, limit_s=limit_s, command=tools.command
    )


@dataclass(frozen=True)
class Line:
    """One instruction: its address, text without comment, and branch target when it has one."""

    address: int
    text: str
    goes_to: int | None


_LINE = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
_AIM = re.compile(r"^(\S+\s+(?:.*,\s*)?)([0-9a-f]+) <([^>+]+)(?:\+0x[0-9a-f]+)?>$")
_COMMENT = re.compile(r"\s*(//|#\s|;).*$")


def disassemble(target: Target, library: Path) -> Mapping[str, tuple[Line, ...]]:
    """Instructions of every function in `library`, in address order.

    Raises `RuntimeError` with the disassembler's words.
    """
    words = [toolchain(target).objdump, "-d", "--no-show-raw-insn", "-w", str(library)]
    done = guard.run(words, limit_s=60)
    if done.returncode != 0:
        raise RuntimeError(f"{library.name}: {done.stderr.strip()[:500]}")
    found: dict[str, list[Line]] = {}
    here: list[Line] = []
    for raw in done.stdout.splitlines():
        head = re.match(r"^[0-9a-f]+ <(.+)>:$", raw)
        if head is not None:
            here = found.setdefault(head.group(1), [])
            continue
        match = _LINE.match(raw)
        if match is None:
            continue
        text = " ".join(_COMMENT.sub("", match.group(2)).split())
        aim = _AIM.match(text)
        here.append(Line(int(match.group(1), 16), text, int(aim.group(2), 16) if aim else None))
    return {name: tuple(lines) for name, lines in found.items()}


def evidence(target: Target, library: Path) -> dict[str, int]:
    """How often each of the target's vector instructions occurs in `library`, by mnemonic."""
    pattern = re.compile(target.signature)
    counts: dict[str, int] = {}
    for lines in disassemble(target, library).values():
        for line in lines:
            if pattern.match(line.text):
                name = line.text.split()[0]
                counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def probe(target: Target) -> str | None:
    """None when the probe's binary holds the instruction that marks this level, else why not."""
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        outcome = build(target, target.probe, ("-O3",), Path(folder) / "probe.so")
        if outcome.path is None:
            return outcome.stderr.strip()[:500]
        code = disassemble(target, outcome.path)
        # The object hides all names; what matters is that the text is there at all.
        if any(re.match(target.special, line.text) for lines in code.values() for line in lines):
            return None
        return f"the compiler does not use {target.special} for plain C"
