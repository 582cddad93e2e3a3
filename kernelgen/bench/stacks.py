"""The stock stacks as sides of a race over the same buffers, each in its best configuration.

In: contents, a family's `Peers`. Out: sides that run all copies in one call. Every stack is
optional and imported only when asked for; outputs are bound beforehand, so that no stack pays for
allocating or copying them.
Never here: tuning against them, or settings that slow them down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.contents import Contents, Stack, aligned
from kernelgen.bench.family import Form, NumpyForm, Peers
from kernelgen.bench.net import Model, build
from kernelgen.ops.operator import Array

Outputs = list[dict[str, Array]]

COMPILED_TOGETHER = 16

OPENVINO = {
    "INFERENCE_PRECISION_HINT": "f32",
    "INFERENCE_NUM_THREADS": "1",
    "NUM_STREAMS": "1",
}


def _nothing() -> None:
    return None


@dataclass(frozen=True, eq=False)
class Side:
    """`run` computes every copy once; `refresh` follows new contents; `results` are the outputs of
    the last run.
    """

    stack: str
    form: str
    run: Callable[[], object]
    results: Callable[[], Outputs]
    refresh: Callable[[], None] = field(default=_nothing)

    @property
    def name(self) -> str:
        return f"{self.stack} ({self.form})" if self.form else self.stack


class _Feeds:
    """The graph's input arrays; the contents' own buffers where a form changes nothing."""

    def __init__(self, form: Form, contents: Contents) -> None:
        self._form = form
        self._contents = contents
        self.stacks: Mapping[str, Stack] = contents.stacks
        if form.feed is not None:
            made = [form.feed(one) for one in contents.inputs]
            self.stacks = {name: Stack.of([one[name] for one in made]) for name in made[0]}
        self.arrays = [
            {name: stack.parts[copy] for name, stack in self.stacks.items()}
            for copy in range(contents.copies)
        ]

    def refresh(self) -> None:
        if self._form.feed is None:
            return
        for mine, source in zip(self.arrays, self._contents.inputs, strict=True):
            for name, array in self._form.feed(source).items():
                np.copyto(mine[name], array)

    def named(self, model: Model) -> dict[str, Array]:
        if model.stacked:
            return {name: self.stacks[name].whole for name in model.input_names}
        found = {}
        for full in model.input_names:
            name, _, number = full.rpartition("_")
            found[full] = self.arrays[int(number)][name]
        return found


class _Bound:
    """Output arrays that a graph engine writes into, by the graph's names, and per copy."""

    def __init__(self, model: Model, contents: Contents) -> None:
        self.arrays: dict[str, Array] = {}
        self.outputs: Outputs = [{} for _ in range(contents.copies)]
        shapes = {t.name: t.sizes(contents.dims) for t in contents.operator.by_role("output")}
        for one in model.results:
            if model.stacked:
                full = f"{one.name}_all"
                if full not in self.arrays:
                    length = one.shape[0] * contents.copies
                    self.arrays[full] = aligned((length, *one.shape[1:]), one.dtype)
                begin = one.number * one.shape[0]
                part = self.arrays[full][begin : begin + one.shape[0]]
            else:
                part = self.arrays[one.full] = aligned(one.shape, one.dtype)
            self.outputs[one.number][one.name] = part.reshape(shapes[one.name])


