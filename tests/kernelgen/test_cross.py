"""Every operator family proven on every target: under emulation where the processor is not here,
against the same oracle, bounds and guard pages as at home.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from kernelgen.ops import FAMILIES, Example, GemmBias, MeanPool
from kernelgen.schedule import ScheduleError
from kernelgen.targets import TARGETS, Proof, default_schedule, find, prove
from kernelgen.targets.ability import NAMES, abilities
from kernelgen.targets.figures import EmulatedCount
from kernelgen.targets.proof import NATIVE, STATIC_ONLY, prove_text, runs_here
from tests.quick import some

SEED = b"cross"
FOREIGN = [name for name, target in TARGETS.items() if target.processors]
GEMM, DIMS = GemmBias(96, 96), {"m": 13}
DEEP = GemmBias(256, 96)
"""Of sums long enough for a matrix unit."""


@cache
def proof(name: str, example_at: int = 0, family: str = "gemm_bias") -> Proof:
    example = FAMILIES[family].examples()[example_at]
    target = find(name)
    schedule = default_schedule(example.operator, target)
    return prove(example.operator, schedule, target, example.dims, seed_bytes=SEED)


def check(found: Proof) -> None:
    target = find(found.target)
    if target.processors or runs_here(target):
        assert found.accepted, f"{found.reason}: {found.detail}"
        assert found.processors == ((NATIVE,) if runs_here(target) else target.processors)
        assert found.rounds >= 14 * len(found.processors)
        assert 0.0 <= found.max_error_ratio <= 1.0
    else:
        assert found.reason == STATIC_ONLY
        assert "lacks" in found.detail


_FAMILIES = sorted(FAMILIES)
# Mixed once and for all, so that an even choice of cases meets many families and all targets.
CASES = random.Random(0).sample(list(product(TARGETS, _FAMILIES)), len(TARGETS) * len(_FAMILIES))


def check_family(family: str, name: str, examples: Sequence[int]) -> None:
    proofs = [proof(name, at, family) for at in examples]
    for found in proofs:
        check(found)
    # What computes computes in vectors: at least one example is as wide as a register.
    every = FAMILIES[family].examples()
    if any(every[at].operator.flops(every[at].dims) for at in examples):
        assert any(sum(found.instructions.values()) for found in proofs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aarch64-neon", "riscv64-rvv"])
@pytest.mark.parametrize("family", _FAMILIES)
def test_every_family_meets_its_bound_abroad(family, name):
    """RISC-V at two register lengths, see `Target.emulated`; the quick form takes one example."""
    check_family(family, name, some(range(len(FAMILIES[family].examples())), 1))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "family"), some(CASES, 12))
def test_every_family_meets_its_bound_on_every_target(name, family):
    check_family(family, name, range(len(FAMILIES[family].examples())))


@pytest.mark.parametrize("family", _FAMILIES)
def test_every_family_has_an_example(family):
    """An example is what the proof on every target goes by: see `Operator.examples`."""
    examples = FAMILIES[family].examples()
    assert examples
    for example in examples:
        assert isinstance(example, Example)
        assert example.operator.family == family
        assert set(example.dims) == set(example.operator.dims)


@pytest.mark.parametrize("name", TARGETS)
def test_a_product_meets_its_bound_on_every_target(name):
    check(proof(name))


@pytest.mark.parametrize("name", ["aarch64-neon", "riscv64-rvv", "riscv64-rvv256"])
@pytest.mark.parametrize("family", ["attention", "embed_layernorm", "mean_pool"])
def test_ragged_operators_meet_their_bound_abroad(name, family):
    check(proof(name, 0, family))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize(
    "change",
    [
        {"mr": 4, "nr": 3, "order": "rows", "tail": "last", "prefetch": 0},
        {"mr": 2, "nr": 4, "ku": 4, "rows": 24},
        {"vector": 16, "mr": 6, "nr": 2},
        {"vector": 8, "mr": 5, "nr": 1, "ku": 2},
    ],
    ids=str,
)
def test_other_schedules_meet_the_bound_abroad(name, change):
    schedule = default_schedule(GEMM, find(name))
    for axis, value in change.items():
        schedule = schedule.with_choice(axis, value)
    check(prove(GEMM, schedule, find(name), {"m": 29}, seed_bytes=SEED))


@pytest.mark.skipif(
    not runs_here(find("x86-64-amx")), reason="needs a matrix unit that the system lets us use"
)
def test_the_matrix_unit_is_proven_where_there_is_one():
    target = find("x86-64-amx")
    found = prove(DEEP, default_schedule(DEEP, target), target, {"m": 40}, seed_bytes=SEED)
    check(found)
    assert found.instructions["tdpbf16ps"] >= 4


def test_a_new_target_is_one_record():
    """The recipe in the documentation: RISC-V with 512-bit registers, from nothing but its data."""
    target = replace(
        find("riscv64-rvv256"),
        name="riscv64-rvv512",
        isa=("v", "zvl512b"),
        vector=16,
        flags=("-march=rv64gcv_zvl512b",),
        emulated=tuple(
            (f"vlen={bits}", f"rv64,v=true,vlen={bits},vext_spec=v1.0") for bits in (512, 1024)
        ),
        cores=("sifive-x280",),
    )
    found = prove(GEMM, default_schedule(GEMM, target), target, DIMS, seed_bytes=SEED)
    assert found.accepted, found.detail
    assert found.processors == ("vlen=512", "vlen=1024")
    assert counts(found)["vlen=512"] < 0.55 * counts(proof("riscv64-rvv256"))["vlen=512"]
    able = abilities(target)
    assert [word for word in NAMES if not able.able(word)] == ["measure"]


# ---- code that cannot run here ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("x86-64-avx512", "vfmadd"), ("x86-64-avx512-vnni", "vfmadd"), ("x86-64-amx", "tdpbf16ps")],
)
def test_levels_are_read_without_being_run(name, wanted):
    target = find(name)
    found = prove(DEEP, default_schedule(DEEP, target), target, DIMS, run=False)
    assert found.reason == STATIC_ONLY
    assert not found.accepted
    assert found.processors == ()
    assert any(word.startswith(wanted) for word in found.instructions)
    assert [figure.kind for figure in found.figures] == ["static"] * len(target.cores)


def test_a_processor_without_the_level_leaves_the_proof_static():
    level = find("x86-64-avx512")
    target = replace(level, isa=(*level.isa, "avx1024"))
    found = prove(GEMM, default_schedule(GEMM, target), target, DIMS)
    assert found.reason == STATIC_ONLY
    assert found.detail == "this processor lacks avx1024, and qemu emulates no such"


# ---- counts -----------------------------------------------------------------------------------


def counts(found: Proof) -> dict[str, float]:
    return {
        figure.basis.split()[-1]: figure.value
        for figure in found.figures
        if isinstance(figure, EmulatedCount) and figure.unit == "instructions"
    }


@pytest.mark.parametrize("name", ["aarch64-neon", "riscv64-rvv"])
def test_counts_are_exact_and_repeat(name):
    """Every multiply-add is one instruction; its loads, the loops and the sums' way out are less
    than three more.
    """
    target = find(name)
    first = counts(proof(name))
    again = prove(GEMM, default_schedule(GEMM, target), target, DIMS, seed_bytes=b"another")
    assert first == counts(again)
    for value in first.values():
        multiply_adds = 96 * 96 * 13 / target.vector
        assert multiply_adds < value < 4 * multiply_adds


def test_twice_the_register_takes_half_the_instructions():
    narrow, wide = counts(proof("riscv64-rvv")), counts(proof("riscv64-rvv256"))
    assert set(narrow) == {"vlen=128", "vlen=256"}
    assert set(wide) == {"vlen=256", "vlen=512"}
    # A binary for fixed registers does the same work in longer ones.
    assert narrow["vlen=128"] == narrow["vlen=256"]
    assert 0.45 < wide["vlen=256"] / narrow["vlen=256"] < 0.55


def test_library_calls_are_counted_apart():
    found = proof("riscv64-rvv", 0, "attention")
    own = next(f for f in found.figures if f.unit == "instructions")
    every = next(f for f in found.figures if f.unit == "instructions with library")
    assert every.value > own.value > 0
    assert every.basis == own.basis


# ---- hostile and broken kernels ---------------------------------------------------------------

POOL = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define EXPORT __attribute__((visibility("default")))
typedef float vec __attribute__((vector_size(16), aligned(4), may_alias));
EXPORT size_t packed_bytes(const int64_t *dim) { (void)dim; return 0; }
EXPORT size_t scratch_bytes(const int64_t *dim) { (void)dim; return 64; }
EXPORT int prepare(const void *const *weight, const int64_t *dim, void *packed) { return 0; }
EXPORT int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
                  void *scratch) {
  const float *x = in[0];
  const int64_t *o = in[1];
  float *y = out[0];
  for (int64_t i = 0; i < dim[0]; i++)
    for (int h = 0; h < 96; h += 4) {
      vec sum = {};
      for (int64_t t = o[i]; t < o[i + 1]; t++) sum += *(const vec *)(x + t * 96 + h);
      *(vec *)(y + i * 96 + h) = sum * (1.0f / (o[i + 1] - o[i]));
    }
  BODY
  return 0;
}
"""
SYSTEM_CALL = """
#if defined(__aarch64__)
  register long number __asm__("x8") = 172;
  __asm__ volatile("svc 0" ::"r"(number) : "x0", "memory");
#else
  register long number __asm__("a7") = 172;
  __asm__ volatile("ecall" ::"r"(number) : "a0", "memory");
#endif
"""
# Maps 16 GiB: allowed as a call, refused by the limit on the emulator.
MEMORY = """
#if defined(__aarch64__)
  register long number __asm__("x8") = 222;
  register long a __asm__("x0") = 0, b __asm__("x1") = 1L << 34, c __asm__("x2") = 3;
  register long d __asm__("x3") = 0x22, e __asm__("x4") = -1, f __asm__("x5") = 0;
  __asm__ volatile("svc 0" : "+r"(a) : "r"(number), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
#else
  register long number __asm__("a7") = 222;
  register long a __asm__("a0") = 0, b __asm__("a1") = 1L << 34, c __asm__("a2") = 3;
  register long d __asm__("a3") = 0x22, e __asm__("a4") = -1, f __asm__("a5") = 0;
  __asm__ volatile("ecall" : "+r"(a) : "r"(number), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
#endif
  if (a < 0 && a > -4096) return 12;
"""
# Towards zero, for everybody who computes after this call.
ROUNDING = """
#if defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" ::"r"(3UL << 22));
#else
  __asm__ volatile("fsrmi 1");
#endif
"""


