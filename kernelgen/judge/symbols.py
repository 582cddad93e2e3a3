"""What a shared object would do to its process before and after loading, read from its file, never
by loading it.

In: a path. Out: nothing, or a `Refusal`. Never here: running the object.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kernelgen.judge.session import Refusal

MATHEMATICS = ("memcpy", "memset", "memmove", "expf", "erff", "sqrtf", "tanhf", "fmaf")
START_UP = (
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
)
"""Names that compiler and linker put into every shared object."""

ALLOWED = frozenset(MATHEMATICS + START_UP)
REQUIRED = ("kernel", "packed_bytes", "prepare", "scratch_bytes")
SANITIZER = re.compile(r"^__(asan|ubsan|sanitizer)_")

_START_SECTIONS = re.compile(r"\.(init_array|preinit_array|ctors|fini_array|dtors)\b")


def check(library: Path) -> None:
    """Refuse an object with foreign symbols, code that runs on loading, or no kernel in it."""
    symbols = _read(["nm", "-D", "--with-symbol-versions", str(library)], library)
    defined: set[str] = set()
    for line in symbols.splitlines():
        words = line.split()
        kind, name = (words[-2], words[-1].partition("@")[0]) if len(words) >= 2 else ("", "")
        if kind in ("i", "I"):
            raise Refusal("constructor", f"{name} is resolved by code that runs on loading (ifunc)")
        if kind in ("U", "w", "v"):
            if name not in ALLOWED:
                raise Refusal(
                    "forbidden_symbol", f"{name}; allowed are {', '.join(sorted(ALLOWED))}"
                )
        elif kind in ("T", "W", "V"):
            defined.add(name)
    missing = [name for name in REQUIRED if name not in defined]
    if missing:
        raise Refusal("not_loadable", f"{', '.join(missing)} is not defined")
    _check_loading(library)


def _check_loading(library: Path) -> None:
    text = _read(["readelf", "-W", "-S", "-d", "-r", str(library)], library)
    for line in text.splitlines():
        if "R_X86_64_IRELATIV" in line or "R_AARCH64_IRELATIV" in line or "IRELATIVE" in line:
            raise Refusal("constructor", "a relocation is resolved by code that runs on loading")
        if "R_X86_64_COPY" in line:
            raise Refusal("forbidden_symbol", "a copy relocation reaches into the harness")
        if re.search(r"\((INIT|FINI|PREINIT_ARRAY|INIT_ARRAY|FINI_ARRAY)\)", line):
            raise Refusal("constructor", f"code would run on loading: {line.strip()}")
        if re.search(r"\s\.t(data|bss)\s", line):
            raise Refusal("constructor", "thread-local storage is set up on loading")
        if "(NEEDED)" in line and not re.search(r"\[(libc|libm)\.so\.6\]", line):
            raise Refusal("forbidden_symbol", f"another library would be loaded: {line.strip()}")
        if _START_SECTIONS.search(line) and "PROGBITS" not in line:
            raise Refusal("constructor", f"code would run on loading: {line.strip()}")


def _read(command: list[str], library: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise Refusal("not_loadable", f"{library.name}: {done.stderr.strip()[:500]}")
    return done.stdout
