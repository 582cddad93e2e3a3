"""The words that turn squares of lanes: interpreter and compiled C agree at every vector width."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from kernelgen.emit.c import Writer
from kernelgen.emit.turns import turns
from kernelgen.emit.vocabulary import vocabulary
from kernelgen.machine import describe, isa_flags
from kernelgen.schedule import ScheduleError
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile import Build, TileError, interpret, parse, text
from kernelgen.tile.build import span, word
from kernelgen.tile.ir import Dtype, Kernel

HERE = describe(measure=False)
WIDTHS = [4, *([8] if "avx2" in HERE.isa else []), *([16] if "avx512vl" in HERE.isa else [])]


def program(rows: int, lanes: int, dtype: Dtype) -> Kernel:
    b = Build("square", ())
    x = b.buffer("x", dtype, (rows, lanes), "input")
    turned = b.buffer("turned", dtype, (rows, rows), "output")
    summed = b.buffer("summed", dtype, (rows,), "output")
    with b.run():
        whole = b.let("whole_x", x[span(0, rows), span(0, lanes)])
        summed[span(0, rows)] = b.let("sums", word("row_sums", whole))
        square = b.let("square_x", x[span(0, rows), span(0, rows)])
        turned[span(0, rows), span(0, rows)] = b.let("turned_x", word("transpose", square))
    return b.kernel()


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("v", WIDTHS)
def test_interpreter_and_c_agree(v: int, dtype: Dtype, tmp_path: Path) -> None:
    kernel = program(v, 4 * v, dtype)
    assert parse(text(kernel)) == kernel
    numpy_dtype = np.float32 if dtype == "f32" else np.int32
    # Small whole numbers: sums are exact in any order.
    x = np.random.default_rng(v).integers(-99, 99, (v, 4 * v)).astype(numpy_dtype)
    result = interpret(kernel, {"x": x}, {})
    np.testing.assert_array_equal(result.outputs["turned"], x[:, :v].T)
    np.testing.assert_array_equal(result.outputs["summed"], x.sum(axis=1))
    writer = Writer(kernel, v)
    body = writer.text("p")
    source = vocabulary(writer.lanes) + turns(writer.turns) + body
    source += (
        "EXPORT int run(const void *const *in, void *const *out) "
        "{ (void)p_packed_floats, (void)p_scratch_floats, (void)p_pack; "
        "return p_run(in, out, 0, 0, 0); }\n"
    )
    flags = ("-O3", "-Wall", "-Wextra", "-Werror", *isa_flags(HERE.isa, v))
    built = compile_shared(source, flags, tmp_path / "square.so")
    assert built.path is not None, built.stderr
    outs = [np.zeros((v, v), numpy_dtype), np.zeros(v, numpy_dtype)]
    ins = (ctypes.c_void_p * 1)(x.ctypes.data)
    to = (ctypes.c_void_p * 2)(*(out.ctypes.data for out in outs))
    assert ctypes.CDLL(str(built.path)).run(ins, to) == 0
    np.testing.assert_array_equal(outs[0], x[:, :v].T)
    np.testing.assert_array_equal(outs[1], x.sum(axis=1))


def test_a_square_that_no_machine_holds_is_refused() -> None:
    with pytest.raises(ScheduleError, match="row_sums of 8 rows of 32"):
        Writer(program(8, 32, "f32"), 4).text("p")


def test_a_row_alone_cannot_be_turned() -> None:
    b = Build("row", ())
    x = b.buffer("x", "f32", (8,), "input")
    with b.run():
        b.let("t", word("transpose", x[span(0, 8)]))
    with pytest.raises(TileError, match="wanted rows of lanes"):
        b.kernel()
