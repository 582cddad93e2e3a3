"""Writes tile programs in Python: expressions by operators, blocks by `with`.

In: sizes and choices. Out: a `Kernel`. Never here: what a kernel computes.

    b = Build("row_sum", dims=("m",))
    x = b.buffer("x", "f32", ("m", 64), "input")
    y = b.buffer("y", "f32", ("m",), "output")
    with b.run(), b.parallel("i", 0, "m") as i:
        y[i] = b.let("s", sum_(x[i, span(0, 64)]))
    kernel = b.kernel()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kernelgen.tile.check import check
from kernelgen.tile.ir import (
    Assign,
    Buffer,
    Check,
    Const,
    Dtype,
    Expr,
    Fill,
    For,
    If,
    Kernel,
    Load,
    Name,
    Op,
    Prefetch,
    Role,
    Span,
    Stmt,
    Store,
    TileError,
)
from kernelgen.tile.words import WORDS


class Value:
    """An expression that Python's operators build on."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __add__(self, other: Arg) -> Value:
        return word("add", self, other)

    def __radd__(self, other: Arg) -> Value:
        return word("add", other, self)

    def __sub__(self, other: Arg) -> Value:
        return word("sub", self, other)

    def __rsub__(self, other: Arg) -> Value:
        return word("sub", other, self)

    def __mul__(self, other: Arg) -> Value:
        return word("mul", self, other)

    def __rmul__(self, other: Arg) -> Value:
        return word("mul", other, self)

    def __truediv__(self, other: Arg) -> Value:
        return word("div", self, other)

    def __rtruediv__(self, other: Arg) -> Value:
        return word("div", other, self)

    def __floordiv__(self, other: Arg) -> Value:
        return word("floordiv", self, other)

    def __rfloordiv__(self, other: Arg) -> Value:
        return word("floordiv", other, self)

    def __mod__(self, other: Arg) -> Value:
        return word("mod", self, other)

    def __and__(self, other: Arg) -> Value:
        return word("bit_and", self, other)

    def __or__(self, other: Arg) -> Value:
        return word("bit_or", self, other)

    def __lshift__(self, other: Arg) -> Value:
        return word("shl", self, other)

    def __rshift__(self, other: Arg) -> Value:
        return word("shr", self, other)

    def __lt__(self, other: Arg) -> Value:
        return word("lt", self, other)

    def __le__(self, other: Arg) -> Value:
        return word("le", self, other)

    def __gt__(self, other: Arg) -> Value:
        return word("lt", other, self)

    def __ge__(self, other: Arg) -> Value:
        return word("le", other, self)

    def equals(self, other: Arg) -> Value:
        """The comparison; `==` stays Python's own, so that values can be kept in sets."""
        return word("eq", self, other)

    def __neg__(self) -> Value:
        return word("neg", self)


Arg = Value | int | float | str
"""What an expression may be written as; a str is a dim or another name."""


def value(arg: Arg) -> Value:
    if isinstance(arg, Value):
        return arg
    return Value(Name(arg) if isinstance(arg, str) else Const(arg))


def word(name: str, *args: Arg) -> Value:
    """`name(args)`; with written numbers alone it is folded, so that the text stays short."""
    exprs = tuple(value(arg).expr for arg in args)
    folded = _fold(name, exprs)
    return Value(Op(name, exprs) if folded is None else folded)


def _fold(name: str, exprs: tuple[Expr, ...]) -> Expr | None:
    numbers = [expr.value for expr in exprs if isinstance(expr, Const)]
    whole = len(numbers) == len(exprs) and all(isinstance(n, int) for n in numbers)
    divides = name in ("floordiv", "mod") and whole and numbers[0] >= 0 and numbers[1] > 0
    if whole and (name in ("add", "sub", "mul", "minimum", "maximum") or divides):
        return Const(int(WORDS[name].meaning(*numbers)))
    if len(exprs) == 2:
        left, right = exprs
        if right == Const(0) and name in ("add", "sub") and not isinstance(left, Const):
            return left
        if left == Const(0) and name == "add" and not isinstance(right, Const):
            return right
        if right == Const(1) and name in ("mul", "floordiv"):
            return left
        if left == Const(1) and name == "mul":
            return right
    return None


def fill(number: Arg, dtype: Dtype, *shape: int) -> Value:
    return Value(Fill(value(number).expr, dtype, shape))


def fma(a: Arg, b: Arg, c: Arg) -> Value:
    """a b + c, rounded once where the machine can."""
    return word("fma", a, b, c)


def maximum(a: Arg, b: Arg) -> Value:
    return word("maximum", a, b)


def minimum(a: Arg, b: Arg) -> Value:
    return word("minimum", a, b)


def select(test: Arg, yes: Arg, no: Arg) -> Value:
    return word("select", test, yes, no)


def cast(dtype: Dtype, x: Arg) -> Value:
    return word(dtype, x)


