"""Runs a tile program in NumPy and watches every step: the debugger, and the first gate.

In: a kernel, arrays, sizes. Out: the outputs, and the code of the `check` that ended the run, if
any. Raises `Fault` for a place outside a buffer, a value read before it was written, two turns of
a parallel loop that touch the same element, a negative integer division, and an output element
that was never written.
Never here: speed; a kernel is shown right at small sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kernelgen.tile.check import check
from kernelgen.tile.ir import (
    Assign,
    Buffer,
    Check,
    Const,
    Expr,
    Fill,
    For,
    If,
    Kernel,
    Load,
    Name,
    Op,
    Prefetch,
    Span,
    Stmt,
    Store,
    TileError,
)
from kernelgen.tile.text import show
from kernelgen.tile.words import WORDS

Array = npt.NDArray[Any]

NUMPY: Mapping[str, type[np.generic]] = {
    "f32": np.float32,
    "i32": np.int32,
    "i64": np.int64,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}

NOBODY, SEVERAL = -1, -2

EXACT = 2.0**22
"""Sums and products below it are exact in float32 in any order, fused or not."""

INDEX_EDGE = 2**40

_CASTS = ("i32", "i64", "i8", "u8")
_DOTS = ("dot4", "dot4_low", "dot4_high", "dot_i8")
_GROWING = ("add", "sub", "mul", "neg", "shl", "sum", *_CASTS, *_DOTS)


class Fault(Exception):
    """`kind` is one of bounds, unset, race, division, overflow, inexact, unwritten, steps."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class _Ended(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass
class _Memory:
    """A buffer's contents, which elements are set, and who of the parallel turns touched them."""

    buffer: Buffer
    data: Array
    is_set: Array
    reader: Array
    writer: Array


