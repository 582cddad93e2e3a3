"""Products of bytes in the matrix unit: every row count around its tiles, signs, odd sizes; when it
is offered at all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelgen.emit import flags, source
from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.schedule import ScheduleError, space
from kernelgen.schedule.schedule import Schedule
from kernelgen.sketches.gemm_int8 import GEMM_INT8
from kernelgen.sketches.gemm_int8_unit import UNIT_ISA
from kernelgen.targets import default_schedule, find, prove
from kernelgen.targets.proof import machine_of, runs_here
from kernelgen.tile import interpret

AMX = find("x86-64-amx")
WITH = machine_of(AMX)
WITHOUT = machine_of(find("x86-64-avx512-vnni"))


def chosen(operator: GemmInt8, **choices: int) -> Schedule:
    return Schedule.of(operator.name, {**space(operator, WITH).start, **choices})


@pytest.mark.parametrize("rows", [3, 4, 15, 16, 17, 33, 47])
@pytest.mark.parametrize("operator", [GemmInt8(64, 32), GemmInt8(50, 33, True)], ids=str)
def test_every_row_count_is_right(operator: GemmInt8, rows: int) -> None:
    """Tiles take 16 rows and steps 64 inner places; what is left over is where kernels fail."""
    rng = np.random.default_rng(rows)
    dims = {"m": rows}
    arrays = operator.sample(rng, dims, "structured")
    kernel = GEMM_INT8.program(operator, chosen(operator, mr=4))
    got = interpret(kernel, arrays, dims).outputs["out"]
    want = operator.oracle(arrays, dims)["out"]
    assert np.all(np.abs(got - want) <= operator.error_bound(arrays, dims)["out"])


def test_the_unit_is_offered_only_where_there_is_one() -> None:
    operator = GemmInt8(64, 32)
    assert space(operator, WITHOUT).axes["tiles"] == (0,)
    assert space(operator, WITH).start["tiles"] > 0
    halved = replace(WITH, isa=tuple(word for word in WITH.isa if word != "amx_int8"))
    assert space(operator, halved).axes["tiles"] == (0,)
    assert set(UNIT_ISA) <= set(WITH.isa)


def test_flags_and_code_follow_the_axis() -> None:
    operator = GemmInt8(64, 32)
    with_unit, without = chosen(operator), chosen(operator, tiles=0)
    assert "-mamx-int8" in flags(WITH, with_unit)
    assert not any("amx" in flag for flag in flags(WITH, without))
    assert not any("amx" in flag for flag in flags(WITHOUT, with_unit))
    assert "MATRIX_DOT_U8" in source(operator, with_unit)
    assert "MATRIX" not in source(operator, without)


@pytest.mark.parametrize("choices", [{"nr": 1}, {"vector": 8, "mr": 4}], ids=str)
def test_panels_that_the_unit_does_not_take_are_refused(choices: dict[str, int]) -> None:
    operator = GemmInt8(64, 32)
    with pytest.raises(ScheduleError, match="columns, wanted 32"):
        GEMM_INT8.program(operator, chosen(operator, **choices))
    assert "the matrix unit takes 32" in (
        space(operator, WITH).legal(chosen(operator, **choices)) or ""
    )


@pytest.mark.skipif(not runs_here(AMX), reason="needs a matrix unit that the system lets us use")
@pytest.mark.parametrize("operator", [GemmInt8(128, 65), GemmInt8(50, 33, True)], ids=str)
def test_it_is_proven_on_the_unit(operator: GemmInt8) -> None:
    proof = prove(operator, default_schedule(operator, AMX), AMX, {"m": 50}, seed_bytes=b"bytes")
    assert proof.accepted, proof.detail
    assert sum(proof.instructions[word] for word in proof.instructions if "tdpb" in word) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aarch64-neon", "riscv64-rvv"])
def test_the_plain_twin_is_proven_abroad(name: str) -> None:
    """The same text, on processors that have no such unit."""
    target, operator = find(name), GemmInt8(50, 33, True)
    schedule = chosen(operator, vector=4, nr=8, mr=1, prefetch=0)
    proof = prove(operator, schedule, target, {"m": 33}, seed_bytes=b"abroad")
    assert proof.accepted, proof.detail
