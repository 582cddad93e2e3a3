"""Keeps our own oracle off the candidate's core: NumPy's OpenBLAS computes on one thread while a
judgement lasts.

In: nothing. Out: a context. OpenBLAS threads spin for milliseconds after a product, on the very
cores that are timed.
Never here: anything about the candidate. Where NumPy has another BLAS nothing changes; disturbed
windows are then caught by the comparison of wall and CPU time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "")


@cache
def _controls() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The loaded OpenBLAS's functions to read and set its thread count, or None."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "openblas" in line}
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    return get, put
    return None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One BLAS thread inside, the former number after."""
    found = _controls()
    if found is None:
        yield
        return
    get, put = found
    before = int(get())
    put(1)
    try:
        yield
    finally:
        put(before)