def onnxruntime(name: str, form: Form, contents: Contents) -> Side:
    """All graph optimisations unless the form says otherwise, one thread, all buffers bound."""
    import onnxruntime as ort

    feeds = _Feeds(form, contents)
    model = build(form.body, contents, feeds.arrays, opset=form.opset)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    settings = dict(form.settings.get("onnxruntime", {}))
    level = settings.pop("graph_optimization_level", "all").upper()
    options.graph_optimization_level = ort.GraphOptimizationLevel.__members__[f"ORT_ENABLE_{level}"]
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    session = ort.InferenceSession(model.data, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for full, array in feeds.named(model).items():
        binding.bind_cpu_input(full, array)
    bound = _Bound(model, contents)
    for full, array in bound.arrays.items():
        binding.bind_output(full, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def run() -> None:
        session.run_with_iobinding(binding)

    return Side("onnxruntime", name, run, lambda: bound.outputs, feeds.refresh)


def openvino(name: str, form: Form, contents: Contents) -> Side:
    """Float32, one stream, one thread. All copies share one input tensor, which it splits in place:
    several microseconds per bound tensor would otherwise count as the operator's.
    """
    import openvino as ov

    feeds = _Feeds(form, contents)
    model = build(form.body, contents, feeds.arrays, opset=form.opset, stacked=contents.copies > 1)
    core = ov.Core()
    options = {**OPENVINO, **form.settings.get("openvino", {})}
    compiled = core.compile_model(core.read_model(model.data), "CPU", options)
    request = compiled.create_infer_request()
    bound = _Bound(model, contents)
    kept: list[Any] = [compiled]
    for full, array in {**feeds.named(model), **bound.arrays}.items():
        kept.append(ov.Tensor(array, shared_memory=True))
        request.set_tensor(full, kept[-1])

    def run() -> None:
        request.start_async()
        request.wait()

    # The request only borrows the tensors and the compiled model: the run keeps them alive.
    run.__dict__["borrowed"] = kept
    return Side("openvino", name, run, lambda: bound.outputs, feeds.refresh)


def numpy(name: str, form: NumpyForm, contents: Contents) -> Side:
    """NumPy's own calls, copy after copy, writing into existing arrays where it can."""
    outputs = contents.outputs()
    calls = [
        form(
            contents.operator,
            contents.dims,
            contents.inputs[number],
            contents.weights_of(number),
            outputs[number],
        )
        for number in range(contents.copies)
    ]

    def run() -> None:
        for call in calls:
            call()

    return Side("numpy", name, run, lambda: outputs)


def torch(compiled: bool, peers: Peers, contents: Contents) -> Side:
    """PyTorch over tensors that share our memory: eager, or compiled. Up to `COMPILED_TOGETHER`
    copies are compiled as one function; more would keep the compiler busy for minutes.
    """
    import torch as library

    if peers.torch is None:
        raise LookupError("no PyTorch formulation")
    library.set_num_threads(1)
    one = peers.torch(library, contents.operator, contents.dims)

    def shared(arrays: Mapping[str, Array]) -> dict[str, Any]:
        return {name: library.from_numpy(array) for name, array in arrays.items()}

    sources = [shared(contents.inputs[number]) for number in range(contents.copies)]
    weights = [shared(contents.weights_of(number)) for number in range(contents.copies)]

    together = contents.copies <= COMPILED_TOGETHER
    each = _compiled(library, one) if compiled and not together else one

    def every(sources: Any, weights: Any) -> Any:
        return [each(x, w) for x, w in zip(sources, weights, strict=True)]

    call = _compiled(library, every) if compiled and together else every
    last: list[Any] = []

    def run() -> None:
        with library.inference_mode():
            last[:] = call(sources, weights)

    def results() -> Outputs:
        return [{name: value.numpy() for name, value in made.items()} for made in last]

    return Side("torch", "compile" if compiled else "eager", run, results)


def _compiled(library: Any, function: Any) -> Any:
    return library.compile(function, mode="max-autotune-no-cudagraphs")


Opener = Callable[[], Side]
STACKS = ("numpy", "onnxruntime", "openvino", "torch")


def openers(peers: Peers, contents: Contents) -> list[tuple[str, str, Opener]]:
    """Everything that may be tried, as (stack, form, opener). An opener raises `ImportError` where
    the stack is not installed and the stack's own error where it refuses the graph.
    """
    found: list[tuple[str, str, Opener]] = []
    ways = peers.numpy if isinstance(peers.numpy, Mapping) else {"": peers.numpy}
    for name, way in ways.items():
        if way is not None:
            found.append(("numpy", name, partial(numpy, name, way, contents)))
    for name, form in peers.forms(contents.operator, contents.dims).items():
        for stack, opener in (("onnxruntime", onnxruntime), ("openvino", openvino)):
            if stack in form.stacks:
                found.append((stack, name, partial(opener, name, form, contents)))
    if peers.torch is not None:
        found.append(("torch", "eager", partial(torch, False, peers, contents)))
        found.append(("torch", "compile", partial(torch, True, peers, contents)))
    return found
