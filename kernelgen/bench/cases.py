"""Which operators at which sizes the operator suite times, and from which model each comes.

In: nothing. Out: `Case` records, gathered from `kernelgen/bench/shapes/`, one file per model.
Never here: peers, kernels, clocks.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

from kernelgen.bench import shapes
from kernelgen.ops.operator import Operator


@dataclass(frozen=True)
class Case:
    """`operator` at `dims`, as `model` uses it. `quick` cases also run in the quick form."""

    model: str
    operator: Operator
    dims: Mapping[str, int]
    quick: bool = False

    @property
    def name(self) -> str:
        sizes = "_".join(f"{key}{value}" for key, value in sorted(self.dims.items()))
        return "/".join(word for word in (self.model, self.operator.name, sizes) if word)


def cases() -> tuple[Case, ...]:
    """Every case, model after model. Raises `ValueError` when two have one name."""
    found: list[Case] = []
    for module in pkgutil.iter_modules(shapes.__path__):
        part = importlib.import_module(f"{shapes.__name__}.{module.name}")
        found += part.cases()
    names = [case.name for case in found]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ValueError(f"cases: two of them are named {double[0]!r}")
    return tuple(found)


def chosen(only: list[str] | None, *, quick: bool) -> tuple[Case, ...]:
    """The cases to run: those whose name contains one of `only`, and the quick ones with `quick`.

    Raises `ValueError` when a word of `only` is in no name, or nothing is left to run.
    """
    every = cases()
    for word in only or ():
        if not any(word in case.name for case in every):
            families = sorted({case.operator.family for case in every})
            raise ValueError(f"--only: {word!r} is in no case's name; families: {families}")
    picked = [case for case in every if not only or any(word in case.name for word in only)]
    kept = tuple(case for case in picked if case.quick or not quick)
    if not kept:
        raise ValueError(f"--only: none of {len(picked)} cases is in the quick form of the suite")
    return kept
