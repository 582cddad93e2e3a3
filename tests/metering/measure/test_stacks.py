"""Every stack gives the same embeddings, and a missing one says what to install."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metering import loadgen, stacks
from metering.loadgen import RunSpec, SutSpec
from metering.loadgen.calibrate import check_floor, probe_rate, sized
from metering.loadgen.verdict import accuracy_outputs, logged_outputs
from metering.stacks import StackError
from metering.stacks.system import OutputPort, choose_output

MakeSpec = Callable[..., RunSpec]


def embed(model: Path, library: list[np.ndarray]) -> np.ndarray:
    """The encoder of the fixtures in float64 NumPy, read from its own weights."""
    import onnx
    from onnx import numpy_helper

    weights = {
        item.name: numpy_helper.to_array(item).astype(np.float64)
        for item in onnx.load(model).graph.initializer
    }
    rows = []
    for ids in library:
        hidden = weights["table"][ids]
        for layer in range(sum(name.startswith("w") for name in weights)):
            hidden = np.tanh(hidden @ weights[f"w{layer}"])
        rows.append(hidden.mean(axis=0))
    return np.array(rows)


@pytest.mark.parametrize(
    ("stack", "threads", "instances", "arrangement", "batch"),
    [
        ("onnxruntime", 1, 1, "single", 1),
        ("onnxruntime", 1, 2, "grouped", 16),
        ("onnxruntime", 2, 1, "padded", 7),
        ("openvino", 1, 2, "grouped", 16),
        ("openvino", 2, 1, "padded", 7),
    ],
)
def test_the_accuracy_log_carries_the_models_outputs(
    make_spec: MakeSpec,
    inputs: dict[str, Any],
    tmp_path: Path,
    stack: str,
    threads: int,
    instances: int,
    arrangement: str,
    batch: int,
) -> None:
    """Also shows that response buffers outlive the call: freed ones gave 255 wrong of 256."""
    sut = {
        "stack": stack,
        "threads": threads,
        "instances": instances,
        "arrangement": arrangement,
        "batch": batch,
    }
    result = loadgen.run(make_spec(sut, mode="accuracy", cores=(0, 1)), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    assert result.samples_per_second is None
    logged = accuracy_outputs((tmp_path / "run/mlperf_log_accuracy.json").read_bytes())
    expected = embed(inputs["model"], inputs["library"])
    assert logged.dtype == np.float32
    np.testing.assert_allclose(logged, expected, atol=2e-5)


def test_a_timed_run_keeps_some_of_its_outputs(
    make_spec: MakeSpec, inputs: dict[str, Any], tmp_path: Path
) -> None:
    result = loadgen.run(make_spec(sampled_outputs=40, min_query_count=400), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    positions, rows = logged_outputs((tmp_path / "run/mlperf_log_accuracy.json").read_bytes())
    assert 10 <= len(positions) <= 100
    expected = embed(inputs["model"], inputs["library"])[positions]
    np.testing.assert_allclose(rows, expected, atol=2e-5)


def test_single_stream_reports_the_early_stopped_percentile(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec({"arrangement": "single", "batch": 1}, scenario="SingleStream")
    # Sized without the floor check: this small model is near it on a busy machine.
    rate = float(probe_rate(spec, tmp_path / "probe"))
    result = loadgen.run(sized(spec, rate, 0.2), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    assert result.latency is not None
    assert result.latency.early_stopping_p90_ns is not None
    assert result.latency.early_stopping_p90_ns >= result.latency.p90_ns
    assert result.log_metric() < 0


def test_discovery_names_version_and_build_without_importing() -> None:
    infos = {info.name: info for info in stacks.discover_stock()}
    assert list(infos) == ["onnxruntime", "openvino", "torch", "llama.cpp"]
    for name in ("onnxruntime", "openvino"):
        assert infos[name].available
        assert infos[name].version == metadata.version(name)
        assert len(infos[name].digest) == 64
    for name, extra in (("torch", "torch"), ("llama.cpp", "llama")):
        info = infos[name]
        # Optional extras: here with a build of their own, or absent with what to install.
        assert len(info.digest) == 64 if info.available else f"'ignition[{extra}]'" in info.reason


def test_a_stack_that_is_not_there_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    infos = stacks.discover_stock()
    assert [info.available for info in infos] == [False] * 4
    assert "pip install 'ignition[openvino]'" in infos[1].reason
    with pytest.raises(StackError, match="not installed"):
        stacks.discover(SutSpec("onnxruntime"))


@pytest.mark.parametrize(
    ("sut", "reason"),
    [
        (SutSpec("abacus"), "wanted one of"),
        (SutSpec("torch"), "torch"),
        (SutSpec("kernelgen"), "package is not set"),
        (SutSpec("kernelgen", package="/nonexistent"), "no manifest"),
    ],
)
def test_an_unusable_stack_is_refused_with_a_reason(sut: SutSpec, reason: str) -> None:
    with pytest.raises(StackError, match=reason):
        stacks.discover(sut)


def test_an_output_the_model_lacks_is_an_error_with_the_names_it_has(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    result = loadgen.run(make_spec(output="logits"), tmp_path / "run")
    assert result.state == "ERROR"
    assert "the model has ['461']" in result.reasons[0]


def test_the_embeddings_are_the_only_float_output_of_rank_two() -> None:
    """The four outputs of the encoder of the demonstration: two echo the inputs."""
    ports = [
        OutputPort(("output",), 2, float32=False),
        OutputPort(("463",), 2, float32=False),
        OutputPort(("onnx::Shape_422",), 3, float32=True),
        OutputPort(("461", "/model/Div_output_0"), 2, float32=True),
    ]
    assert choose_output(ports, "") == 3
    assert choose_output(ports, "onnx::Shape_422") == 2
    for wanted, given in (("", ports[:3]), ("", [*ports, ports[3]]), ("462", ports)):
        with pytest.raises(StackError, match="the model has"):
            choose_output(given, wanted)


def test_padding_masks_exactly_the_tokens_that_are_there() -> None:
    ids, mask = stacks.pad([np.array([5, 6, 7]), np.array([9])])
    assert ids.tolist() == [[5, 6, 7], [9, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert ids.dtype == mask.dtype == np.int64


def test_a_system_near_the_floor_of_the_python_path_is_refused(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """A hundred samples a second are measurable anywhere; a billion nowhere."""
    check_floor(make_spec(), Decimal(100), tmp_path / "floor")
    with pytest.raises(loadgen.FloorError, match="computes nothing"):
        check_floor(make_spec(), Decimal(10**9), tmp_path / "floor")
    assert not (tmp_path / "floor").exists()


def test_a_calibrated_run_lasts_about_as_long_as_asked(make_spec: MakeSpec, tmp_path: Path) -> None:
    # The slowest way to run the small model, far from the floor also on a busy machine.
    spec = make_spec({"arrangement": "single", "batch": 1, "graph_optimization": "none"})
    found = loadgen.calibrate(spec, tmp_path / "probe", run_seconds=0.4)
    assert found.samples_per_second > 0
    result = loadgen.run(found.spec, tmp_path / "run")
    assert result.state == "VALID", result.reasons
    assert result.latency is not None
    assert result.latency.max_ns >= 0.1e9
