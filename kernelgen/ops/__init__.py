"""Meaning of every operator the compiler knows: float64 oracle, test inputs, error bound, work.

In: fixed sizes. Out: `Operator` records. Never here: C text, schedules, clocks.

A family is found by being defined: every concrete `Operator` in a module of this package is in
`FAMILIES` under its family name.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module

from kernelgen.ops.attention import Attention
from kernelgen.ops.embed import EmbedLayernorm
from kernelgen.ops.gemm import GemmBias, GemmBiasGelu, GemmBiasResidualLayernorm
from kernelgen.ops.operator import REGIMES, Example, Operator, Tensor
from kernelgen.ops.pool import MeanPool


def _defined() -> Iterator[type[Operator]]:
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
        for kind in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Operator) and hasattr(kind, "family"):
                yield kind


_PLAIN: Mapping[str, type] = {"bool": bool, "str": str}

FAMILIES: Mapping[str, type[Operator]] = {kind.family: kind for kind in _defined()}


def from_spec(spec: Mapping[str, object]) -> Operator:
    """The operator that wrote `spec`. Raises `ValueError` naming an unknown family or a wrong
    field.
    """
    family = spec.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(f"operator family: got {family!r}, wanted one of {sorted(FAMILIES)}")
    given = {key: value for key, value in spec.items() if key != "family"}
    for field in fields(FAMILIES[family]):
        if field.name in given and not _fits(given[field.name], str(field.type)):
            raise ValueError(
                f"operator {family}.{field.name}: got {given[field.name]!r:.40}, wanted "
                f"{field.type}{' below 2**31' if field.type == 'int' else ''}"
            )
    try:
        return FAMILIES[family](**given)
    except TypeError as error:
        raise ValueError(f"operator {family}: {error}") from error


def _fits(value: object, kind: str) -> bool:
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    if kind == "float":
        return isinstance(value, int | float) and abs(value) < 1e300  # NaN is not
    return kind not in _PLAIN or isinstance(value, _PLAIN[kind])


__all__ = [
    "FAMILIES",
    "REGIMES",
    "Attention",
    "EmbedLayernorm",
    "Example",
    "GemmBias",
    "GemmBiasGelu",
    "GemmBiasResidualLayernorm",
    "MeanPool",
    "Operator",
    "Tensor",
    "from_spec",
]