@dataclass
class Machine:
    """One run in progress."""

    kernel: Kernel
    memory: dict[str, _Memory]
    most_steps: int
    exact: bool = False
    names: list[dict[str, Any]] = field(default_factory=list)
    turn: int = NOBODY
    depth: int = 0
    steps: int = 0

    # ---- values --------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Any:
        match expr:
            case Const(value):
                return value
            case Name(name):
                for block in reversed(self.names):
                    if name in block:
                        return block[name]
                raise TileError(f"{self.kernel.name}: {name} is not assigned")
            case Fill(value, dtype, shape):
                return np.full(shape, self.value(value), NUMPY[dtype])
            case Load():
                return self._load(expr)
            case Op(word, args):
                return self._word(word, [self.value(arg) for arg in args])
        raise TileError(f"{expr!r} is no expression")

    def _word(self, name: str, args: list[Any]) -> Any:
        word = WORDS[name]
        if word.kind == "lane":
            return word.meaning(args[0])
        if word.kind == "turn":
            return word.meaning(args[0])
        if word.kind == "reduce":
            (x,) = args
            result = word.meaning(x)
            self._overflow(name, [x], result)
            self._inexact(name, result)
            return result[..., None] if x.ndim == 2 else result[()]
        # The test of a select says nothing of what is chosen between.
        chosen = args[1:] if name == "select" else args
        strong = [arg for arg in chosen if isinstance(arg, np.ndarray | np.generic)]
        if not strong:  # written numbers alone, and i64 scalars, which are Python's here
            return self._scalars(name, args)
        if word.kind in ("lanes", "compare"):
            first = 1 if name == "select" else 0
            known = next(
                arg.dtype for arg in args[first:] if isinstance(arg, np.ndarray | np.generic)
            )
            args = [
                arg if isinstance(arg, np.ndarray | np.generic) or at < first else known.type(arg)
                for at, arg in enumerate(args)
            ]
        if name in ("floordiv", "mod") and (np.any(args[0] < 0) or np.any(args[1] <= 0)):
            raise Fault("division", f"{name} of a negative, or by zero or less")
        with np.errstate(all="ignore"):
            result = word.meaning(*args)
        self._overflow(name, args, result)
        self._inexact(name, result)
        if word.kind == "cast" and name == "i64" and np.ndim(result) == 0:
            return int(result)
        return result

    @staticmethod
    def _overflow(name: str, args: list[Any], result: Any) -> None:
        """Integers never overflow in a program that means something: C says nothing of it."""
        if np.asarray(result).dtype.kind not in "iu" or name not in _GROWING:
            return
        if name in _CASTS:
            exact = np.asarray(args[0], np.float64)
            wrong = ~(np.abs(exact - np.asarray(result, np.float64)) < 1.0)
        elif name in _DOTS:  # the products alone fit; adding them to what is there may not
            added = WORDS[name].meaning(np.zeros_like(args[0]), *args[1:])
            wrong = args[0].astype(np.int64) + added != result
        else:
            # Lanes have 32 bits at most, so that one step more fits 64.
            wide = [np.asarray(arg).astype(np.int64) for arg in args]
            wrong = WORDS[name].meaning(*wide) != np.asarray(result)
        if np.any(wrong):
            raise Fault("overflow", f"{name} leaves the range of {np.asarray(result).dtype}")

    def _inexact(self, name: str, result: Any) -> None:
        if not self.exact or np.asarray(result).dtype.kind != "f":
            return
        with np.errstate(invalid="ignore"):
            if np.any(~(np.abs(result) < EXACT) | (result != np.rint(result))):
                raise Fault("inexact", f"{name} leaves the integers that float32 holds exactly")

    def _scalars(self, name: str, args: list[Any]) -> Any:
        if name in ("floordiv", "mod") and (args[0] < 0 or args[1] <= 0):
            raise Fault("division", f"{args[0]} {name} {args[1]}: wanted 0 up, and 1 up")
        word = WORDS[name]
        with np.errstate(all="ignore"):
            if word.kind == "cast" and name != "i64":
                one = word.meaning(args[0])[()]
                self._overflow(name, args, one)
                return one
            result = word.meaning(*(np.asarray(arg) for arg in args))
        if word.kind == "compare":
            return bool(result)
        if result.dtype.kind == "i" and abs(int(result)) > INDEX_EDGE:
            raise Fault("overflow", f"{name} leaves the range of an index")
        return result.item() if isinstance(result, np.ndarray | np.generic) else result

    # ---- memory --------------------------------------------------------------------------------

    def _where(self, load: Load) -> tuple[_Memory, tuple[Any, ...], tuple[int, ...], int]:
        """The buffer, the slices that lie inside it, the full shape, and the lanes that count."""
        memory = self.memory[load.buffer]
        slices: list[Any] = []
        shape: list[int] = []
        lanes = 0
        for axis, at in enumerate(load.index):
            size = memory.data.shape[axis]
            if isinstance(at, Span):
                start, count = int(self.value(at.start)), at.count
                lanes = count
                if at.limit is not None:
                    lanes = min(count, max(0, int(self.value(at.limit))))
                stop = start + lanes
                slices.append(slice(start, stop))
                shape.append(count)
                empty = lanes == 0
            else:
                start = int(self.value(at))
                stop, empty = start + 1, False
                slices.append(start)
            if not empty and (start < 0 or stop > size):
                raise Fault(
                    "bounds",
                    f"{self.kernel.name}: {show(load)}: axis {axis} reaches [{start}, {stop}), "
                    f"the buffer holds {size}",
                )
            if empty:
                slices[-1] = slice(0, 0)
        return memory, tuple(slices), tuple(shape), lanes

    def _load(self, load: Load) -> Any:
        memory, slices, shape, lanes = self._where(load)
        if not np.all(memory.is_set[slices]):
            raise Fault("unset", f"{self.kernel.name}: {show(load)} is read before it is written")
        if self.turn != NOBODY and memory.buffer.role in ("local", "output"):
            owner = memory.writer[slices]
            if np.any((owner != NOBODY) & (owner != self.turn)):
                raise Fault("race", f"{self.kernel.name}: {show(load)} was written by another turn")
            reader = memory.reader[slices]
            memory.reader[slices] = np.where(
                (reader == NOBODY) | (reader == self.turn), self.turn, SEVERAL
            )
        found = memory.data[slices]
        if not shape:
            one = found[()]
            return int(one) if memory.buffer.dtype == "i64" else one
        if lanes == shape[-1]:
            return found.copy()
        whole = np.zeros(shape, memory.data.dtype)
        whole[..., :lanes] = found
        return whole

    def _store(self, store: Store) -> None:
        memory, slices, shape, lanes = self._where(store.target)
        if self.turn != NOBODY and memory.buffer.role in ("local", "output"):
            writer, reader = memory.writer[slices], memory.reader[slices]
            foreign = (writer != NOBODY) & (writer != self.turn)
            foreign |= (reader != NOBODY) & (reader != self.turn)
            if np.any(foreign):
                raise Fault(
                    "race", f"{self.kernel.name}: {show(store.target)} is another turn's too"
                )
            memory.writer[slices] = self.turn
        value = np.broadcast_to(np.asarray(self.value(store.value), memory.data.dtype), shape)
        memory.data[slices] = value[..., :lanes] if shape else value[()]
        memory.is_set[slices] = True

    # ---- statements ----------------------------------------------------------------------------

    @contextmanager
    def _inside(self, **names: Any) -> Iterator[None]:
        self.names.append(names)
        try:
            yield
        finally:
            self.names.pop()

    def block(self, statements: Sequence[Stmt]) -> None:
        for statement in statements:
            self.steps += 1
            if self.steps > self.most_steps:
                raise Fault("steps", f"{self.kernel.name}: more than {self.most_steps} statements")
            match statement:
                case Assign(name, expr):
                    self._assign(name, self.value(expr))
                case Store():
                    self._store(statement)
                case For():
                    self._loop(statement)
                case If(test, then, other):
                    with self._inside():
                        self.block(then if self.value(test) else other)
                case Check(test, code):
                    if not self.value(test):
                        raise _Ended(code)
                case Prefetch():
                    pass

    def _assign(self, name: str, value: Any) -> None:
        if isinstance(value, float):
            value = np.float32(value)
        for block in reversed(self.names):
            if name in block:
                block[name] = value
                return
        self.names[-1][name] = value

    def _loop(self, loop: For) -> None:
        start, stop = int(self.value(loop.start)), int(self.value(loop.stop))
        outermost = loop.parallel and self.turn == NOBODY
        for turn, at in enumerate(range(start, stop, loop.step)):
            if outermost:
                self.turn = turn
                for memory in self.memory.values():
                    if memory.buffer.role == "private":
                        memory.is_set[...] = False
            with self._inside(**{loop.var: at}):
                self.block(loop.body)
        if outermost:
            self.turn = NOBODY
            for memory in self.memory.values():
                memory.reader[...] = NOBODY
                memory.writer[...] = NOBODY


