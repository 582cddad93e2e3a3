"""A KServe v2 endpoint as a stack: a real server over ONNX Runtime, and answers that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metering import loadgen, stacks
from metering.loadgen import RunRefused, RunSpec, SutSpec
from metering.loadgen.verdict import accuracy_outputs
from metering.stacks import StackError
from metering.stacks.endpoint.failure import EndpointError
from metering.stacks.endpoint.registration import load_registration
from tests.metering.measure.endpoint_servers import KserveServer, RawServer, register, serving
from tests.metering.measure.test_stacks import embed

MakeSpec = Callable[..., RunSpec]
SHORT = {"connect_s": 2, "read_s": 1, "request_s": 2}


@pytest.fixture
def serve(inputs: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., tuple[Any, SutSpec]]]:
    """Start a server whose answers ``change`` alters; returns it and a spec of the stack."""
    running = []

    def start(change: Callable[[dict[str, Any]], Any] | None = None, **fields: Any) -> Any:
        server = KserveServer(inputs["model"], "encoder", change)
        context = serving(server)
        running.append(context)
        address = context.__enter__()
        folder = register(tmp_path / "endpoint", address, "kserve-v2", "encoder", **fields)
        return server, SutSpec("kserve", graph_optimization="default", batch=16, package=folder)

    yield start
    for context in running:
        context.__exit__(None, None, None)


def test_a_remote_model_is_measured_like_a_local_one(
    serve: Callable[..., Any], make_spec: MakeSpec, inputs: dict[str, Any], tmp_path: Path
) -> None:
    server, sut = serve()
    fields = {"stack": "kserve", "graph_optimization": "default", "package": sut.package}
    result = loadgen.run(make_spec(fields, mode="accuracy"), tmp_path / "run")
    assert result.state == "VALID", result.reasons
    logged = accuracy_outputs((tmp_path / "run/mlperf_log_accuracy.json").read_bytes())
    np.testing.assert_allclose(logged, embed(inputs["model"], inputs["library"]), atol=2e-5)
    assert result.stack_version == "test-server 1.2 (its own claim)"
    assert len(result.stack_digest) == 64
    before = server.answered
    timed = loadgen.run(make_spec(fields, warmup_ms=0, sampled_outputs=20), tmp_path / "timed")
    assert timed.state == "VALID", timed.reasons
    assert timed.samples_per_second is not None
    # Every batch of 16 was a request of its own: nothing was answered from memory here.
    assert server.answered - before == -(-timed.sample_count // 16)
    # The address stays out of the record: the digest of the registration stands for it.
    assert "127.0.0.1" not in (tmp_path / "run/spec.json").read_text()


def with_output(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    def change(answer: dict[str, Any]) -> Any:
        answer["outputs"][0].update(changes)
        return answer

    return change


def with_data(alter: Callable[[list[Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def change(answer: dict[str, Any]) -> Any:
        answer["outputs"][0]["data"] = alter(answer["outputs"][0]["data"])
        return answer

    return change


def by_row(answer: dict[str, Any]) -> Any:
    output = answer["outputs"][0]
    output["data"] = np.array(output["data"]).reshape(output["shape"]).tolist()
    return answer


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "fewer samples": (with_output(shape=[1, 48]), r"shape \[1, 48\], wanted \[2, d\]"),
    "another rank": (with_output(shape=[2, 48, 1]), "wanted"),
    "no shape": (with_output(shape="2x48"), "wanted"),
    "a negative shape": (with_output(shape=[2, -48]), "wanted"),
    "half precision": (with_output(datatype="FP16"), "FP16, wanted FP32"),
    "too few numbers": (with_data(lambda data: data[:-1]), "wanted 96 numbers"),
    "too many numbers": (with_data(lambda data: [*data, 0.0]), "wanted 96 numbers"),
    "ragged rows": (with_data(lambda data: [data[:48], data[48:-1]]), "rows of 48"),
    "no numbers": (with_data(lambda data: [*data[:-1], None]), "finite numbers"),
    "texts": (with_data(lambda data: [str(value) for value in data]), "finite numbers"),
    "truth values": (with_data(lambda data: [True] * len(data)), "finite numbers"),
    "not a number": (with_data(lambda data: [*data[:-1], float("nan")]), "finite numbers"),
    "infinite": (with_data(lambda data: [*data[:-1], float("inf")]), "finite numbers"),
    "another request's answer": (lambda answer: {**answer, "id": "elsewhere"}, "elsewhere"),
    "another model's answer": (lambda answer: {**answer, "model_name": "tiny"}, "tiny"),
    "no outputs": (lambda answer: {**answer, "outputs": []}, "0 outputs"),
    "the output twice": (
        lambda answer: {**answer, "outputs": answer["outputs"] * 2},
        "2 outputs",
    ),
    "no list": (lambda answer: {**answer, "outputs": {}}, "wanted a list"),
    "no object": (lambda answer: [answer], "wanted an object"),
}


@pytest.mark.parametrize(("change", "reason"), WRONG.values(), ids=WRONG)
def test_an_answer_to_something_else_is_refused(
    serve: Callable[..., Any],
    inputs: dict[str, Any],
    change: Callable[[dict[str, Any]], Any],
    reason: str,
) -> None:
    _, sut = serve(change)
    system = stacks.open_system(sut, inputs["model"], "")
    with pytest.raises(EndpointError, match=reason) as caught:
        system.infer(inputs["library"][:2])
    system.close()
    assert caught.value.kind in ("answer", "form")


def test_rows_may_be_nested_and_widths_may_not_change(
    serve: Callable[..., Any], inputs: dict[str, Any]
) -> None:
    turn = iter((by_row, with_output(shape=[2, 24]), with_output(shape=[4, 24])))
    _, sut = serve(lambda answer: next(turn)(answer))
    system = stacks.open_system(sut, inputs["model"], "")
    rows = system.infer(inputs["library"][:2])
    np.testing.assert_allclose(rows, embed(inputs["model"], inputs["library"][:2]), atol=2e-5)
    with pytest.raises(EndpointError, match="24 values a sample, the answers before had 48"):
        system.infer(inputs["library"][:2])
    system.close()


@pytest.mark.parametrize(
    ("then", "kind"), [(b"", "dropped"), (None, "timeout"), (b"nonsense\r\n\r\n", "form")]
)
def test_a_server_that_fails_in_the_middle_ends_the_run_by_name(
    serve: Callable[..., Any],
    make_spec: MakeSpec,
    tmp_path: Path,
    then: bytes | None,
    kind: str,
) -> None:
    """Three good answers, then none: the run is an ERROR that says so, not a slow result."""
    server, sut = serve(limits=SHORT)

    handler = server.RequestHandlerClass

    class Failing(handler):
        def reply(self, value: Any, status: int = 200) -> None:
            if "outputs" not in value or "id" not in value or self.server.answered <= 3:
                super().reply(value, status)
                return
            if then is None:
                self.rfile.read(1)
            else:
                self.wfile.write(then)
            self.close_connection = True

    server.RequestHandlerClass = Failing
    fields = {"stack": "kserve", "graph_optimization": "default", "package": sut.package}
    result = loadgen.run(make_spec(fields, warmup_ms=0), tmp_path / "run")
    assert result.state == "ERROR", result.reasons
    assert f"EndpointError: {kind}:" in result.reasons[0]
    assert result.samples_per_second is None


def test_an_endpoint_that_is_not_there_refuses_the_run(make_spec: MakeSpec, tmp_path: Path) -> None:
    register(tmp_path / "endpoint", "http://127.0.0.1:9", "kserve-v2", "encoder", limits=SHORT)
    fields = {"stack": "kserve", "package": str(tmp_path / "endpoint")}
    with pytest.raises(StackError, match="kserve: connect:"):
        loadgen.run(make_spec(fields), tmp_path / "run")
    with pytest.raises(RunRefused, match="no manifest"):
        loadgen.run(make_spec({"stack": "kserve", "package": str(tmp_path)}), tmp_path / "run")
    with pytest.raises(StackError, match="wanted a folder with"):
        loadgen.run(make_spec({"stack": "kserve"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b'{"inputs": [], "outputs": [{"name": "a"}]}', "name, datatype and shape"),
        (b'{"inputs": [], "outputs": "all"}', "wanted a list"),
        (b'"yes"', "wanted an object"),
    ],
)
def test_a_description_without_ports_is_refused(
    tmp_path: Path, inputs: dict[str, Any], answer: bytes, reason: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}"
    server = RawServer(lambda peer, _: peer.sendall(head.encode() + b"\r\n\r\n" + answer))
    with serving(server) as address:
        sut = SutSpec(
            "kserve", package=register(tmp_path / "endpoint", address, "kserve-v2", "encoder")
        )
        with pytest.raises(EndpointError, match=reason):
            stacks.open_system(sut, inputs["model"], "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": "ignition.endpoint.v2"}, "schema"),
        ({"protocol": "openai-chat"}, "protocol"),
        ({"url": "file:///etc/passwd"}, "http or https"),
        ({"model": "../admin"}, "model"),
        ({"model": "a b"}, "model"),
        ({"model": 7}, "model"),
        ({"networks": "10.0.0.0/8"}, "networks"),
        ({"networks": ["ten"]}, "networks"),
        ({"limits": {"read_s": "fast"}}, "limits"),
        ({"limits": {"read_s": -1}}, "limits.read_s"),
        ({"limits": {"retries": 3}}, "limits"),
        ({"token_file": "../token"}, "token_file"),
        ({"token_file": "absent"}, "token_file"),
        ({"timeout": 5}, "wanted the fields"),
    ],
)
def test_a_registration_that_is_wrong_is_refused_by_field(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    register(tmp_path, "http://127.0.0.1:1", "kserve-v2", "encoder", **{})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert load_registration(tmp_path, "kserve-v2").model == "encoder"
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(EndpointError, match=reason):
        load_registration(tmp_path, "kserve-v2")


def test_a_token_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-4711\n")
    register(tmp_path, "http://127.0.0.1:1", "kserve-v2", "encoder", token_file="token")
    registration = load_registration(tmp_path, "kserve-v2")
    assert registration.token == "secret-4711"
    assert "secret" not in repr(registration)
    (tmp_path / "token").write_bytes(b"secret\xff")
    with pytest.raises(EndpointError) as caught:
        load_registration(tmp_path, "kserve-v2")
    assert "secret" not in str(caught.value)
