"""Constant folding of the shape arithmetic that exporters leave in a graph, with symbolic sizes.

In: an `OnnxModel` whose inputs have symbolic sizes. Out: for every value its shape, and for small
integer values and table prefixes also what they contain, sizes as numbers or as the symbols "batch"
and "seq".
Never here: floating-point work. What it cannot fold it leaves out, and the pattern that needed it
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from kernelgen.graph.onnx_file import Array, OnnxModel, OnnxNode

Size = int | str
Shape = tuple[Size, ...]


@dataclass(frozen=True)
class Known:
    """What folding found out about one value.

    `content`: a vector or scalar of sizes, flattened. `fill`: the one number all elements have.
    `counting`: the last axis holds 0, 1, 2, ...
    """

    shape: Shape | None = None
    content: tuple[Size, ...] | None = None
    fill: float | None = None
    counting: bool = False


NOTHING = Known()


def fold(model: OnnxModel, symbols: Mapping[str, Shape]) -> dict[str, Known]:
    """`Known` of every value; `symbols` gives the shapes of the graph inputs. Never raises for an
    unknown operator.
    """
    known = {name: of_constant(array) for name, array in model.constants.items()}
    known.update({name: Known(shape) for name, shape in symbols.items()})
    for node in model.nodes:
        arguments = [known.get(name, NOTHING) for name in node.inputs if name]
        known[node.outputs[0]] = _fold_node(model, node, arguments)
    return known


def of_constant(array: Array) -> Known:
    content: tuple[Size, ...] | None = None
    if array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= 16:
        content = tuple(int(value) for value in array.ravel())
    fill = None
    if array.size and array.dtype.kind in "iuf" and bool((array == array.ravel()[0]).all()):
        fill = float(array.ravel()[0])
    counting = bool(
        array.ndim and array.dtype.kind in "iu" and (array == np.arange(array.shape[-1])).all()
    )
    return Known(tuple(array.shape), content, fill, counting)


def _fold_node(model: OnnxModel, node: OnnxNode, args: list[Known]) -> Known:
    first = args[0] if args else NOTHING
    if node.op == "Shape":
        if first.shape is None:
            return NOTHING
        return Known((len(first.shape),), first.shape)
    if node.op == "Identity":
        return first
    if node.op == "Cast":
        return Known(first.shape, None, first.fill)
    if node.op in ("Softmax", "Erf", "LayerNormalization", "Clip"):
        return Known(first.shape)
    if node.op in ("Add", "Sub", "Mul", "Div", "Equal", "Where"):
        return _elementwise(node, args)
    if node.op == "Gather":
        return _gather(node, args)
    if node.op == "Unsqueeze":
        return _unsqueeze(args)
    if node.op == "Concat":
        return _concat(node, args)
    if node.op == "ConstantOfShape":
        return _constant_of_shape(node, first)
    if node.op == "Reshape":
        return _reshape(args)
    if node.op == "Slice":
        return _slice(args)
    if node.op == "Expand":
        return _expand(args)
    if node.op == "Transpose" and first.shape is not None:
        order = cast("list[int]", node.attributes["perm"])
        return Known(tuple(first.shape[place] for place in order))
    if node.op == "MatMul":
        return _matmul(args)
    if node.op == "ReduceSum":
        return _reduce(node, args)
    return NOTHING


def broadcast(shapes: list[Shape]) -> Shape | None:
    """NumPy's rule with symbols; None when two different symbols meet."""
    rank = max(len(shape) for shape in shapes)
    result: list[Size] = []
    for place in range(-rank, 0):
        sizes = {shape[place] for shape in shapes if -place <= len(shape)} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def _elementwise(node: OnnxNode, args: list[Known]) -> Known:
    shapes = [arg.shape for arg in args]
    if any(shape is None for shape in shapes):
        return NOTHING
    shape = broadcast(cast("list[Shape]", shapes))
    contents = [arg.content for arg in args]
    if shape is None or any(content is None for content in contents):
        return Known(shape)
    length = max(len(content) for content in contents if content is not None)
    columns = [
        content * length if len(content) == 1 else content
        for content in contents
        if content is not None
    ]
    folded: list[Size] = []
    for row in zip(*columns, strict=True):
        value = _scalar(node.op, row)
        if value is None:
            return Known(shape)
        folded.append(value)
    return Known(shape, tuple(folded))


def _scalar(op: str, row: tuple[Size, ...]) -> Size | None:
    if op == "Where":
        return None if isinstance(row[0], str) else row[1] if row[0] else row[2]
    left, right = row
    if op == "Equal":
        # A size is never negative, so a symbol differs from -1 for certain; else only like equals
        # like.
        if isinstance(left, str) or isinstance(right, str):
            other = right if isinstance(left, str) else left
            if left == right:
                return 1
            return 0 if isinstance(other, int) and other < 0 else None
        return int(left == right)
    if isinstance(left, str) or isinstance(right, str):
        return None
    return {"Add": left + right, "Sub": left - right, "Mul": left * right}.get(op)


