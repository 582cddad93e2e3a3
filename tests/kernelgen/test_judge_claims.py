"""A binary must hold the instructions it is named for (Lsglang issue 23: VNNI and AMX in the name,
none in the code).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelgen.attacks.scale import Scale
from kernelgen.attacks.suite import folder
from kernelgen.judge import Candidate, claims, judge
from kernelgen.judge.session import Refusal
from kernelgen.machine import describe
from kernelgen.targets.cpu import compile_shared

PRELUDE = (folder() / "kernel.h").read_text()
PLAIN = """NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
           void *scratch) {
  const float *x = in[0]; float *y = out[0]; (void)packed, (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++) SCALE(i);
  return 0;
}
"""

ROWS = [
    ("avx2", "-mavx2", "vpaddd %ymm0, %ymm1, %ymm2", ("avx2", "avx")),
    ("fma", "-mfma", "vfmadd231ps %ymm0, %ymm1, %ymm2", ("fma", "avx")),
    ("avx512f", "-mavx512f", "vaddps %zmm0, %zmm1, %zmm2", ("avx512f", "avx")),
    ("avx512_vnni", "-mavx512vnni", "vpdpbusd %zmm0, %zmm1, %zmm2", ("avx512_vnni", "avx512f")),
    ("avx_vnni", "-mavxvnni", "{vex} vpdpbusd %ymm0, %ymm1, %ymm2", ("avx_vnni",)),
    ("avx512_bf16", "-mavx512bf16", "vdpbf16ps %zmm0, %zmm1, %zmm2", ("avx512_bf16",)),
    ("amx_tile", "-mamx-tile", "tilezero %tmm0", ("amx_tile",)),
    ("amx_int8", "-mamx-int8", "tdpbusd %tmm0, %tmm1, %tmm2", ("amx_int8",)),
    ("amx_bf16", "-mamx-bf16", "tdpbf16ps %tmm0, %tmm1, %tmm2", ("amx_bf16",)),
    ("f16c", "-mf16c", "vcvtph2ps %xmm0, %ymm1", ("f16c",)),
]

X86 = pytest.mark.skipif(describe(measure=False).architecture != "x86_64", reason="x86 assembly")


def _built(text: str, flags: tuple[str, ...], place: Path) -> Path:
    outcome = compile_shared(PRELUDE + text, ("-O2", *flags), place / "kernel.so")
    assert outcome.path is not None, outcome.stderr
    return outcome.path


@X86
@pytest.mark.parametrize(("word", "flag", "code", "seen"), ROWS, ids=[row[0] for row in ROWS])
def test_an_instruction_proves_its_set(
    word: str, flag: str, code: str, seen: tuple[str, ...], tmp_path: Path
) -> None:
    # Never run here: only looked at.
    text = PLAIN.replace("for (int64_t", f'__asm__ volatile("{code}"); for (int64_t')
    library = _built(text, (flag,), tmp_path)
    claims.check(library, [word])
    assert set(seen) <= claims.used(library)


@X86
@pytest.mark.parametrize("word", ["avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "avx512_bf16"])
def test_a_flag_alone_proves_nothing(word: str, tmp_path: Path) -> None:
    library = _built(PLAIN, ("-march=sapphirerapids", "-mavxvnni"), tmp_path)
    with pytest.raises(Refusal, match=r"claimed_isa.*holds no such instruction"):
        claims.check(library, [word, "avx2"])


def test_levels_a_compiler_asks_for_as_a_whole_are_no_claim(tmp_path: Path) -> None:
    claims.check(_built(PLAIN, (), tmp_path), ["bmi2", "avx512cd", "f16c"])


def test_an_unknown_word_cannot_be_claimed(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="avx1024"):
        claims.check(_built(PLAIN, (), tmp_path), ["avx1024"])


@X86
def test_the_judge_refuses_a_false_name(tmp_path: Path) -> None:
    library = _built(PLAIN, (), tmp_path)
    verdict = judge(
        Candidate("scale_amx", library, (PRELUDE + PLAIN,), ("-O2",), claims=("amx_int8",)),
        Scale(),
        {"n": 64},
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=describe(measure=False),
        core=min(os.sched_getaffinity(0)),
    )
    assert verdict.reason == "claimed_isa", verdict
    assert "amx_int8" in verdict.detail