@pytest.mark.parametrize("name", ["aarch64-neon", "riscv64-rvv"])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param("", "accepted", id="honest"),
        pytest.param(ROUNDING, "state_changed", id="rounding"),
        pytest.param("y[dim[0] * 96] = 1;", "out_of_bounds", id="store behind"),
        pytest.param("y[-1] = 1;", "out_of_bounds", id="store before"),
        pytest.param("y[0] += 0 * x[dim[1] * 96];", "out_of_bounds", id="load behind"),
        pytest.param("y[0] += 0 * x[-1];", "out_of_bounds", id="load before"),
        pytest.param("((char *)scratch)[64] = 1;", "out_of_bounds", id="scratch behind"),
        pytest.param("((float *)x)[0] = 1;", "input_written", id="input written"),
        pytest.param("*(volatile int *)8 = 1;", "crashed", id="wild store"),
        pytest.param("__builtin_trap();", "crashed", id="trap"),
        pytest.param("memset(y, 0, dim[0] * 384);", "wrong_output", id="zeros"),
        pytest.param('y[0] = __builtin_nanf("");', "not_finite", id="NaN"),
        pytest.param("y[0] *= 1.001f;", "wrong_output", id="a thousandth off"),
        pytest.param("return 9;", "returned_error", id="error code"),
        pytest.param('for (;;) __asm__ volatile("");', "time_limit", id="endless"),
        pytest.param(SYSTEM_CALL, "forbidden_syscall", id="system call"),
        pytest.param(MEMORY, "returned_error", id="memory"),
    ],
)
def test_what_the_judge_refuses_at_home_is_refused_abroad(name, body, reason):
    target = find(name)
    found = prove_text(
        POOL.replace("BODY", body),
        MeanPool(96),
        target,
        {"n": 3, "tokens": 29},
        label=body or "honest",
        options=("-O2", "-Wno-array-bounds"),
        seed_bytes=SEED,
        processors=target.processors[:1],
        limit_s=2.0,
    )
    assert found.reason == reason, found.detail


