"""The kinds of hardware kernels are written for, as data.

In: nothing. Out: one `Target` record per kind. Never here: looking whether this machine has the
tools (`tools`), compiling (`toolchain`), running (`emulate`).

To add a kind, add a record here; tests/kernelgen/test_cross.py then proves every operator on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Compiler = Literal["gcc", "clang"]


@dataclass(frozen=True)
class Target:
    """`architecture` as `uname -m` prints it; `isa` are the words of `kernelgen.machine` that a
    device must have. `vector` is floats per register. `flags` select exactly this level.
    `emulated` lists the processors to verify on under qemu-user: label and `-cpu` argument.
    `cores` are processors whose scheduling model the static cost uses. `signature` matches the
    vector instructions a kernel may use here. `probe` is plain C whose binary must hold `special`,
    the instruction that tells this level from the one below.
    """

    name: str
    architecture: str
    isa: tuple[str, ...]
    vector: int
    compiler: Compiler
    flags: tuple[str, ...]
    emulated: tuple[tuple[str, str], ...]
    cores: tuple[str, ...]
    signature: str
    special: str
    probe: str
    about: str

    @property
    def processors(self) -> tuple[str, ...]:
        """Labels of the emulated processors."""
        return tuple(label for label, _ in self.emulated)


# Both loops are plain C: the compiler has to find the instruction by itself.
_MULTIPLY_ADD = """\
void probe(float *restrict y, const float *restrict x, const float *restrict a) {
  for (int i = 0; i < 1024; i++) y[i] += x[i] * a[i];
}
"""
_BYTE_DOT = """\
#include <stdint.h>
int32_t probe(const ${left} *restrict x, const int8_t *restrict y) {
  int32_t sum = 0;
  for (int i = 0; i < 1024; i++) sum += x[i] * y[i];
  return sum;
}
"""
_TILE_PROBE = """\
void probe(void) { __asm__ volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" :::); }
"""

_AVX2 = ("avx2", "bmi1", "bmi2", "f16c", "fma")
_AVX512 = (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_V4 = ("-march=x86-64-v4", "-mprefer-vector-width=512")
_VNNI = ("-mavx512vnni",)
# A whole register as operand, or moved from and to memory.
_NEON = r"^\S+\s+(.*\bv\d+\.(16b|8h|4s|2d)\b|q\d+)"
_RVV_CPU = "rv64,v=true,vlen={},vext_spec=v1.0"


def _rvv(vector_bits: int, lengths: tuple[int, ...]) -> Target:
    return Target(
        name="riscv64-rvv" if vector_bits == 128 else f"riscv64-rvv{vector_bits}",
        architecture="riscv64",
        isa=("v", f"zvl{vector_bits}b"),
        vector=vector_bits // 32,
        compiler="clang",
        flags=(f"-march=rv64gcv_zvl{vector_bits}b",),
        emulated=tuple((f"vlen={length}", _RVV_CPU.format(length)) for length in lengths),
        # LLVM 19 has no scheduling model of a core with 256-bit registers.
        cores=("sifive-p670",) if vector_bits == 128 else (),
        # Everything that works on vectors; vset* only says how long they are.
        signature=r"^v(?!set)[a-z]",
        special=r"^vfm(acc|add)\.",
        probe=_MULTIPLY_ADD,
        about=f"RISC-V with the V extension 1.0, registers of at least {vector_bits} bits",
    )


_ALL = (
    Target(
        name="x86-64-avx2",
        architecture="x86_64",
        isa=_AVX2,
        vector=8,
        compiler="gcc",
        flags=("-march=x86-64-v3",),
        emulated=(),
        cores=("znver3", "skylake"),
        signature=r"^v[a-z0-9]+\b.*%ymm",
        special=r"^vfmadd[0-9]+ps\b.*%ymm",
        probe=_MULTIPLY_ADD,
        about="x86 processors since 2013: 16 registers of 8 floats",
    ),
    Target(
        name="x86-64-avx512",
        architecture="x86_64",
        isa=_AVX512,
        vector=16,
        compiler="gcc",
        flags=_V4,
        emulated=(),
        cores=("sapphirerapids", "znver4"),
        signature=r"^v[a-z0-9]+\b.*%[yz]mm",
        special=r"^vfmadd[0-9]+ps\b.*%zmm",
        probe=_MULTIPLY_ADD,
        about="x86 server processors: 32 registers of 16 floats",
    ),
    Target(
        name="x86-64-avx512-vnni",
        architecture="x86_64",
        isa=(*_AVX512, "avx512_vnni"),
        vector=16,
        compiler="gcc",
        flags=(*_V4, *_VNNI),
        emulated=(),
        cores=("sapphirerapids", "znver4"),
        signature=r"^v[a-z0-9]+\b.*%[yz]mm",
        special=r"^vpdpbusds?\b.*%zmm",
        probe=_BYTE_DOT.replace("${left}", "uint8_t"),
        about="AVX-512 with four-way byte products",
    ),
    Target(
        name="x86-64-amx",
        architecture="x86_64",
        isa=(*_AVX512, "avx512_vnni", "amx_bf16", "amx_int8", "amx_tile"),
        vector=16,
        compiler="gcc",
        flags=(*_V4, *_VNNI),
        emulated=(),
        cores=("sapphirerapids",),
        signature=r"^(tdp[a-z0-9]+\b|v[a-z0-9]+\b.*%[yz]mm)",
        special=r"^tdpbf16ps\b",
        probe=_TILE_PROBE,
        about="AVX-512 and the matrix unit",
    ),
    Target(
        name="aarch64-neon",
        architecture="aarch64",
        isa=("asimd",),
        vector=4,
        compiler="gcc",
        flags=("-march=armv8-a",),
        # A processor without the dot product: code that used it would die here.
        emulated=(("cortex-a57", "cortex-a57"),),
        cores=("neoverse-n1", "neoverse-v2", "cortex-a55"),
        signature=_NEON,
        special=r"^fmla\s+v",
        probe=_MULTIPLY_ADD,
        about="64-bit ARM: 32 registers of 4 floats",
    ),
    Target(
        name="aarch64-dotprod",
        architecture="aarch64",
        isa=("asimd", "asimddp"),
        vector=4,
        compiler="gcc",
        flags=("-march=armv8.2-a+dotprod",),
        emulated=(("cortex-a76", "cortex-a76"),),
        cores=("neoverse-n1", "neoverse-v2", "cortex-a55"),
        signature=_NEON,
        special=r"^sdot\s+v",
        probe=_BYTE_DOT.replace("${left}", "int8_t"),
        about="64-bit ARM since 2017, with four-way byte products",
    ),
    _rvv(128, (128, 256)),
    _rvv(256, (256, 512)),
)

TARGETS: Mapping[str, Target] = {target.name: target for target in _ALL}


def find(name: str) -> Target:
    """The target of that name. Raises `ValueError` with the names there are."""
    if name not in TARGETS:
        raise ValueError(f"target: got {name!r}, wanted one of {', '.join(TARGETS)}")
    return TARGETS[name]
