"""C text that nobody trusts, compiled where it can see and reach nothing.

In: the text of a whole kernel, compiler flags. Out: the preprocessed text, checked token by token,
and a shared object made from exactly that.
The compiler's stages run one by one in the judge's sandbox: no network, another user, a root that
holds the C library and the stage's own input, a limit on time, memory and output. Preprocessing
comes first, with no folder to include from: what is left has no directives and no macros, so
nothing can hide from the check, and the text can be compiled again (the judge does, with
sanitizers) without reading any other file.
Never here: running what was built; a compiler outside the sandbox.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kernelgen.judge import sandbox
from kernelgen.targets.cpu import CompileOutcome, compiler

TEXT_LIMIT_BYTES = 128 << 10
"""Longest text that is looked at, before and after macros are expanded."""

OUTPUT_LIMIT_BYTES = 32 << 20
MEMORY_LIMIT_BYTES = 3 << 30
STAGE_LIMIT_S = 30.0
UNIT = "/run/unit.c"
"""Where a stage finds its text inside the sandbox."""

PRELUDE = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
float expf(float x);
float erff(float x);
float sqrtf(float x);
float tanhf(float x);
float fmaf(float x, float y, float z);
#define NULL ((void *)0)
#define INFINITY (__builtin_inff())
#define EXPORT __attribute__((visibility("default")))
"""
"""What a written kernel finds declared; it stands for the headers below."""

HEADERS = frozenset({"stddef.h", "stdint.h", "string.h", "math.h", "float.h", "limits.h"})

