"""Random tile programs: the interpreter and the compiled C agree bit for bit, or the program is
refused with a reason.

Values are small integers, so float32 is exact whatever the order or the fusing. A program that the
interpreter lets through is compiled, several to a file, and run in a child process behind guard
pages on both sides of every buffer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from tile_programs import COLUMNS, kernels

from kernelgen.emit.c import Writer
from kernelgen.emit.matrix import flags_of, matrix_words
from kernelgen.emit.vocabulary import vocabulary
from kernelgen.machine import describe, isa_flags
from kernelgen.schedule import ScheduleError
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile import Fault, Kernel, TileError, interpret, parse, text
from kernelgen.tile.interpret import NUMPY

HERE = describe(measure=False)
WIDTHS = [4, *([8] if "avx2" in HERE.isa else []), *([16] if "avx512vl" in HERE.isa else [])]
QUICK = os.environ.get("IGNITION_QUICK") == "1"
TOGETHER = 4
SEEN: Counter[str] = Counter()

_ENTRY = """
EXPORT int64_t scratch_%(n)d(const int64_t *dim) { return p%(n)d_scratch_floats(dim); }
EXPORT int run_%(n)d(const void *const *in, void *const *out, const int64_t *dim,
                     const void *const *weight, float *packed, float *scratch) {
  p%(n)d_pack(weight, packed);
  return p%(n)d_run(in, out, dim, packed, scratch);
}
"""


def arrays(seed: int, m: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "xf": rng.integers(-3, 4, (m, COLUMNS)).astype(np.float32),
        "xi": rng.integers(-3, 4, (m, COLUMNS)).astype(np.int32),
        "xb": rng.integers(-4, 4, (m, COLUMNS)).astype(np.int8),
        "xu": rng.integers(0, 4, (m, COLUMNS)).astype(np.uint8),
        "xp": rng.integers(0, 7, 1).astype(np.int64),
        "wf": rng.integers(-3, 4, COLUMNS).astype(np.float32),
    }


class Guarded:
    """Memory that ends at a page nobody may touch, and begins behind one."""

    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, size: int) -> None:
        pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.map = mmap.mmap(-1, pages + 2 * mmap.PAGESIZE)
        whole = np.frombuffer(self.map, np.uint8)
        base = whole.ctypes.data
        for guard in (base, base + mmap.PAGESIZE + pages):
            assert self.libc.mprotect(ctypes.c_void_p(guard), mmap.PAGESIZE, 0) == 0
        end = mmap.PAGESIZE + pages
        self.bytes = whole[end - size : end]

    def open(self) -> None:
        whole = np.frombuffer(self.map, np.uint8)
        self.libc.mprotect(ctypes.c_void_p(whole.ctypes.data), len(self.map), 3)


def run_in_child(
    library: Path, number: int, kernel: Kernel, given: dict[str, np.ndarray], m: int
) -> tuple[int, dict[str, np.ndarray]]:
    """The code and the outputs; the child alone touches the candidate."""
    outputs = {b.name: np.empty((m, COLUMNS), NUMPY[b.dtype]) for b in kernel.by_role("output")}
    shared = mmap.mmap(-1, mmap.PAGESIZE * 16)
    child = os.fork()
    if child == 0:
        try:
            native = ctypes.CDLL(str(library))
            dims = (ctypes.c_int64 * 1)(m)
            scratch_floats = getattr(native, f"scratch_{number}")
            scratch_floats.restype = ctypes.c_int64
            sizes = [given[b.name].nbytes for b in kernel.by_role("input")]
            ins = [Guarded(size) for size in sizes]
            for piece, buffer in zip(ins, kernel.by_role("input"), strict=True):
                piece.bytes[:] = given[buffer.name].reshape(-1).view(np.uint8)
            outs = [Guarded(array.nbytes) for array in outputs.values()]
            weight = Guarded(given["wf"].nbytes)
            weight.bytes[:] = given["wf"].view(np.uint8)
            packed, scratch = Guarded(128), Guarded(4 * scratch_floats(dims))
            code = getattr(native, f"run_{number}")(
                (ctypes.c_void_p * 9)(*(piece.bytes.ctypes.data for piece in ins)),
                (ctypes.c_void_p * 2)(*(piece.bytes.ctypes.data for piece in outs)),
                dims,
                (ctypes.c_void_p * 1)(weight.bytes.ctypes.data),
                ctypes.c_void_p(packed.bytes.ctypes.data),
                ctypes.c_void_p(scratch.bytes.ctypes.data),
            )
            shared.write(b"".join(piece.bytes.tobytes() for piece in outs))
            os._exit(code)
        except BaseException:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"signal {os.WTERMSIG(status)}\n{text(kernel)}"
    at = 0
    for name, array in outputs.items():
        raw = shared[at : at + array.nbytes]
        outputs[name] = np.frombuffer(raw, array.dtype).reshape(array.shape)
        at += array.nbytes
    return os.WEXITSTATUS(status), outputs


@pytest.mark.slow
@settings(
    max_examples=60 if QUICK else 2500,
    deadline=None,
    derandomize=QUICK,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
    width=st.sampled_from(WIDTHS),
    unit=st.sampled_from([(), flags_of(HERE.isa)]),
)
def test_interpreter_and_compiled_code_agree(
    data: st.DataObject, seed: int, width: int, unit: tuple[str, ...]
) -> None:
    passed: list[tuple[Kernel, dict[str, np.ndarray], int, int, dict[str, np.ndarray]]] = []
    writers: list[str] = []
    lanes: set[int] = set()
    matrix: set[str] = set()
    for number in range(TOGETHER):
        kernel = data.draw(kernels(f"fuzz{number}"))
        m = data.draw(st.integers(1, 9))
        given = arrays(seed + number, m)
        assert parse(text(kernel)) == kernel
        try:
            result = interpret(kernel, given, {"m": m}, most_steps=20_000, exact=True)
            writer = Writer(kernel, width)
            source = writer.text(f"p{len(passed)}")
        except (TileError, Fault, ScheduleError) as reason:
            SEEN[getattr(reason, "kind", type(reason).__name__)] += 1
            continue
        lanes |= writer.lanes
        matrix |= writer.matrix
        SEEN["in the matrix unit"] += bool(writer.matrix)
        writers.append(source + _ENTRY % {"n": len(passed)})
        passed.append((kernel, given, m, result.code, result.outputs))
        SEEN["compared"] += 1
    if not passed:
        return
    with TemporaryDirectory() as folder:
        outcome = compile_shared(
            vocabulary(lanes) + matrix_words(matrix) + "".join(writers),
            ("-O2", "-fno-math-errno", *isa_flags(HERE.isa, width), *unit),
            Path(folder) / "fuzz.so",
        )
        assert outcome.path is not None, outcome.stderr
        for number, (kernel, given, m, code, want) in enumerate(passed):
            got_code, got = run_in_child(outcome.path, number, kernel, given, m)
            assert got_code == code, text(kernel)
            for name in want if code == 0 else ():
                np.testing.assert_array_equal(got[name], want[name], err_msg=text(kernel))


@pytest.mark.slow
def test_most_programs_were_compared_not_refused() -> None:
    """Runs after the fuzzing above; a generator that makes only refused programs shows nothing."""
    print(dict(SEEN))
    total = sum(SEEN.values()) - SEEN["in the matrix unit"]
    assert SEEN["compared"] > 0.2 * total > 0
    assert SEEN["in the matrix unit"] > 0.1 * SEEN["compared"]