def lane(count: int) -> Value:
    """i32 (count,): 0 .. count - 1."""
    return word("lane", count)


def sum_(x: Arg) -> Value:
    """Over the lanes; assign it to a name before it is used further."""
    return word("sum", x)


def max_(x: Arg) -> Value:
    return word("max", x)


class Reach:
    """A span in the making: see `span`."""

    def __init__(self, start: Arg, count: int, limit: Arg | None) -> None:
        self.span = Span(value(start).expr, count, None if limit is None else value(limit).expr)


def span(start: Arg, count: int, limit: Arg | None = None) -> Reach:
    """`count` places from `start`; lanes at and beyond `limit` are not touched."""
    return Reach(start, count, limit)


Index = Arg | Reach


class Memory:
    """A buffer: `x[i, span(j, 16)]` reads a tile, assigning to it writes one."""

    def __init__(self, build: Build, name: str) -> None:
        self._build = build
        self.name = name

    def at(self, index: Index | tuple[Index, ...]) -> Load:
        parts = index if isinstance(index, tuple) else (index,)
        places = tuple(part.span if isinstance(part, Reach) else value(part).expr for part in parts)
        return Load(self.name, places)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Value:
        return Value(self.at(index))

    def __setitem__(self, index: Index | tuple[Index, ...], what: Arg) -> None:
        self._build.add(Store(self.at(index), value(what).expr))


class Build:
    """Collects buffers and statements; `kernel()` checks and returns the program."""

    def __init__(self, name: str, dims: Sequence[str]) -> None:
        self.name = name
        self._dims = tuple(dims)
        self._buffers: list[Buffer] = []
        self._programs: dict[str, list[Stmt]] = {"prepare": [], "run": []}
        self._open: list[list[Stmt]] = []
        self._fresh = 0

    def dim(self, name: str) -> Value:
        return Value(Name(name))

    def buffer(self, name: str, dtype: Dtype, shape: Sequence[Arg], role: Role) -> Memory:
        sizes = tuple(value(size).expr for size in shape)
        self._buffers.append(Buffer(name, dtype, sizes, role))
        return Memory(self, name)

    def add(self, statement: Stmt) -> None:
        if not self._open:
            raise TileError(f"{self.name}: a statement outside prepare and run")
        self._open[-1].append(statement)

    def let(self, name: str, what: Arg) -> Value:
        """Assign, and give the name to build on."""
        self.add(Assign(name, value(what).expr))
        return Value(Name(name))

    def fresh(self, stem: str) -> str:
        """A name nobody has yet."""
        self._fresh += 1
        return f"{stem}_{self._fresh}"

    def check(self, test: Arg, code: int) -> None:
        self.add(Check(value(test).expr, code))

    def prefetch(self, memory: Memory, index: Index | tuple[Index, ...], cache: int = 2) -> None:
        self.add(Prefetch(memory.at(index), cache))

    @contextmanager
    def _into(self, block: list[Stmt]) -> Iterator[None]:
        self._open.append(block)
        try:
            yield
        finally:
            self._open.pop()

    @contextmanager
    def prepare(self) -> Iterator[None]:
        with self._into(self._programs["prepare"]):
            yield

    @contextmanager
    def run(self) -> Iterator[None]:
        with self._into(self._programs["run"]):
            yield

    @contextmanager
    def loop(
        self, var: str, start: Arg, stop: Arg, step: int = 1, *, unroll: int = 1
    ) -> Iterator[Value]:
        yield from self._loop(var, start, stop, step, False, unroll)

    @contextmanager
    def parallel(self, var: str, start: Arg, stop: Arg, step: int = 1) -> Iterator[Value]:
        yield from self._loop(var, start, stop, step, True, 1)

    def _loop(
        self, var: str, start: Arg, stop: Arg, step: int, parallel: bool, unroll: int
    ) -> Iterator[Value]:
        body: list[Stmt] = []
        with self._into(body):
            yield Value(Name(var))
        self.add(For(var, value(start).expr, value(stop).expr, step, tuple(body), parallel, unroll))

    @contextmanager
    def when(self, test: Arg) -> Iterator[None]:
        """The statements inside run when `test` holds."""
        body: list[Stmt] = []
        with self._into(body):
            yield
        self.add(If(value(test).expr, tuple(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Directly after a `when`: the statements for when its test fails."""
        before = self._open[-1].pop() if self._open and self._open[-1] else None
        if not isinstance(before, If) or before.other:
            raise TileError(f"{self.name}: otherwise without a when before it")
        body: list[Stmt] = []
        with self._into(body):
            yield
        self.add(If(before.test, before.then, tuple(body)))

    def kernel(self) -> Kernel:
        """The finished program. Raises `TileError` when it has no meaning."""
        done = Kernel(
            self.name,
            self._dims,
            tuple(self._buffers),
            tuple(self._programs["prepare"]),
            tuple(self._programs["run"]),
        )
        check(done)
        return done