@dataclass(frozen=True)
class Result:
    """`code` is 0, or that of the check that ended the run; `outputs` holds every output array."""

    code: int
    outputs: dict[str, Array]


def interpret(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    dims: Mapping[str, int],
    *,
    most_steps: int = 2_000_000,
    exact: bool = False,
) -> Result:
    """Pack the weights in `arrays` and run `kernel` once on its inputs.

    `arrays` maps every input and weight buffer to an array of its shape and dtype. With `exact`, a
    float value that is no small integer is a fault too: what passes is the same in any order and on
    any machine, bit for bit. Raises `TileError` for a kernel or arrays that do not fit, `Fault` for
    one that goes wrong.
    """
    check(kernel)
    sizes = {dim: int(dims[dim]) for dim in kernel.dims}
    machine = Machine(kernel, {}, most_steps, exact)
    with machine._inside(**sizes):
        for buffer in kernel.buffers:
            machine.memory[buffer.name] = _memory(machine, buffer, arrays)
        with machine._inside():
            machine.block(kernel.prepare)
        code = 0
        try:
            with machine._inside():
                machine.block(kernel.run)
        except _Ended as ended:
            code = ended.code
    outputs = kernel.by_role("output")
    for buffer in outputs:
        missing = np.argwhere(~machine.memory[buffer.name].is_set)
        if code == 0 and missing.size:
            place = ", ".join(map(str, missing[0]))
            raise Fault(
                "unwritten", f"{kernel.name}: {buffer.name}[{place}] and {len(missing)} all"
            )
    return Result(code, {buffer.name: machine.memory[buffer.name].data for buffer in outputs})


def _memory(machine: Machine, buffer: Buffer, arrays: Mapping[str, Array]) -> _Memory:
    shape = tuple(int(cast("int", machine.value(size))) for size in buffer.shape)
    given = buffer.role in ("input", "weight")
    dtype = NUMPY[buffer.dtype]
    if given:
        if buffer.name not in arrays:
            raise TileError(f"{machine.kernel.name}: array {buffer.name!r} is missing")
        data = np.array(arrays[buffer.name])
        # A program may see the same elements under another shape, such as h and w as one axis.
        if data.size != np.prod(shape, dtype=np.int64) or data.dtype != dtype:
            raise TileError(
                f"{machine.kernel.name}: {buffer.name}: got {data.dtype}{list(data.shape)}, "
                f"wanted {np.dtype(dtype)}{list(shape)}"
            )
        data = data.reshape(shape)
    else:
        if min(shape, default=1) < 0:
            raise TileError(f"{machine.kernel.name}: {buffer.name}: shape {list(shape)}")
        data = np.zeros(shape, dtype)
    nobody = np.full(shape, NOBODY, np.int64)
    return _Memory(buffer, data, np.full(shape, given), nobody, nobody.copy())
