"""Meaning of every operator the compiler knows: float64 oracle, test inputs, error bound, work.

In: fixed sizes. Out: `Operator` records. Never here: C text, schedules, clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.ops.attention import Attention
from kernelgen.ops.embed import EmbedLayernorm
from kernelgen.ops.gemm import GemmBias, GemmBiasGelu, GemmBiasResidualLayernorm
from kernelgen.ops.operator import REGIMES, Operator, Tensor
from kernelgen.ops.pool import MeanPool

FAMILIES: Mapping[str, type[Operator]] = {
    kind.family: kind
    for kind in (
        Attention,
        EmbedLayernorm,
        GemmBias,
        GemmBiasGelu,
        GemmBiasResidualLayernorm,
        MeanPool,
    )
}


def from_spec(spec: Mapping[str, object]) -> Operator:
    """The operator that wrote `spec`. Raises `ValueError` naming an unknown family or a wrong
    field.
    """
    family = spec.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(f"operator family: got {family!r}, wanted one of {sorted(FAMILIES)}")
    fields = {key: value for key, value in spec.items() if key != "family"}
    try:
        return FAMILIES[family](**fields)
    except TypeError as error:
        raise ValueError(f"operator {family}: {error}") from error


__all__ = [
    "FAMILIES",
    "REGIMES",
    "Attention",
    "EmbedLayernorm",
    "GemmBias",
    "GemmBiasGelu",
    "GemmBiasResidualLayernorm",
    "MeanPool",
    "Operator",
    "Tensor",
    "from_spec",
]
