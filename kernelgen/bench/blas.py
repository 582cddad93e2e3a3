"""Which OpenBLAS kernels NumPy runs here, and an environment that leaves the choice to it.

In: the environment, the loaded libraries. Out: a name to record, a cleaned environment.
Never here: forcing a kernel.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

FORCED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that make OpenBLAS choose kernels for another processor or another cache."""


def forced(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Those of `FORCED` that are set; OpenBLAS reads them once, when NumPy is imported."""
    return tuple(name for name in FORCED if environment.get(name))


def free_environment() -> dict[str, str]:
    """This process's environment without `FORCED`, with one BLAS thread."""
    kept = {name: value for name, value in os.environ.items() if name not in FORCED}
    return {**kept, "OPENBLAS_NUM_THREADS": "1"}


def core_name() -> str:
    """The kernel set that the loaded OpenBLAS chose (for example SkylakeX), or "unknown"."""
    for path in _loaded():
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_"):
            ask = getattr(library, name, None)
            if ask is not None:
                ask.restype = ctypes.c_char_p
                return str(ask().decode("ascii"))
    return "unknown"


def _loaded() -> list[str]:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "openblas" in line}
    # NumPy's own library before SciPy's.
    return sorted(paths, key=lambda path: "numpy" not in path)
