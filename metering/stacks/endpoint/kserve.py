"""A model behind the Open Inference Protocol (KServe v2) over HTTP with JSON.

In: a registration. Out: a System whose embeddings a server computed. Timed is what a client of such
a server waits for: encoding, network, queue and model. Every field of an answer is checked against
what was asked, since a server that answers with other shapes, other samples or no numbers would
otherwise be measured as fast.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.endpoint.client import Client
from metering.stacks.endpoint.failure import EndpointError, quoted
from metering.stacks.endpoint.registration import MANIFEST, load_registration
from metering.stacks.system import (
    Embeddings,
    OutputPort,
    StackError,
    StackInfo,
    System,
    TokenIds,
    choose_output,
    pad,
)

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default",)


def discover(sut: SutSpec | None = None) -> StackInfo:
    """What the server says of itself and the model; the digest is of that text, its own claim."""
    if sut is None or sut.package is None:
        return StackInfo("kserve", "", "", False, f"sut.package: wanted a folder with {MANIFEST}")
    try:
        registration = load_registration(Path(sut.package), "kserve-v2")
        client = registration.client()
        try:
            server = _object(client.get_json("/v2"), "/v2")
            model = _metadata(client, registration.model)
        finally:
            client.close()
    except EndpointError as error:
        return StackInfo("kserve", "", "", False, str(error))
    claim = json.dumps({"server": server, "model": model}, sort_keys=True)
    version = f"{server.get('name', 'unnamed')} {server.get('version', 'unversioned')}"
    digest = hashlib.sha256(claim.encode()).hexdigest()
    return StackInfo("kserve", f"{quoted(version)} (its own claim)", digest, True, "")


class KserveSystem:
    """One connection; requests follow one another, as the instances of a stack do."""

    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        if sut.package is None:
            raise StackError(f"sut.package: wanted a folder with {MANIFEST}")
        registration = load_registration(Path(sut.package), "kserve-v2")
        self._name = registration.model
        self._client = registration.client()
        described = _metadata(self._client, self._name)
        self._inputs = [port["name"] for port in described["inputs"]]
        ports = [
            OutputPort((port["name"],), len(port["shape"]), port["datatype"] == "FP32")
            for port in described["outputs"]
        ]
        self._output = ports[choose_output(ports, output)].names[0]
        self._numbers = itertools.count()
        self._width = 0

    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        ids, mask = pad(batch)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        unknown = [name for name in self._inputs if name not in given]
        if unknown:
            raise EndpointError("answer", f"the model wants inputs {unknown}, which nobody gave")
        number = str(next(self._numbers))
        answer = self._client.post_json(
            f"/v2/models/{self._name}/infer",
            {
                "id": number,
                "inputs": [_tensor(name, given[name]) for name in self._inputs],
                "outputs": [{"name": self._output}],
            },
        )
        rows = self._rows(answer, number, len(batch))
        self._width = rows.shape[1]
        return rows

    def _rows(self, answer: Any, number: str, count: int) -> Embeddings:
        whole = _object(answer, "infer")
        if whole.get("id", number) != number or whole.get("model_name", self._name) != self._name:
            raise EndpointError(
                "answer",
                f"id {quoted(str(whole.get('id')))} of model "
                f"{quoted(str(whole.get('model_name')))}, wanted {number} of {self._name}",
            )
        found = [
            port
            for port in _list(whole, "outputs")
            if isinstance(port, Mapping) and port.get("name") == self._output
        ]
        if len(found) != 1:
            raise EndpointError("answer", f"{len(found)} outputs {self._output}, wanted one")
        return _values(found[0], count, self._width)

    def close(self) -> None:
        self._client.close()


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    return KserveSystem(sut, model, output)


def _tensor(name: str, values: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(values.shape),
        "datatype": "INT64",
        "data": values.ravel().tolist(),
    }


def _values(port: Mapping[str, Any], count: int, width: int) -> Embeddings:
    """(count, d) float32 from one output tensor; ``width`` is d of the answers before, or 0."""
    shape, kind, data = port.get("shape"), port.get("datatype"), port.get("data")
    whole = isinstance(shape, list) and all(type(side) is int for side in shape)
    if not whole or len(shape) != 2 or shape[0] != count or shape[1] < 1:  # type: ignore[arg-type,index]
        raise EndpointError("answer", f"shape {quoted(str(shape))}, wanted [{count}, d]")
    rows, columns = shape  # type: ignore[misc]
    if width and columns != width:
        raise EndpointError("answer", f"{columns} values a sample, the answers before had {width}")
    if kind != "FP32":
        raise EndpointError("answer", f"datatype {quoted(str(kind))}, wanted FP32")
    if not isinstance(data, list) or len(data) not in (rows * columns, rows):
        raise EndpointError("answer", f"data: wanted {rows * columns} numbers, flat or by row")
    if data and isinstance(data[0], list):
        if any(not isinstance(row, list) or len(row) != columns for row in data):
            raise EndpointError("answer", f"data: wanted rows of {columns} numbers")
        data = list(itertools.chain.from_iterable(data))
    if len(data) != rows * columns or not all(_is_number(value) for value in data):
        raise EndpointError("answer", f"data: wanted {rows * columns} finite numbers")
    return np.array(data, dtype=np.float32).reshape(rows, columns)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _metadata(client: Client, model: str) -> dict[str, Any]:
    """Inputs and outputs of the model, each with name, datatype and shape."""
    path = f"/v2/models/{model}"
    data = _object(client.get_json(path), path)
    for side in ("inputs", "outputs"):
        for port in _list(data, side):
            if (
                not isinstance(port, Mapping)
                or not isinstance(port.get("name"), str)
                or not isinstance(port.get("shape"), list)
                or not isinstance(port.get("datatype"), str)
            ):
                raise EndpointError("form", f"{path}: {side}: wanted name, datatype and shape")
    return data


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EndpointError("form", f"{path}: got {quoted(str(value))}, wanted an object")
    return value


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    if not isinstance(value, list):
        raise EndpointError("form", f"{name}: got {quoted(str(value))}, wanted a list")
    return value
