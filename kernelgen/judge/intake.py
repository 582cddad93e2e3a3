"""Compiles C that nobody has read: screened, and by a compiler that sees its own files only.

In: C text and flags from a language model or from somebody's package, and the terms it comes under.
Out: a shared object, or a `CompileOutcome` with the compiler's words, or a `Refusal`. What is
compiled is the very text that was screened. Never here: running what was built.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernelgen.judge import sandbox, screen, tool
from kernelgen.judge.session import Refusal
from kernelgen.judge.terms import HEADERS, PACKAGED, PRELUDE, WRITTEN, Terms
from kernelgen.targets.compiler import compiler
from kernelgen.targets.cpu import BASE_FLAGS, COMPILE_LIMIT_S, CompileOutcome

PREPROCESS_LIMIT_S = 15.0
PREPROCESS_CPU_S = 4
"""Forty times what all headers of intrinsics take; on a busy core the wall limit comes first."""

PREPROCESS_MEMORY_MIB = 1024
PLAIN = ("-fdiagnostics-color=never", "-pipe")
QUIET = ("-fno-diagnostics-show-caret",)
"""Diagnostics quote no source lines: a line marker could make them lines of another file."""

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([a-z_0-9]+\.h)>[ \t]*(?://.*)?$", re.M)
_MARKERS = re.compile(r"^[ \t]*#[ \t]*\d+[^\n]*\n?", re.M)
_EMPTY = re.compile(r"\n{3,}")
_KILLED = re.compile(r"^[\w./+-]+: fatal error: Killed signal terminated program \S+$", re.M)
_FIRST_NEED_BYTES = 1 << 20


class CompilerKilledError(OSError):
    """Somebody killed the compiler; nothing is known about the text."""


def compile_untrusted(
    source: str, flags: Sequence[str], out: Path, *, limit_s: float = COMPILE_LIMIT_S
) -> CompileOutcome:
    """As `targets.cpu.compile_shared`, for text that must not be trusted, under `PACKAGED` terms.

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


def closed_text(source: str) -> str:
    """A written kernel after the preprocessor, screened under `WRITTEN` terms: no directive, no
    macro, no file is left, so it can be kept and compiled anywhere, any time.

    Raises `Refusal` with the reason.
    """
    _require_walls()
    screen.check_size(source, WRITTEN)
    for header in _INCLUDE.findall(source):
        if header not in HEADERS:
            raise Refusal(
                "forbidden_source",
                f"#include <{header}>: allowed are {', '.join(sorted(HEADERS))}",
            )
    # The line marker makes complaints name the author's lines and not ours.
    unit = f'{PRELUDE}# 1 "{screen.SOURCE_NAME}"\n{_INCLUDE.sub("", source)}\n'
    text, outcome = preprocess(unit, ("-nostdinc",), terms=WRITTEN)
    if text is None:
        raise Refusal("forbidden_source", f"preprocessor: {outcome.stderr}")
    screen.check_text(text, WRITTEN)
    return _EMPTY.sub("\n\n", _MARKERS.sub("", text)).lstrip("\n")


def compile_closed(
    text: str, flags: Sequence[str], out: Path, *, limit_s: float = COMPILE_LIMIT_S
) -> CompileOutcome:
    """Compile what `closed_text` made. It is screened again: records may have been edited.

    Raises `Refusal`, and `OSError` when the machine failed and the text is not to blame.
    """
    _require_walls()
    screen.check_flags(flags)
    screen.check_text(text, WRITTEN)
    return compile_text(text, [*BASE_FLAGS, *flags, "-w"], out, limit_s=limit_s, terms=WRITTEN)


