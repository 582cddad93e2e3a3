"""The least time one call can take on one core of this machine; a shorter measured time is a lie
somewhere.

In: an operator's work and the machine's measured peaks. Out: a floor for the judge and a fraction
for people.
Never here: a peak from a table.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.judge.build import matrix_unit_gflops
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator

PEAK_MARGIN = 1.35
"""Measured peaks move with clock and neighbours; only a time that needs more than this much above
them is refused.
"""

CACHE_FACTOR = 12.0
"""Data may come from cache at a multiple of the measured memory bandwidth; only beyond that is it
impossible.
"""


MATRIX_UNIT = frozenset(["amx_bf16", "amx_tile"])
PRODUCTS = 6
"""bfloat16 products that one float32 product takes at full accuracy: of the nine products of three
parts each, those above 2^-24 (Henry, Tang and Heinecke, 2019)."""


def peak_gflops(machine: Machine) -> float:
    """The most float32 work one core can do: on its vector units, or on its matrix unit with every
    product made of `PRODUCTS` bfloat16 ones. 0 when nothing was measured.
    """
    vector = machine.peak_gflops_per_core or 0.0
    if not vector or not set(machine.isa) >= MATRIX_UNIT:
        return vector
    return max(vector, matrix_unit_gflops() / PRODUCTS)


def floor_ns(operator: Operator, dims: Mapping[str, int], machine: Machine) -> float:
    """Nanoseconds below which a call is refused; 0 when the machine's peaks were not measured."""
    compute = memory = 0.0
    if machine.peak_gflops_per_core:
        compute = operator.flops(dims) / (peak_gflops(machine) * PEAK_MARGIN)
    if machine.peak_gbps_per_core:
        moved = operator.bytes_moved(dims)
        memory = moved / (machine.peak_gbps_per_core * CACHE_FACTOR)
        # What no cache can hold has to come from memory, at the speed of memory.
        if machine.l3_bytes or machine.l2_bytes:
            beyond = moved - machine.l3_bytes - machine.l2_bytes
            memory = max(memory, beyond / (machine.peak_gbps_per_core * PEAK_MARGIN))
    return max(compute, memory)


def fraction(
    operator: Operator, dims: Mapping[str, int], machine: Machine, time_ns: float
) -> float | None:
    """Roofline time over measured time, 1 at the roof; None when the peaks were not measured.

    Roofline time is the larger of flops over peak flops and bytes over peak bandwidth (Williams et
    al., 2009).
    """
    if not machine.peak_gflops_per_core or not machine.peak_gbps_per_core or time_ns <= 0:
        return None
    compute = operator.flops(dims) / peak_gflops(machine)
    memory = operator.bytes_moved(dims) / machine.peak_gbps_per_core
    return max(compute, memory) / time_ns
