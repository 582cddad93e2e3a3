"""A small real text encoder and its samples, so that measuring tests run real stacks in seconds."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from metering.loadgen import RunSpec, SutSpec

VOCABULARY, WIDTH, LAYERS, SENTENCES = 512, 48, 6, 96
ONE_CORE = (min(os.sched_getaffinity(0)),)


def write_encoder(path: Path) -> None:
    """Embedding, dense layers with tanh, masked mean: inputs and output named as the real one."""
    rng = np.random.default_rng(0)
    weights = {"table": rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["h0"])]
    for layer in range(LAYERS):
        dense = (rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
        weights[f"w{layer}"] = dense
        nodes += [
            helper.make_node("MatMul", [f"h{layer}", f"w{layer}"], [f"m{layer}"]),
            helper.make_node("Tanh", [f"m{layer}"], [f"h{layer + 1}"]),
        ]
    weights["last"] = np.array([-1], dtype=np.int64)
    weights["tokens"] = np.array([1], dtype=np.int64)
    nodes += [
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["mask3"]),
        helper.make_node("Mul", [f"h{LAYERS}", "mask3"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "tokens"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["mask", "tokens"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["461"]),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("461", TensorProto.FLOAT, ["batch", WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_samples(path: Path) -> list[np.ndarray]:
    """Sentences of unequal length in the library's file format."""
    rng = np.random.default_rng(1)
    ids = [
        rng.integers(1, VOCABULARY, size=int(length)).astype(np.int64)
        for length in rng.integers(3, 40, size=SENTENCES)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(item) for item in ids])]).astype(np.int64)
    np.savez(path, ids=np.concatenate(ids), offsets=offsets)
    return ids


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("inputs")
    write_encoder(folder / "encoder.onnx")
    library = write_samples(folder / "samples.npz")
    return {
        "model": folder / "encoder.onnx",
        "samples": folder / "samples.npz",
        "library": library,
    }


@pytest.fixture
def make_spec(inputs: dict[str, Any]) -> Callable[..., RunSpec]:
    """A short valid spec on one core; keyword arguments replace fields, ``sut`` the system's."""

    def make(sut: dict[str, Any] | None = None, **fields: Any) -> RunSpec:
        chosen: dict[str, Any] = {"stack": "onnxruntime", "batch": 16, **(sut or {})}
        values: dict[str, Any] = {
            "run_id": "run",
            "scenario": "Offline",
            "mode": "performance",
            "model": str(inputs["model"]),
            "samples": str(inputs["samples"]),
            "min_duration_ms": 1,
            "target_qps": 1.0,
            "min_query_count": 200,
            "cores": ONE_CORE,
            "warmup_ms": 20,
            "wall_limit_s": 30.0,
            "stall_limit_s": 15.0,
            **fields,
        }
        return RunSpec(sut=SutSpec(**chosen), **values)

    return make


RECORDED = Path(__file__).with_name("recorded_evidence.tar.xz")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evidence folder really measured once (see evidence_chain.py); never write into it."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder / "evidence"


@pytest.fixture
def evidence(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the recorded evidence that a test may spoil."""
    return Path(shutil.copytree(recorded, tmp_path / "evidence"))