def _gather(node: OnnxNode, args: list[Known]) -> Known:
    data, index = args
    if data.content is not None and index.content is not None:
        picked = tuple(data.content[place] for place in index.content if isinstance(place, int))
        return Known(index.shape, picked)
    if data.shape is None or index.shape is None:
        return NOTHING
    axis = int(cast("int", node.attributes.get("axis", 0))) % len(data.shape)
    return Known(data.shape[:axis] + index.shape + data.shape[axis + 1 :])


def _unsqueeze(args: list[Known]) -> Known:
    data, axes = args
    if data.shape is None or axes.content is None:
        return NOTHING
    rank = len(data.shape) + len(axes.content)
    places = {cast("int", axis) % rank for axis in axes.content}
    left = iter(data.shape)
    shape = tuple(1 if place in places else next(left) for place in range(rank))
    return Known(shape, data.content, data.fill)


def _concat(node: OnnxNode, args: list[Known]) -> Known:
    axis = int(cast("int", node.attributes["axis"]))
    if len(args) == 1:
        return args[0]
    contents = [arg.content for arg in args]
    if axis == 0 and all(content is not None for content in contents):
        joined = tuple(size for content in contents if content is not None for size in content)
        return Known((len(joined),), joined)
    return NOTHING


def _constant_of_shape(node: OnnxNode, shape: Known) -> Known:
    if shape.content is None:
        return NOTHING
    value = cast("Array", node.attributes.get("value", np.zeros(1, np.float32))).ravel()[0]
    sizes = shape.content
    content = None
    if value.dtype.kind in "iu" and len(sizes) == 1 and isinstance(sizes[0], int):
        content = (int(value),) * sizes[0]
    return Known(sizes, content, float(value))


def _reshape(args: list[Known]) -> Known:
    data, target = args
    if target.content is None:
        return NOTHING
    if data.content is not None and target.content == (-1,):
        return Known((len(data.content),), data.content, data.fill)
    sizes: list[Size] = []
    for place, size in enumerate(target.content):
        if size == 0 and data.shape is not None:
            size = data.shape[place]
        sizes.append(size)
    if -1 in sizes:
        missing = _missing(data.shape, sizes)
        if missing is None:
            return NOTHING
        sizes[sizes.index(-1)] = missing
    return Known(tuple(sizes), None, data.fill)


def _missing(shape: Shape | None, sizes: list[Size]) -> Size | None:
    """The size that -1 stands for, when symbols cancel and the numbers divide."""
    if shape is None:
        return None
    have = [size for size in shape if isinstance(size, str)]
    want = [size for size in sizes if isinstance(size, str)]
    for symbol in want:
        if symbol not in have:
            return None
        have.remove(symbol)
    total = int(np.prod([size for size in shape if isinstance(size, int)], dtype=np.int64))
    given = int(np.prod([s for s in sizes if isinstance(s, int) and s != -1], dtype=np.int64))
    if have:
        return have[0] if len(have) == 1 and total == given else None
    return total // given if given and total % given == 0 else None


def _slice(args: list[Known]) -> Known:
    data = args[0]
    contents = [arg.content for arg in args[1:]]
    if data.shape is None or len(args) != 5 or any(content is None for content in contents):
        return NOTHING
    starts, ends, axes, steps = cast("list[tuple[Size, ...]]", contents)
    shape = list(data.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if start != 0 or step != 1 or not isinstance(axis, int):
            return NOTHING
        shape[axis] = end
    # A prefix of a counting row still counts from nought.
    return Known(tuple(shape), None, data.fill, data.counting)


def _expand(args: list[Known]) -> Known:
    data, target = args
    if data.shape is None or target.content is None:
        return NOTHING
    shape = broadcast([data.shape, target.content])
    return Known(shape, None, data.fill, data.counting)


def _matmul(args: list[Known]) -> Known:
    left, right = args[0].shape, args[1].shape
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return NOTHING
    batch = broadcast([left[:-2], right[:-2]]) if left[:-2] or right[:-2] else ()
    return NOTHING if batch is None else Known((*batch, left[-2], right[-1]))


def _reduce(node: OnnxNode, args: list[Known]) -> Known:
    shape, axes = args[0].shape, args[1].content if len(args) > 1 else None
    if shape is None or axes is None:
        return NOTHING
    places = {cast("int", axis) % len(shape) for axis in axes}
    if int(cast("int", node.attributes.get("keepdims", 1))):
        return Known(tuple(1 if i in places else size for i, size in enumerate(shape)))
    return Known(tuple(size for i, size in enumerate(shape) if i not in places))