ATTRIBUTES = frozenset(
    {
        "aligned",
        "always_inline",
        "cold",
        "const",
        "default",
        "flatten",
        "hot",
        "may_alias",
        "noinline",
        "nonnull",
        "packed",
        "pure",
        "unused",
        "vector_size",
        "visibility",
    }
)

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([a-z]+\.h)>[ \t]*(?://.*)?$", re.MULTILINE)
_PRAGMA = re.compile(r"#pragma GCC (unroll \d+|ivdep)$")
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\S')
_NUMBER_OF_LINE = re.compile(r"/run/unit\.[cos]:")
_PLACE = re.compile(r"kernel\.c:\d+:")
_COMPLAINT = re.compile(
    r"^(.*: )?(In function|\w+ error:|error:|Error:|Fatal|undefined)", re.MULTILINE
)


class SourceRefusedError(ValueError):
    """The text asks for something a kernel may not ask for; says what, and what is allowed."""


def preprocess(text: str) -> str:
    """`text` after the preprocessor, checked. Raises `SourceRefusedError` with the reason."""
    if len(text.encode("utf-8", "replace")) > TEXT_LIMIT_BYTES:
        raise SourceRefusedError(f"text: over {TEXT_LIMIT_BYTES} bytes")
    if not text.isascii() or "\0" in text:
        raise SourceRefusedError("text: wanted plain ASCII")
    for header in _INCLUDE.findall(text):
        if header not in HEADERS:
            raise SourceRefusedError(
                f"#include <{header}>: allowed are {', '.join(sorted(HEADERS))}"
            )
    # The line marker makes complaints name the author's lines and not ours.
    unit = PRELUDE + '# 1 "kernel.c"\n' + _INCLUDE.sub("", text)
    done = _stage("cc1", ("-E", "-P", "-nostdinc", "-std=gnu11", UNIT), unit, TEXT_LIMIT_BYTES)
    if done.returncode != 0 or done.ended_by != "itself":
        raise SourceRefusedError(f"preprocessor: {_why(done)}")
    check(done.text)
    return done.text


def check(text: str) -> None:
    """Refuse preprocessed text that could read a file, run on loading, or speak to the machine.

    Raises `SourceRefusedError`.
    """
    if len(text.encode("utf-8", "replace")) > TEXT_LIMIT_BYTES:
        raise SourceRefusedError(f"text: over {TEXT_LIMIT_BYTES} bytes")
    for line in text.splitlines():
        stripped = line.strip()
        if "??" in stripped or "\\" in stripped[-1:]:
            raise SourceRefusedError(f"trigraph or spliced line: {stripped[:80]}")
        if stripped.startswith(("#", "%:")) and not _PRAGMA.match(stripped):
            raise SourceRefusedError(f"directive: {stripped[:80]}")
    tokens = _TOKEN.findall(text)
    for place, word in enumerate(tokens):
        plain = word.strip("_")
        if plain == "asm":
            raise SourceRefusedError("asm: inline assembly is not allowed; use vector extensions")
        if plain == "attribute":
            _attributes(tokens, place + 1)
        elif word == "[" and tokens[place + 1 : place + 2] == ["["]:
            raise SourceRefusedError("[[ ]]: write __attribute__(( )) instead")
        elif plain in ("thread", "Thread_local"):
            raise SourceRefusedError(f"{word}: thread-local storage is not allowed")
        elif word in ("_Pragma", "__has_include", "__has_embed"):
            raise SourceRefusedError(f"{word}: not allowed")


def _attributes(tokens: Sequence[str], place: int) -> None:
    depth = 0
    for word in tokens[place:]:
        depth += (word == "(") - (word == ")")
        if depth <= 0:
            return
        if re.match(r"[A-Za-z_]", word) and word.strip("_") not in ATTRIBUTES:
            # An argument may be an expression; its names are not ours to know.
            if depth > 2:
                continue
            raise SourceRefusedError(
                f"attribute {word}: allowed are {', '.join(sorted(ATTRIBUTES))}"
            )


def compile_confined(source: str, flags: Sequence[str], out: Path) -> CompileOutcome:
    """Compile checked `source` to the shared object `out`, every stage in the sandbox.

    `stderr` says why there is none. Raises `SourceRefusedError` for text that fails the check.
    """
    check(source)
    began = time.monotonic()
    out.parent.mkdir(parents=True, exist_ok=True)
    words = ("-O3", "-std=gnu11", "-fpreprocessed", "-fPIC", "-fvisibility=hidden", "-w", *flags)
    assembly = _stage("cc1", (*words, UNIT, "-o", "-"), source, OUTPUT_LIMIT_BYTES)
    if assembly.returncode != 0 or assembly.ended_by != "itself":
        return CompileOutcome(None, _why(assembly), time.monotonic() - began)
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as name:
        folder = Path(name)
        (folder / "unit.s").write_text(assembly.text, encoding="utf-8")
        width = ("--64",) if platform.machine() == "x86_64" else ()
        found, why = _made("as", (*width, "/run/unit.s"), {folder / "unit.s": "/run/unit.s"})
        if found is not None:
            (folder / "unit.o").write_bytes(found)
            link = ("-shared", "--build-id=none", "-z", "noexecstack", "/run/unit.o", _libgcc())
            found, why = _made("ld", link, {folder / "unit.o": "/run/unit.o"})
    if found is None:
        return CompileOutcome(None, why, time.monotonic() - began)
    partial = out.with_name(f"{out.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(found)
        os.replace(partial, out)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return CompileOutcome(out, "", time.monotonic() - began)


def _made(tool: str, words: Sequence[str], files: Mapping[Path, str]) -> tuple[bytes | None, str]:
    """Run a stage that writes a file; it gets one in memory, by descriptor."""
    output = os.memfd_create("kernelgen-object")
    try:
        target = ("-o", f"/proc/self/fd/{output}")
        done = _run(tool, (*words, *target), files, 64 << 10, descriptors=(output,))
        if done.returncode != 0 or done.ended_by != "itself":
            return None, _why(done)
        size = os.fstat(output).st_size
        return os.pread(output, size, 0), ""
    finally:
        os.close(output)


def _stage(tool: str, words: Sequence[str], text: str, output_bytes: int) -> sandbox.Outcome:
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        unit = Path(folder) / "unit.c"
        unit.write_text(text, encoding="ascii")
        return _run(tool, ("-quiet", *words), {unit: UNIT}, output_bytes)


class CompilerKilledError(OSError):
    """Somebody killed the compiler; nothing is known about the text."""


def _run(
    tool: str,
    words: Sequence[str],
    files: Mapping[Path, str],
    output_bytes: int,
    descriptors: Sequence[int] = (),
) -> sandbox.Outcome:
    if sandbox.bubblewrap() is None:
        raise SourceRefusedError(
            "no sandbox: written kernels are only compiled under bubblewrap, which does not work "
            "here; install bubblewrap or leave the language model to schedules"
        )
    limits = (
        f"--as={MEMORY_LIMIT_BYTES}",
        f"--fsize={OUTPUT_LIMIT_BYTES}",
        # Soft below hard: the kernel then tells a limit (SIGXCPU) from a kill by somebody.
        f"--cpu={int(STAGE_LIMIT_S)}:{int(STAGE_LIMIT_S) + 5}",
    )
    done = sandbox.run(
        _limiter(),
        (*limits, "/run/tool", *words),
        limit_s=STAGE_LIMIT_S,
        read_only={**files, _tool(tool): "/run/tool"},
        output_bytes=output_bytes,
        with_proc=bool(descriptors),
        descriptors=descriptors,
    )
    if done.ended_by == "itself" and done.returncode == -signal.SIGKILL:
        raise CompilerKilledError(f"{tool} was killed from outside")
    return done


@cache
def _limiter() -> Path:
    found = shutil.which("prlimit")
    if found is None:
        raise SourceRefusedError("no prlimit on PATH: wanted util-linux to limit the compiler")
    return Path(os.path.realpath(found))


@cache
def _tool(name: str) -> Path:
    """The compiler's own program `name` (cc1, as, ld)."""
    found = _ask(f"-print-prog-name={name}")
    path = shutil.which(found)
    if path is None:
        raise SourceRefusedError(f"{name}: the compiler names {found!r}, which is not there")
    return Path(os.path.realpath(path))


@cache
def _libgcc() -> str:
    return _ask("-print-libgcc-file-name")


def _ask(question: str) -> str:
    done = subprocess.run([compiler(), question], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _why(done: sandbox.Outcome) -> str:
    if done.ended_by == "wall limit":
        return f"compile time limit of {STAGE_LIMIT_S:g} s reached"
    if done.ended_by == "output cap":
        return "the compiler's output grew beyond the limit"
    # Standard output and complaints come back together: what was written goes, complaints stay.
    text = _NUMBER_OF_LINE.sub("kernel.c:", done.text)
    first = _PLACE.search(text) or _COMPLAINT.search(text)
    words = text[first.start() :].strip() if first else ""
    if done.returncode < 0:
        words = f"compiler ended by signal {-done.returncode} (a limit was met). {words}"
    return words or f"compiler exit {done.returncode}"
