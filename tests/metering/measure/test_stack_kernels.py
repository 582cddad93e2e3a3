"""A package of our own kernels, measured like any other stack and held to the stock one."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kernelgen.emit import MODEL
from kernelgen.graph import TextEncoder
from kernelgen.graph.builders import build_encoder
from kernelgen.machine import describe
from kernelgen.package import build
from kernelgen.schedule import space
from metering import loadgen
from metering.loadgen import RunSpec, SutSpec
from metering.loadgen.verdict import accuracy_outputs
from metering.uplift import accuracy_guard

MACHINE = describe(measure=False)

pytestmark = pytest.mark.skipif("avx2" not in MACHINE.isa, reason="kernels need AVX2")


def name_inputs(path: Path) -> None:
    """Give the two inputs the names exporters use; the builder's own are arbitrary on purpose."""
    model = onnx.load(path)
    names = zip(model.graph.input, ("input_ids", "attention_mask"), strict=True)
    renamed = {item.name: name for item, name in names}
    for item in model.graph.input:
        item.name = renamed[item.name]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
    onnx.save(model, path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A small encoder as ONNX, its kernel package, and sentences its vocabulary knows."""
    folder = tmp_path_factory.mktemp("kernels")
    model = build_encoder(folder / "tiny.onnx")
    name_inputs(model)
    encoder = TextEncoder(str(model))
    chosen = {name: space(op, MACHINE).default() for name, op in encoder.graph.operators.items()}
    # Small register tiles: fewer variants, so the model compiles in a moment.
    chosen = {k: s.with_choice("mr", 5) if "mr" in s.as_dict else s for k, s in chosen.items()}
    chosen[MODEL] = space(encoder, MACHINE).default()
    package = build(encoder.graph, chosen, folder / "package", MACHINE)
    rng = np.random.default_rng(0)
    vocabulary = encoder.graph.vocabulary
    lengths = rng.integers(3, 40, size=64)
    ids = [rng.integers(1, vocabulary, size=int(n)).astype(np.int64) for n in lengths]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    np.savez(folder / "samples.npz", ids=np.concatenate(ids), offsets=offsets)
    return {"model": model, "package": package, "samples": folder / "samples.npz"}


def spec_of(made: dict[str, Any], **fields: Any) -> RunSpec:
    values: dict[str, Any] = {
        "run_id": "run",
        "scenario": "Offline",
        "mode": "accuracy",
        "sut": SutSpec(
            "kernelgen",
            instances=2,
            arrangement="ragged",
            batch=16,
            graph_optimization="default",
            package=str(made["package"]),
        ),
        "model": str(made["model"]),
        "samples": str(made["samples"]),
        "min_duration_ms": 1,
        "target_qps": 1.0,
        "min_query_count": 2000,
        "cores": (0, 1),
        "warmup_ms": 20,
        **fields,
    }
    return RunSpec(**values)


def test_kernels_answer_as_the_stock_stack_does(made: dict[str, Any], tmp_path: Path) -> None:
    outputs = []
    stock = SutSpec("onnxruntime", arrangement="single", graph_optimization="none")
    for name, spec in (("ours", spec_of(made)), ("stock", spec_of(made, sut=stock))):
        result = loadgen.run(spec, tmp_path / name)
        assert result.state == "VALID", result.reasons
        outputs.append(
            accuracy_outputs((tmp_path / name / "mlperf_log_accuracy.json").read_bytes())
        )
    found = accuracy_guard(outputs[1], outputs[0], 0.9999)
    assert found.passed, found
    assert found.samples == 64


def test_the_result_names_the_package_by_its_manifest(made: dict[str, Any], tmp_path: Path) -> None:
    result = loadgen.run(spec_of(made, mode="performance"), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    recorded = loadgen.load_spec(tmp_path / "run")
    assert recorded.package_sha256 == result.stack_digest
    assert recorded.sut.package == "package"


def test_a_changed_library_is_not_run(made: dict[str, Any], tmp_path: Path) -> None:
    package = Path(shutil.copytree(made["package"], tmp_path / "package"))
    library = next((package / "lib").iterdir())
    library.write_bytes(library.read_bytes() + b"\0")
    sut = dataclasses.replace(spec_of(made).sut, package=str(package))
    result = loadgen.run(spec_of(made, sut=sut), tmp_path / "run")
    assert result.state == "ERROR"
    assert "PackageError" in result.reasons[0]


def test_two_threads_in_one_instance_are_refused(made: dict[str, Any], tmp_path: Path) -> None:
    sut = dataclasses.replace(spec_of(made).sut, threads=2, instances=1)
    result = loadgen.run(spec_of(made, sut=sut), tmp_path / "run")
    assert result.state == "ERROR"
    assert "use more instances" in result.reasons[0]
