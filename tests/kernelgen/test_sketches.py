"""Every sketch against its operator: the interpreter first, then the compiled C, both against the
float64 oracle, at every width, with the default schedule and drawn ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelgen.emit import flags, source
from kernelgen.machine import Machine, describe
from kernelgen.ops import FAMILIES, REGIMES, Example
from kernelgen.package.native import Block, Native
from kernelgen.schedule import Schedule, space
from kernelgen.sketches import fitted, sketches
from kernelgen.targets.cpu import compile_shared
from kernelgen.tile import interpret, parse, text
from tests.quick import some

HERE = describe(measure=False)
MACHINES: dict[int, Machine] = {4: replace(HERE, isa=())}
if "avx2" in HERE.isa:
    MACHINES[8] = replace(HERE, isa=("avx2", "bmi2", "f16c", "fma"))
if "avx512vl" in HERE.isa:
    MACHINES[16] = HERE

EXAMPLES = [
    pytest.param(example, id=f"{example.operator.name}-{'-'.join(map(str, example.dims.values()))}")
    for family in sorted(sketches())
    for example in FAMILIES[family].examples()
]
NARROW_AND_DRAWN = [(number, width) for number in range(len(EXAMPLES)) for width in MACHINES]


def schedules(example: Example, machine: Machine, count: int) -> Iterator[Schedule]:
    found = space(example.operator, machine)
    yield found.default()
    rng = np.random.default_rng(7)
    for _ in range(count):
        yield found.sample(rng)


def right(example: Example, arrays: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    want = example.operator.oracle(arrays, example.dims)
    bound = example.operator.error_bound(arrays, example.dims)
    for tensor in example.operator.by_role("output"):
        found = got[tensor.name].reshape(want[tensor.name].shape)
        error = np.abs(found.astype(np.float64) - want[tensor.name])
        same = (found == want[tensor.name]) | (error <= bound[tensor.name])
        assert np.all(same), f"{tensor.name}: worst {np.nanmax(error)}"


def outputs_of(
    library: Path, example: Example, arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    operator, native = example.operator, Native(library)
    sizes = np.array([example.dims[name] for name in operator.dims], np.int64)
    packed = native.prepare([arrays[t.name] for t in operator.by_role("weight")], sizes)
    scratch = Block(native.scratch_bytes(sizes))
    ins = [np.ascontiguousarray(arrays[t.name]) for t in operator.by_role("input")]
    outs = {
        t.name: np.full(t.sizes(example.dims), 77, np.dtype(t.dtype))
        for t in operator.by_role("output")
    }
    pointers = [
        (ctypes.c_void_p * max(1, len(several)))(*(array.ctypes.data for array in several))
        for several in (ins, list(outs.values()))
    ]
    code = native.kernel(
        *map(ctypes.addressof, pointers), sizes.ctypes.data, packed.address, scratch.address
    )
    assert code == 0
    return outs


def test_every_family_has_examples() -> None:
    assert [family for family in FAMILIES if not FAMILIES[family].examples()] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_program_prints_and_reads_back(example: Example) -> None:
    for schedule in schedules(example, MACHINES[max(MACHINES)], 2):
        kernel = fitted(sketches()[example.operator.family], example.operator, schedule)
        assert parse(text(kernel)) == kernel


@pytest.mark.parametrize("example", EXAMPLES)
def test_interpreter_agrees_with_the_oracle(example: Example) -> None:
    rng = np.random.default_rng(11)
    for regime, schedule in zip(
        ("nominal", "integer_exact"), schedules(example, MACHINES[max(MACHINES)], 1), strict=True
    ):
        kernel = fitted(sketches()[example.operator.family], example.operator, schedule)
        arrays = example.operator.sample(rng, example.dims, regime)
        result = interpret(kernel, arrays, example.dims)
        assert result.code == 0
        right(example, arrays, result.outputs)


def compiled_is_right(example: Example, machine: Machine, schedule: Schedule, out: Path) -> None:
    operator = example.operator
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    options = (*flags(machine, schedule), *warnings)
    outcome = compile_shared(source(operator, schedule), options, out)
    assert outcome.path is not None, outcome.stderr
    rng = np.random.default_rng(5)
    for regime in REGIMES:
        arrays = operator.sample(rng, example.dims, regime)
        right(example, arrays, outputs_of(outcome.path, example, arrays))


@pytest.mark.parametrize("example", EXAMPLES)
def test_default_kernel_agrees_with_the_oracle(example: Example, tmp_path: Path) -> None:
    machine = MACHINES[max(MACHINES)]
    (schedule,) = schedules(example, machine, 0)
    compiled_is_right(example, machine, schedule, tmp_path / "default.so")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "width"), some(NARROW_AND_DRAWN, 10))
def test_any_kernel_agrees_with_the_oracle(number: int, width: int, tmp_path: Path) -> None:
    """Every example at every width, with the default schedule and two drawn ones."""
    (example,) = EXAMPLES[number].values
    for place, schedule in enumerate(schedules(example, MACHINES[width], 2)):
        compiled_is_right(example, MACHINES[width], schedule, tmp_path / f"{place}.so")
