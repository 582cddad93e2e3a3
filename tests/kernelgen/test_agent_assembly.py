"""A model put together from parts: the same numbers as from its one file, and nothing is compiled
twice.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kernelgen.agent.assembly import Assembly
from kernelgen.emit import MODEL, flags, model_source
from kernelgen.graph import TextEncoder
from kernelgen.graph.builders import build_encoder
from kernelgen.judge import Candidate, judge
from kernelgen.machine import describe
from kernelgen.package.build import model_flags
from kernelgen.package.native import Block, Native
from kernelgen.schedule import Schedule, space
from kernelgen.targets.cpu import compile_shared

MACHINE = describe(measure=False)
DIMS = {"n": 3, "tokens": 61}

pytestmark = pytest.mark.skipif("avx2" not in MACHINE.isa, reason="needs AVX2")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    return TextEncoder(
        str(build_encoder(path, layers=1, heads=2, head_size=16, ffn=64, vocabulary=50))
    )


@pytest.fixture(scope="module")
def schedules(encoder: TextEncoder) -> dict[str, Schedule]:
    """Few rows to a tile and no matrix unit: few variants, compiled in a moment."""
    found = {name: space(op, MACHINE).default() for name, op in encoder.graph.operators.items()}
    for name, one in found.items():
        for axis, value in (("mr", 2), ("tiles", 0)):
            found[name] = found[name].with_choice(axis, value) if axis in one.as_dict else one
    return {**found, MODEL: space(encoder, MACHINE).default().with_choice("rows", 48)}


@pytest.fixture(scope="module")
def assembly(encoder: TextEncoder, tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return Assembly(encoder.graph, MACHINE, tmp_path_factory.mktemp("parts"))


def answer(library: Path, encoder: TextEncoder) -> npt.NDArray[np.float32]:
    arrays = encoder.sample(np.random.default_rng(3), DIMS, "nominal")
    native = Native(library)
    dims = np.array([DIMS[name] for name in encoder.dims], np.int64)
    weights = [weight for step in encoder.graph.steps for weight in step.weights]
    packed = native.prepare(weights, list(dims))
    scratch = Block(native.scratch_bytes(list(dims)))
    out = np.full((DIMS["n"], encoder.graph.hidden), np.nan, np.float32)
    ids, offsets = arrays["ids"], arrays["offsets"]
    given = (ctypes.c_void_p * 2)(ids.ctypes.data, offsets.ctypes.data)
    taken = (ctypes.c_void_p * 1)(out.ctypes.data)
    addresses = (ctypes.addressof(given), ctypes.addressof(taken), dims.ctypes.data)
    assert native.kernel(*addresses, packed.address, scratch.address) == 0
    return out


def test_parts_give_the_numbers_of_the_whole(
    encoder: TextEncoder, schedules: dict[str, Schedule], assembly: Assembly, tmp_path: Path
) -> None:
    options = model_flags(MACHINE, [schedules[name] for name in encoder.graph.operators])
    text = model_source(encoder.graph, schedules)
    whole = compile_shared(text, options, tmp_path / "whole.so")
    assert whole.path is not None, whole.stderr
    parts = assembly.build(schedules)
    assert parts.path is not None, parts.stderr
    got = answer(parts.path, encoder)
    np.testing.assert_array_equal(got, answer(whole.path, encoder))
    arrays = encoder.sample(np.random.default_rng(3), DIMS, "nominal")
    error = np.abs(got - encoder.oracle(arrays, DIMS)["embeddings"])
    assert (error <= encoder.error_bound(arrays, DIMS)["embeddings"]).all()


def test_only_what_changed_is_compiled(
    encoder: TextEncoder, schedules: dict[str, Schedule], assembly: Assembly
) -> None:
    first = assembly.build(schedules)
    assert assembly.compiled == len(encoder.graph.operators)
    other = {**schedules, MODEL: schedules[MODEL].with_choice("rows", 96)}
    taller = assembly.build(other)
    assert assembly.compiled == len(encoder.graph.operators)
    name = next(name for name, one in schedules.items() if "mr" in one.as_dict)
    changed = assembly.build({**schedules, name: schedules[name].with_choice("mr", 3)})
    assert assembly.compiled == len(encoder.graph.operators) + 1
    again = assembly.build(schedules)
    assert assembly.compiled == len(encoder.graph.operators) + 1
    assert (again.path, again.seconds) == (first.path, 0.0)
    assert len({first.path, taller.path, changed.path}) == 3
    assert None not in (first.path, taller.path, changed.path)


def test_a_kernel_of_its_own_is_made_from_the_same_part(
    encoder: TextEncoder, schedules: dict[str, Schedule], assembly: Assembly, tmp_path: Path
) -> None:
    assert assembly.build(schedules).path is not None
    before = assembly.compiled
    name, operator = next((n, op) for n, op in encoder.graph.operators.items() if "gemm" in n)
    made = assembly.kernel(
        operator, schedules[name], flags(MACHINE, schedules[name]), tmp_path / "kernel.so"
    )
    assert made.path is not None, made.stderr
    assert assembly.compiled == before
    verdict = judge(
        Candidate(name, made.path),
        operator,
        {"m": 21},
        incumbent=None,
        seed_bytes=b"parts",
        machine=replace(MACHINE, peak_gflops_per_core=None, peak_gbps_per_core=None),
        core=min(os.sched_getaffinity(0)),
    )
    assert verdict.accepted, verdict


def test_a_part_that_does_not_compile_says_why(
    encoder: TextEncoder,
    schedules: dict[str, Schedule],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelgen.agent.assembly._OFFERED", "#error no such unit\n")
    outcome = Assembly(encoder.graph, MACHINE, tmp_path).build(schedules)
    assert outcome.path is None
    assert "no such unit" in outcome.stderr
