"""How operators are computed: one tile program per family and schedule.

In: an operator and a schedule. Out: a `Kernel`. Never here: what an operator means, C text, clocks.

A sketch is found by being defined: every `Sketch` in a module of this package serves its family.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from kernelgen.sketches.sketch import Sketch, fitted

__all__ = ["Sketch", "find", "fitted", "sketches"]


def _defined() -> Iterator[Sketch]:
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
        for item in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(item, Sketch):
                yield item


@cache
def sketches() -> Mapping[str, Sketch]:
    """Every sketch by family."""
    return {sketch.family: sketch for sketch in _defined()}


def find(family: str) -> Sketch | None:
    return sketches().get(family)
