"""Compiles C that nobody has read: screened, and by a compiler that sees its own files only.

In: C text and flags from a language model or from somebody's package. Out: a shared object, or a
`CompileOutcome` with the compiler's words, or a `Refusal`. What is compiled is the very text that
was screened. Never here: running what was built.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernelgen.judge import sandbox, screen, tool
from kernelgen.judge.session import Refusal
from kernelgen.targets.cpu import BASE_FLAGS, COMPILE_LIMIT_S, CompileOutcome, compiler

MOST_TEXT_BYTES = 16 << 20
PREPROCESS_LIMIT_S = 15.0
PREPROCESS_MEMORY_MIB = 1024
QUIET = ("-fdiagnostics-color=never", "-fno-diagnostics-show-caret", "-pipe")
"""Diagnostics quote no source lines: a line marker could make them lines of another file."""


def compile_untrusted(
    source: str, flags: Sequence[str], out: Path, *, limit_s: float = COMPILE_LIMIT_S
) -> CompileOutcome:
    """As `targets.cpu.compile_shared`, for text that must not be trusted.

    Raises `Refusal` (`forbidden_source`, `constructor`) when the text or a flag asks for more than
    code.
    """
    began = time.monotonic()
    screen.check_flags(flags)
    text, outcome = preprocess(source, flags, limit_s=limit_s)
    if text is None:
        return outcome
    screen.check_text(text)
    left = max(1.0, limit_s - (time.monotonic() - began))
    return compile_text(text, [*BASE_FLAGS, *flags], out, limit_s=left, began=began)


def preprocess(
    source: str, flags: Sequence[str], *, limit_s: float = COMPILE_LIMIT_S
) -> tuple[str | None, CompileOutcome]:
    """The text after the preprocessor, or None and the compiler's words."""
    began = time.monotonic()
    with _folder() as folder:
        (folder / screen.SOURCE_NAME).write_bytes(_encoded(source))
        command = [
            compiler(),
            *_plain(BASE_FLAGS),
            *_plain(flags),
            *QUIET,
            "-E",
            "-fno-working-directory",
        ]
        command += ["-o", "kernel.i", screen.SOURCE_NAME]
        limit_s = min(limit_s, PREPROCESS_LIMIT_S)
        outcome = tool.run(
            command,
            folder,
            limit_s=limit_s,
            memory_mib=PREPROCESS_MEMORY_MIB,
            file_mib=MOST_TEXT_BYTES >> 20,
        )
        result = _outcome(outcome, began, limit_s)
        made = folder / "kernel.i"
        if outcome.returncode != 0 or made.is_symlink() or not made.is_file():
            return None, result
        if made.stat().st_size > MOST_TEXT_BYTES:
            return None, CompileOutcome(None, "the preprocessed text is too long", result.seconds)
        return made.read_text(encoding="utf-8", errors="surrogateescape"), result


def compile_text(
    text: str, flags: Sequence[str], out: Path, *, limit_s: float, began: float | None = None
) -> CompileOutcome:
    """Compile preprocessed `text` to `out`, which appears only when complete."""
    began = time.monotonic() if began is None else began
    with _folder() as folder:
        (folder / "kernel.i").write_bytes(text.encode("utf-8", "surrogateescape"))
        command = [compiler(), *flags, *QUIET, "-fpreprocessed", "-o", "kernel.so", "kernel.i"]
        outcome = tool.run(command, folder, limit_s=limit_s)
        made = folder / "kernel.so"
        result = _outcome(outcome, began, limit_s)
        if outcome.returncode != 0 or made.is_symlink() or not made.is_file():
            return result
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f"{out.name}.{os.getpid()}.partial")
        shutil.copyfile(made, partial)
        os.replace(partial, out)
    return CompileOutcome(out, result.stderr, time.monotonic() - began)


def _outcome(outcome: sandbox.Outcome, began: float, limit_s: float) -> CompileOutcome:
    words = outcome.text
    if outcome.ended_by == "wall limit":
        words = f"compile time limit of {limit_s:g} s reached"
    elif outcome.returncode != 0 and not words:
        words = f"compiler exit {outcome.returncode}"
    return CompileOutcome(None, words, time.monotonic() - began)


def _plain(flags: Sequence[str]) -> list[str]:
    """Linker flags mean nothing to the preprocessor."""
    return [flag for flag in flags if flag not in ("-shared", "-nostartfiles")]


def _encoded(source: str) -> bytes:
    try:
        return source.encode("ascii")
    except UnicodeEncodeError as error:
        raise Refusal(
            "forbidden_source", f"character {source[error.start]!r}; plain ASCII only"
        ) from error


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that the confined compiler may write to, and that goes away again."""
    path = Path(tempfile.mkdtemp(prefix="kernelgen-"))
    try:
        if os.getuid() == 0:
            number = sandbox.candidate_uid()
            os.chown(path, number, number)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