@pytest.mark.parametrize("name", ["aarch64-neon", "riscv64-rvv"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("int broken(", "not_compiled", id="broken"),
        pytest.param("int kernel(void) { return 1; }", "not_loadable", id="no kernel"),
        pytest.param(
            "#include <stdlib.h>\n" + POOL.replace("BODY", 'system("x");'),
            "forbidden_symbol",
            id="system",
        ),
        pytest.param(
            POOL.replace("BODY", "")
            + "volatile int seen; __attribute__((constructor)) void on(void) { seen++; }",
            "constructor",
            id="constructor",
        ),
    ],
)
def test_objects_are_read_before_they_are_run(name, text, reason):
    found = prove_text(
        text, MeanPool(96), find(name), {"n": 3, "tokens": 29}, label="x", seed_bytes=SEED
    )
    assert found.reason == reason, found.detail
    assert found.rounds == 0


def test_code_without_vectors_is_seen_to_have_none():
    scalar = POOL.replace("vec sum = {}", "float sum = 0").replace("const vec", "const float")
    scalar = scalar.replace("(vec *)", "(float *)").replace("h += 4", "h++").replace("BODY", "")
    for text, vectors in ((scalar, False), (POOL.replace("BODY", ""), True)):
        found = prove_text(
            text,
            MeanPool(96),
            find("aarch64-neon"),
            {"n": 3, "tokens": 29},
            label="x",
            options=("-O1",),
        )
        assert found.accepted
        assert bool(found.instructions) is vectors


def test_a_processor_that_is_not_the_targets_is_refused():
    target = find("riscv64-rvv")
    with pytest.raises(ValueError, match="processor: got 'vlen=64'"):
        prove(GEMM, default_schedule(GEMM, target), target, DIMS, processors=("vlen=64",))


def test_a_schedule_that_does_not_fit_is_refused():
    target = find("aarch64-neon")
    schedule = default_schedule(GEMM, target).with_choice("vector", 3)
    with pytest.raises(ScheduleError, match="power of two"):
        prove(GEMM, schedule, target, DIMS)
