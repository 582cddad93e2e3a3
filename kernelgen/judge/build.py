"""Our own small programs, compiled once per version of their source and compiler.

In: `harness.c` and `matrix.c` next to this file. Out: executables in the user's cache.
Never here: candidate code.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from kernelgen.judge.verdict import JudgeError
from kernelgen.targets.cpu import compiler, compiler_version

SOURCE = Path(__file__).with_name("harness.c")
MATRIX = Path(__file__).with_name("matrix.c")
PLAIN = ("-O2", "-Wall")
SANITIZED = ("-O1", "-g", "-DSANITIZE", "-fsanitize=address,undefined")


@cache
def harness(*, sanitize: bool = False) -> Path:
    """Path of the harness. Raises `JudgeError` with the compiler's words if it cannot be built."""
    return _built(SOURCE, SANITIZED if sanitize else PLAIN)


_MATRIX_SEEN: list[float] = []


def matrix_unit_gflops(*, again: bool = False) -> float:
    """Measured bfloat16 GFLOP/s of this core's matrix unit, the best of all measurements so far; 0
    where there is none to use. `again` measures once more: a neighbour may have been on the unit.
    """
    if again or not _MATRIX_SEEN:
        program = _built(MATRIX, PLAIN)
        done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=30)
        _MATRIX_SEEN.append(float(done.stdout) if done.returncode == 0 else 0.0)
    return max(_MATRIX_SEEN)


def _built(source: Path, flags: tuple[str, ...]) -> Path:
    key = hashlib.sha256(
        b"\0".join([source.read_bytes(), " ".join(flags).encode(), compiler_version().encode()])
    ).hexdigest()
    path = _folder() / f"{source.stem}-{key[:32]}"
    if path.exists():
        return path
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    command = [compiler(), *flags, "-o", str(partial), str(source), "-ldl"]
    # The harness brings the mathematics library along, whether it uses it or not: kernels may.
    command += ["-Wl,--no-as-needed", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise JudgeError(f"the compiler refused {source.name}: {done.stderr[-2000:]}")
    partial.replace(path)
    return path


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "ignition-kernelgen"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    except OSError:
        pass  # a home nobody can write (a service account): a private folder serves this run
    return Path(tempfile.mkdtemp(prefix="ignition-kernelgen-"))
