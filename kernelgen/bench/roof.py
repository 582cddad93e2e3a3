"""How fast this core moves the data of a working set of some size, and the roofline over it.

In: an operator, sizes, bytes of the working set, a measured machine. Out: `Roof`: least time of a
call and where the data lies. Reading (as one stream,
with prefetches, as eight streams), copying and a triad are timed; the fastest counts, so that the
roof is the highest that any mix of reads and writes can reach.
Never here: a bandwidth from a table, DRAM bandwidth for data that lies in a cache.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelgen.judge.build import matrix_unit_gflops
from kernelgen.judge.roofline import peak_gflops
from kernelgen.machine import Machine, isa_flags, vector_floats
from kernelgen.ops.operator import Operator
from kernelgen.package.native import Block
from kernelgen.targets.cpu import compile_shared

_LOOPS = """\
/* Bytes per second over a working set: a sum, a copy and a triad with vectors of the full width. */
#include <stddef.h>
#include <time.h>
typedef float vec __attribute__((vector_size({bytes})));
static double now(void) {{
  struct timespec t; clock_gettime(CLOCK_MONOTONIC_RAW, &t); return t.tv_sec + 1e-9 * t.tv_nsec;
}}
static volatile float sink;
/* Walks `count` vectors at `x` `rounds` times; mode 0 reads, 1 copies one half to the other,
   2 adds two thirds into the last, 3 reads with a prefetch, 4 reads eight streams. GB/s. */
__attribute__((visibility("default")))
double walk(vec *x, size_t count, long rounds, int mode) {{
  vec s[8] = {{0}};
  size_t half = count / 2 / 8 * 8, third = count / 3 / 8 * 8;
  size_t eighth = count / 8 / 8 * 8;
  size_t steps = mode == 1 ? half : mode == 2 ? third : mode == 4 ? eighth : count / 8 * 8;
  double start = now();
  for (long r = 0; r < rounds; r++) {{
    if (mode == 0)
      for (size_t i = 0; i < steps; i += 8)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) s[j] += x[i + j];
    else if (mode == 3)
      for (size_t i = 0; i < steps; i += 8)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {{
          __builtin_prefetch(x + i + j + 4096 / {bytes});
          s[j] += x[i + j];
        }}
    else if (mode == 4)
      for (size_t i = 0; i < steps; i += 4)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
#pragma GCC unroll 4
          for (int k = 0; k < 4; k++) s[(4 * j + k) % 8] += x[j * eighth + i + k];
    else if (mode == 1)
      for (size_t i = 0; i < steps; i += 8)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) x[half + i + j] = x[i + j];
    else
      for (size_t i = 0; i < steps; i += 8)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) x[2 * third + i + j] = x[i + j] + x[third + i + j] * 3.0f;
    __asm__ volatile("" ::: "memory");
  }}
  double seconds = now() - start;
  for (int j = 0; j < 8; j++) sink = s[j][0];
  int moved = mode == 1 ? 2 : mode == 2 ? 3 : mode == 4 ? 8 : 1;
  return 1e-9 * {bytes} * steps * moved * rounds / seconds;
}}
"""

MODES = range(5)
_LEAST_BYTES = 16 << 10
_MOST_BYTES = 256 << 20
_WALKED_BYTES = 64 << 20
"""Bytes each measurement walks at least; enough for a clock, little enough for a benchmark."""

MATRIX_FAMILIES = ("gemm", "attention", "moe", "conv2d")
"""Families (beginnings of their names) whose work is matrix products: only these can use a matrix
unit's peak."""

BYTES_FAMILY = "gemm_int8"
"""Its work is products of bytes, which the operator's flops leave out."""


@dataclass(frozen=True)
class Roof:
    """`least_us`: no call can be shorter. `level`: nearest memory that holds the working set."""

    least_us: float
    gflops: float
    gbps: float
    level: str


def level(size: int, machine: Machine) -> str:
    """The nearest memory that holds `size` bytes of this core's data."""
    for name, room in (
        ("L1", machine.l1d_bytes),
        ("L2", machine.l2_bytes),
        ("L3", machine.l3_bytes),
    ):
        if size <= room:
            return name
    return "memory"


def roof(
    operator: Operator,
    dims: Mapping[str, int],
    working_set: int,
    machine: Machine,
    *,
    hot: int = 0,
) -> Roof | None:
    """The roofline of one call among others that together walk `working_set` bytes; None without
    measured peaks. `hot` of its bytes are common to all calls and count as lying in L1.
    """
    if not machine.peak_gflops_per_core:
        return None
    work, gflops = _work(operator, dims, machine)
    floats = vector_floats(machine.isa)
    gbps = bandwidth(working_set, floats, machine.isa)
    compute = work / gflops
    near = hot / bandwidth(machine.l1d_bytes // 2, floats, machine.isa) if hot else 0.0
    memory = max(0, operator.bytes_moved(dims) - hot) / gbps + near
    return Roof(max(compute, memory) / 1e3, gflops, gbps, level(working_set, machine))


def _work(operator: Operator, dims: Mapping[str, int], machine: Machine) -> tuple[int, float]:
    """Operations of one call and how many of them, in billions a second, one core can do."""
    vector = machine.peak_gflops_per_core or 0.0
    if operator.family == BYTES_FAMILY:
        operations = 2 * dims["m"] * int(vars(operator)["k"]) * int(vars(operator)["n"])
        # An instruction of the matrix unit or of VNNI multiplies twice as many bytes as bfloat16
        # values, four times as many as floats, at the same rate (Intel SDM, volume 1).
        matrix = 2.0 * matrix_unit_gflops() if "amx_int8" in machine.isa else 0.0
        dot = 4.0 * vector if {"avx_vnni", "avx512_vnni"} & set(machine.isa) else vector
        return operations, max(matrix, dot)
    products = operator.family.startswith(MATRIX_FAMILIES)
    return operator.flops(dims), peak_gflops(machine) if products else vector


def bandwidth(size: int, floats: int, isa: tuple[str, ...]) -> float:
    """GB/s of one core over a working set of `size` bytes, rounded down by less than an eighth so
    that the roof is rather too high than too low.
    """
    size = max(_LEAST_BYTES, min(size, _MOST_BYTES))
    step = 1 << (size.bit_length() - 4)
    return _measured(size // step * step, floats, isa)


@cache
def _measured(size: int, floats: int, isa: tuple[str, ...]) -> float:
    library = _library(floats, isa)
    block = Block(size)
    block.bytes[:] = 0
    rounds = max(1, _WALKED_BYTES // size)
    count = size // (4 * floats)
    best = 0.0
    for mode in MODES:
        for _ in range(4):
            best = max(best, float(library.walk(block.address, count, rounds, mode)))
    return round(best, 2)


@cache
def _library(floats: int, isa: tuple[str, ...]) -> ctypes.CDLL:
    text = _LOOPS.format(bytes=4 * floats)
    with tempfile.TemporaryDirectory(prefix="kernelgen-roof-") as folder:
        built = compile_shared(text, ("-O3", *isa_flags(isa, floats)), Path(folder) / "roof.so")
        if built.path is None:
            raise RuntimeError(f"the bandwidth loops do not compile: {built.stderr}")
        library = ctypes.CDLL(str(built.path))
    library.walk.restype = ctypes.c_double
    library.walk.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_int]
    return library
