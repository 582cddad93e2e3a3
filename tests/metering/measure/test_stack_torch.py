"""PyTorch as a stock stack. It is an optional extra: where it is installed it answers like the
reference, where it is not the stack says what to install. Both are the product's behaviour."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from kernelgen import zoo
from metering import loadgen, stacks
from metering.datasets.text_lines import text_lines, write_text_lines
from metering.loadgen import RunSpec, SutSpec
from metering.loadgen.library import load_images
from metering.loadgen.verdict import accuracy_outputs
from metering.stacks import StackError, torch_cpu
from metering.stacks.system import OutputPort
from metering.stacks.torch_model import compare, lift_constants
from tests.conftest import MODEL_CACHE
from tests.metering.measure.test_stacks import embed

HERE = torch_cpu.discover().available
SUT = {"stack": "torch", "graph_optimization": "basic", "batch": 16}


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("basic", id="eager"),
        pytest.param("extended", id="compiled", marks=pytest.mark.slow),
    ],
)
def test_sentences_are_embedded_like_the_reference(
    make_spec: Callable[..., RunSpec], inputs: dict[str, Any], tmp_path: Path, level: str
) -> None:
    """Opened and compiled under the stack's own limit: those of the test are as for any other."""
    sut = {**SUT, "graph_optimization": level}
    spec = make_spec(sut, mode="accuracy")
    assert stacks.prepare_limit_s(spec.sut) > spec.wall_limit_s > spec.stall_limit_s
    if not HERE:
        with pytest.raises(StackError, match=r"pip install 'ignition\[torch\]'"):
            loadgen.run(spec, tmp_path / "run")
        return
    result = loadgen.run(spec, tmp_path / "run")
    assert result.state == "VALID", result.reasons
    logged = accuracy_outputs((tmp_path / "run/mlperf_log_accuracy.json").read_bytes())
    np.testing.assert_allclose(logged, embed(inputs["model"], inputs["library"]), atol=2e-5)
    timed = loadgen.run(make_spec(sut, sampled_outputs=20), tmp_path / "timed")
    assert timed.state == "VALID", timed.reasons


def test_no_text_is_one_token_wide() -> None:
    """A compiler takes the size one for a case of its own, and would compile it while timed."""
    feeds = torch_cpu.feeds_of([np.array([7]), np.array([9])])
    assert feeds["input_ids"].tolist() == [[7, 0], [9, 0]]
    assert feeds["attention_mask"].tolist() == [[1, 0], [1, 0]]
    assert torch_cpu.feeds_of([np.array([7, 8])])["input_ids"].tolist() == [[7, 8]]


def test_lines_are_read_like_on_onnx_runtime(tmp_path: Path) -> None:
    model = zoo.fetch("pp-ocrv4-recogniser", MODEL_CACHE)
    sut = SutSpec("torch", graph_optimization="basic", batch=3)
    if not HERE:
        with pytest.raises(StackError, match=r"pip install 'ignition\[torch\]'"):
            stacks.open_recogniser(sut, model, "")
        return
    write_text_lines(text_lines(11, 3), tmp_path / "lines.npz")
    lines = load_images(tmp_path / "lines.npz")
    reference = stacks.open_recogniser(SutSpec("onnxruntime"), model, "")
    assert stacks.open_recogniser(sut, model, "").infer(lines) == reference.infer(lines)


class Perturbed:
    """The encoder of the fixtures with one weight changed: a conversion that went wrong."""

    inputs = ("input_ids", "attention_mask")

    def __init__(self, model: Path, name: str, change: float) -> None:
        loaded = onnx.load(model)
        for item in loaded.graph.initializer:
            if item.name == name:
                values = numpy_helper.to_array(item).copy()
                values[1:] += np.float32(change)
                item.CopyFrom(numpy_helper.from_array(values, name))
        self.ports = (OutputPort(("461",), 2, float32=True),)
        self._session = onnxruntime.InferenceSession(loaded.SerializeToString())

    def run(self, feeds: Any, output: int) -> Any:
        return self._session.run(["461"], {name: feeds[name] for name in self.inputs})[0]


def probe(rows: int) -> dict[str, Any]:
    ids = np.arange(1, 1 + 4 * rows, dtype=np.int64).reshape(rows, 4)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def test_a_conversion_that_changed_the_model_is_refused(inputs: dict[str, Any]) -> None:
    model, probes = inputs["model"], [probe(1), probe(2)]
    compare(Perturbed(model, "w3", 0.0), model, probes, 0)
    compare(Perturbed(model, "w3", 1e-7), model, probes, 0)
    with pytest.raises(StackError, match="differs from ONNX Runtime by"):
        compare(Perturbed(model, "w3", 0.05), model, probes, 0)
    with pytest.raises(StackError, match="differs from ONNX Runtime by nan"):
        compare(Perturbed(model, "w3", float("nan")), model, probes, 0)


@pytest.mark.parametrize(
    "alter", [lambda rows: rows[:, :-1], lambda rows: rows.astype(np.float64), lambda rows: rows[0]]
)
def test_another_shape_or_type_is_another_model(
    inputs: dict[str, Any], alter: Callable[[Any], Any]
) -> None:
    class Altered(Perturbed):
        def run(self, feeds: Any, output: int) -> Any:
            return alter(super().run(feeds, output))

    with pytest.raises(StackError, match="not the same model"):
        compare(Altered(inputs["model"], "w3", 0.0), inputs["model"], [probe(2)], 0)


def test_lifted_constants_leave_the_same_graph(tmp_path: Path) -> None:
    """paddle2onnx writes weights as Constant nodes, where converters do not look for them."""
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight)),
        helper.make_node("Constant", [], ["axis"], value_ints=[1]),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Unsqueeze", ["m", "axis"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "constants",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feeds = {"x": np.array([[1, 2], [3, 4]], dtype=np.float32)}
    before = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    lift_constants(model)
    assert [node.op_type for node in model.graph.node] == ["Constant", "MatMul", "Unsqueeze"]
    assert [item.name for item in model.graph.initializer] == ["w"]
    after = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("absent", ["torch", "onnx2pytorch"])
def test_either_half_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    real = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name == absent:
            raise metadata.PackageNotFoundError(name)
        # Whatever else is asked for is there: some real distribution with compiled files.
        return real("numpy" if name in ("torch", "onnx2pytorch") else name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    info = torch_cpu.discover()
    assert not info.available
    assert "pip install 'ignition[torch]'" in info.reason
    assert ("onnx2pytorch" in info.reason) == (absent == "onnx2pytorch")