def preprocess(
    source: str,
    flags: Sequence[str],
    *,
    limit_s: float = COMPILE_LIMIT_S,
    terms: Terms = PACKAGED,
) -> tuple[str | None, CompileOutcome]:
    """The text after the preprocessor, or None and the compiler's words."""
    began = time.monotonic()
    with _folder() as folder:
        (folder / screen.SOURCE_NAME).write_bytes(_encoded(source))
        command = [compiler(), *_plain(BASE_FLAGS), *_plain(flags), *PLAIN, *QUIET, "-E"]
        command += ["-fno-working-directory", "-o", "kernel.i", screen.SOURCE_NAME]
        limit_s = min(limit_s, PREPROCESS_LIMIT_S)
        outcome = tool.run(
            command,
            folder,
            limit_s=limit_s,
            memory_mib=PREPROCESS_MEMORY_MIB,
            file_mib=max(1, terms.text_bytes >> 20),
            cpu_s=PREPROCESS_CPU_S,
            sees=_sees(terms),
        )
        result = _outcome(outcome, began, limit_s, folder)
        made = folder / "kernel.i"
        if outcome.returncode != 0 or made.is_symlink() or not made.is_file():
            return None, result
        if made.stat().st_size > terms.text_bytes:
            words = f"the preprocessed text is over the limit of {terms.text_bytes} bytes"
            return None, CompileOutcome(None, words, result.seconds)
        return made.read_text(encoding="utf-8", errors="surrogateescape"), result


def compile_text(
    text: str,
    flags: Sequence[str],
    out: Path,
    *,
    limit_s: float,
    began: float | None = None,
    terms: Terms = PACKAGED,
) -> CompileOutcome:
    """Compile preprocessed `text`, screened by the caller, to `out`, which appears only when
    complete.
    """
    began = time.monotonic() if began is None else began
    # A closed text has no line markers, so a quoted line can only be its own.
    words = PLAIN if terms.closed else (*PLAIN, *QUIET)
    with _folder() as folder:
        (folder / screen.SOURCE_NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
        command = [compiler(), *flags, *words, "-fpreprocessed", "-o", "kernel.so"]
        outcome = tool.run(
            [*command, screen.SOURCE_NAME],
            folder,
            limit_s=limit_s,
            memory_mib=terms.memory_mib,
            file_mib=terms.file_mib,
            sees=_sees(terms),
        )
        made = folder / "kernel.so"
        result = _outcome(outcome, began, limit_s, folder)
        if outcome.returncode != 0 or made.is_symlink() or not made.is_file():
            # Under these terms no text can make the compiler say such a line.
            if terms.closed and _KILLED.search(outcome.text):
                raise CompilerKilledError("the compiler was killed from outside")
            return result
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f"{out.name}.{os.getpid()}.partial")
        try:
            shutil.copyfile(made, partial)
            os.replace(partial, out)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
    return CompileOutcome(out, result.stderr, time.monotonic() - began)


def _outcome(
    outcome: sandbox.Outcome, began: float, limit_s: float, folder: Path
) -> CompileOutcome:
    words = outcome.text
    if outcome.ended_by == "wall limit":
        words = f"compile time limit of {limit_s:g} s reached"
    elif outcome.ended_by == "itself" and outcome.returncode == -signal.SIGKILL:
        raise CompilerKilledError("the compiler was killed from outside")
    elif outcome.returncode != 0:
        # The words may be the text's own; whether the disk is full, the disk says.
        _require_room(folder)
        words = words or f"compiler exit {outcome.returncode}"
    return CompileOutcome(None, words, time.monotonic() - began)


def _require_room(folder: Path) -> None:
    with (folder / "room").open("wb") as probe:
        os.posix_fallocate(probe.fileno(), 0, _FIRST_NEED_BYTES)


def _require_walls() -> None:
    if sandbox.bubblewrap() is None:
        raise Refusal(
            "forbidden_source",
            "no sandbox: written kernels are only compiled under bubblewrap, which does not work "
            "here; install bubblewrap or leave the language model to schedules",
        )


def _sees(terms: Terms) -> Sequence[str]:
    return tool.TOOLS if terms.closed else tool.SYSTEM


def _plain(flags: Sequence[str]) -> list[str]:
    """Linker flags mean nothing to the preprocessor."""
    return [flag for flag in flags if flag not in ("-shared", "-nostartfiles")]


def _encoded(source: str) -> bytes:
    if "\0" in source:
        raise Refusal("forbidden_source", "a zero byte in the text; wanted plain ASCII")
    try:
        return source.encode("ascii")
    except UnicodeEncodeError as error:
        raise Refusal(
            "forbidden_source", f"character {source[error.start]!r}; wanted plain ASCII"
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
