"""Types of a tile program: what every value is, and the reason when a program means nothing.

In: a kernel. Out: nothing, or `TileError` naming the place. `infer` gives the type of one
expression. Never here: sizes that vary; those are watched by the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from kernelgen.tile.ir import (
    DTYPES,
    ROLES,
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
    Span,
    Stmt,
    Store,
    TileError,
)
from kernelgen.tile.matrix import misfit
from kernelgen.tile.words import WORDS, Word

MOST_LANES = 256
MOST_ROWS = 64
ALONE = ("reduce", "turn", "matrix")
"""Kinds of words whose result needs a name before anything else is done with it."""
_OWN_NAME = "a sum, max, min, turn or matrix product needs a name of its own"


@dataclass(frozen=True)
class Type:
    """`shape` is (), (lanes,) or (rows, lanes). A weak type is a literal's: it yields to others."""

    dtype: Dtype
    shape: tuple[int, ...] = ()
    weak: bool = False

    @property
    def lanes(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) == 2 else 1


INDEX = Type("i64")
Env = Mapping[str, Type]


class Scope:
    """Names in reach, block by block. `barrier` marks the body of a parallel loop: what lies
    outside may be read there, not assigned.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._blocks: list[dict[str, Type]] = [dict.fromkeys(kernel.dims, INDEX)]
        self._fixed: list[set[str]] = [set(kernel.dims)]
        self._barriers: list[int] = []

    def enter(self, loop: str | None = None, *, parallel: bool = False) -> None:
        self._blocks.append({loop: INDEX} if loop else {})
        self._fixed.append({loop} if loop else set())
        if parallel:
            self._barriers.append(len(self._blocks) - 1)

    def leave(self) -> None:
        self._blocks.pop()
        self._fixed.pop()
        if self._barriers and self._barriers[-1] >= len(self._blocks):
            self._barriers.pop()

    def find(self, name: str) -> Type | None:
        for block in reversed(self._blocks):
            if name in block:
                return block[name]
        return None

    def assign(self, name: str, kind: Type) -> bool:
        """Enter an assignment; True when it declares the name. Raises `TileError`."""
        here = f"{self.kernel.name}: {name}"
        for depth in range(len(self._blocks) - 1, -1, -1):
            known = self._blocks[depth].get(name)
            if known is None:
                continue
            if name in self._fixed[depth]:
                raise TileError(f"{here}: a dim or loop variable cannot be assigned")
            if self._barriers and depth < self._barriers[-1]:
                raise TileError(f"{here}: assigned inside a parallel loop, declared outside it")
            if (known.dtype, known.shape) != (kind.dtype, kind.shape):
                raise TileError(f"{here}: holds {show(known)}, got {show(kind)}")
            return False
        if any(buffer.name == name for buffer in self.kernel.buffers):
            raise TileError(f"{here}: is a buffer, wanted another name")
        self._blocks[-1][name] = kind
        return True

    def infer(self, expr: Expr) -> Type:
        return infer(expr, self)


def show(kind: Type) -> str:
    return f"{kind.dtype}[{', '.join(map(str, kind.shape))}]" if kind.shape else kind.dtype


def infer(expr: Expr, scope: Scope) -> Type:
    """The type of `expr`. Raises `TileError` naming word, types got and what was wanted."""
    here = scope.kernel.name
    match expr:
        case Const(value):
            if value != value or abs(value) == float("inf"):
                raise TileError(f"{here}: {value}: a written number must be finite")
            return Type("f32" if isinstance(value, float) else "i64", (), weak=True)
        case Name(name):
            found = scope.find(name)
            if found is None:
                raise TileError(f"{here}: {name} is not assigned here")
            return found
        case Fill(value, dtype, shape):
            _check_shape(here, dtype, shape)
            kind = infer(value, scope)
            if kind.shape or not (kind.dtype == dtype or kind.weak):
                raise TileError(f"{here}: fill wants one {dtype}, got {show(kind)}")
            return Type(dtype, shape)
        case Load():
            return place(expr, scope)
        case Op(word, args):
            if word not in WORDS:
                raise TileError(f"{here}: unknown word {word!r}, there are {', '.join(WORDS)}")
            return _word(here, WORDS[word], [infer(arg, scope) for arg in args], expr)
    raise TileError(f"{here}: {expr!r} is no expression")


def place(load: Load, scope: Scope) -> Type:
    """The tile that `load` names, read or written."""
    buffer = scope.kernel.buffer(load.buffer)
    here = f"{scope.kernel.name}: {load.buffer}"
    if len(load.index) != len(buffer.shape):
        raise TileError(f"{here}: {len(load.index)} indices, wanted {len(buffer.shape)}")
    shape: list[int] = []
    spans = [at for at in load.index if isinstance(at, Span)]
    for at in load.index:
        for part in (at.start, at.limit) if isinstance(at, Span) else (at,):
            if part is not None and (infer(part, scope).shape or infer(part, scope).dtype != "i64"):
                raise TileError(f"{here}: an index must be one i64")
        if isinstance(at, Span):
            shape.append(at.count)
            if at.limit is not None and at is not spans[-1]:
                raise TileError(f"{here}: only the lanes, the last span, may have a limit")
    _check_shape(here, buffer.dtype, tuple(shape))
    return Type(buffer.dtype, tuple(shape))


def _check_shape(here: str, dtype: str, shape: tuple[int, ...]) -> None:
    if dtype not in DTYPES:
        raise TileError(f"{here}: dtype {dtype!r}, wanted one of {', '.join(DTYPES)}")
    if len(shape) > 2:
        raise TileError(f"{here}: a tile of {len(shape)} axes, wanted at most 2")
    lanes, rows = (shape[-1] if shape else 1), (shape[0] if len(shape) == 2 else 1)
    if not 1 <= lanes <= MOST_LANES or not 1 <= rows <= MOST_ROWS:
        raise TileError(
            f"{here}: tile {shape}, wanted 1 to {MOST_ROWS} rows of 1 to {MOST_LANES} lanes"
        )


def _word(here: str, word: Word, kinds: list[Type], expr: Op) -> Type:
    got = ", ".join(map(show, kinds))
    where = f"{here}: {word.name}({got})"
    if len(kinds) != word.arity:
        raise TileError(f"{where}: wanted {word.arity} arguments")
    if word.kind == "lane":
        count = expr.args[0]
        if not isinstance(count, Const) or not isinstance(count.value, int) or count.value < 2:
            raise TileError(f"{where}: wanted a written number of 2 or more")
        _check_shape(where, "i32", (count.value,))
        return Type("i32", (count.value,))
    if word.kind == "dot4":
        acc, a, w = kinds
        fits = acc.lanes * 4 == w.lanes and a.shape == (acc.rows, 4) and len(w.shape) == 1
        either = ("u8",) if word.name == "dot4" else ("u8", "i8")
        if (acc.dtype, w.dtype) != ("i32", word.dtypes[2]) or a.dtype not in either or not fits:
            wanted = f"i32[rows, n], {' or '.join(either)}[rows, 4], {word.dtypes[2]}[4 n]"
            raise TileError(f"{where}: wanted {wanted}")
        return acc
    if word.kind in ("cast", "bits"):
        _wanted(where, word, kinds)
        to = {"bits": "i32", "from_bits": "f32"}.get(word.name, word.name)
        return Type(to, kinds[0].shape)  # type: ignore[arg-type]
    if word.kind == "matrix":
        reason = misfit(word.name, *((kind.dtype, kind.shape) for kind in kinds))
        if reason is not None:
            raise TileError(f"{where}: {reason}")
        return kinds[0]
    if word.kind == "reduce":
        _wanted(where, word, kinds)
        rows, lanes = kinds[0].shape[:-1], kinds[0].shape
        if not lanes:
            raise TileError(f"{where}: wanted lanes")
        return Type(kinds[0].dtype, (*rows, 1) if rows else ())
    if word.kind == "turn":
        _wanted(where, word, kinds)
        if len(kinds[0].shape) != 2:
            raise TileError(f"{where}: wanted rows of lanes")
        rows_in, lanes_of = kinds[0].shape
        turned = (rows_in,) if word.name == "row_sums" else (lanes_of, rows_in)
        _check_shape(where, kinds[0].dtype, turned)
        return Type(kinds[0].dtype, turned)
    if word.kind == "shuffle":
        _wanted(where, word, kinds)
        if any(kind.shape != kinds[0].shape or len(kind.shape) != 1 for kind in kinds):
            raise TileError(f"{where}: wanted equal rows of lanes")
        lanes_in = kinds[0].lanes
        if word.name == "zip":
            return Type(kinds[0].dtype, (2 * lanes_in,))
        if lanes_in % 2:
            raise TileError(f"{where}: wanted an even number of lanes")
        if word.name == "swap":
            return kinds[0]
        return Type(kinds[0].dtype, (lanes_in // 2,))
    if word.name == "select":
        if kinds[0].dtype != "bool":
            raise TileError(f"{where}: wanted a bool first")
        one = _same(where, word, kinds[1:])
        return replace(one, shape=_broadcast(where, kinds))
    one = _same(where, word, kinds)
    shape = _broadcast(where, kinds)
    if word.kind == "compare":
        return Type("bool", shape)
    return replace(one, shape=shape)


def _wanted(where: str, word: Word, kinds: Iterable[Type]) -> None:
    if any(kind.dtype not in word.dtypes for kind in kinds):
        raise TileError(f"{where}: wanted {' or '.join(word.dtypes)}")


def _same(where: str, word: Word, kinds: list[Type]) -> Type:
    """The one dtype of all strong arguments; literals follow it."""
    strong = {kind.dtype for kind in kinds if not kind.weak}
    if len(strong) > 1:
        raise TileError(f"{where}: dtypes differ, wanted one; cast what should follow")
    if not strong:
        weak = {kind.dtype for kind in kinds}
        dtype: Dtype = "f32" if "f32" in weak else "i64"
        _wanted(where, word, [Type(dtype)])
        return Type(dtype, (), weak=True)
    (dtype,) = strong
    if dtype != "f32" and any(kind.weak and kind.dtype == "f32" for kind in kinds):
        raise TileError(f"{where}: a fraction meets {dtype}")
    _wanted(where, word, [Type(dtype)])
    return Type(dtype)


def _broadcast(where: str, kinds: Iterable[Type]) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for kind in kinds:
        longer, shorter = (
            (shape, kind.shape) if len(shape) >= len(kind.shape) else (kind.shape, shape)
        )
        padded = (1,) * (len(longer) - len(shorter)) + shorter
        if any(a != b and 1 not in (a, b) for a, b in zip(longer, padded, strict=True)):
            raise TileError(f"{where}: shapes do not broadcast")
        shape = tuple(max(a, b) for a, b in zip(longer, padded, strict=True))
    return shape


def check(kernel: Kernel) -> None:
    """Raises `TileError` unless every statement of `kernel` has a meaning."""
    names = [*kernel.dims, *(buffer.name for buffer in kernel.buffers)]
    for name in names:
        if not name.isidentifier() or names.count(name) > 1:
            raise TileError(f"{kernel.name}: name {name!r}, wanted an identifier used once")
    for buffer in kernel.buffers:
        _buffer(kernel, buffer)
    _block(Scope(kernel), kernel.prepare, reads=("weight", "packed"), writes=("packed",))
    _block(
        Scope(kernel),
        kernel.run,
        reads=("input", "packed", "local", "private", "output"),
        writes=("local", "private", "output"),
    )


def _buffer(kernel: Kernel, buffer: Buffer) -> None:
    if buffer.role not in ROLES or buffer.dtype not in get_args(Dtype) or buffer.dtype == "bool":
        raise TileError(f"{kernel.name}: buffer {buffer.name}: role or dtype unknown")
    for size in buffer.shape:
        if Scope(kernel).infer(size) not in (INDEX, Type("i64", (), weak=True)):
            raise TileError(f"{kernel.name}: buffer {buffer.name}: a size must be one i64")
        if buffer.role in ("packed", "weight") and not isinstance(size, Const):
            raise TileError(f"{kernel.name}: buffer {buffer.name}: sizes of weights are numbers")


def _block(
    scope: Scope, block: tuple[Stmt, ...], *, reads: tuple[str, ...], writes: tuple[str, ...]
) -> None:
    name = scope.kernel.name
    for statement in block:
        match statement:
            case Assign(target, value):
                _reads(scope, value, reads)
                kind = scope.infer(value)
                if isinstance(value, Op) and WORDS[value.word].kind in ALONE:
                    pass
                elif _has_reduce(value):
                    raise TileError(f"{name}: {target}: {_OWN_NAME}")
                scope.assign(target, replace(kind, weak=False))
            case Store(target, value):
                _reads(scope, value, reads)
                if scope.kernel.buffer(target.buffer).role not in writes:
                    raise TileError(f"{name}: {target.buffer} cannot be written here")
                want, kind = place(target, scope), scope.infer(value)
                if _has_reduce(value):
                    raise TileError(f"{name}: {target.buffer}: {_OWN_NAME}")
                if kind.dtype != want.dtype and not (
                    kind.weak and not (kind.dtype == "f32" and want.dtype != "f32")
                ):
                    raise TileError(f"{name}: {target.buffer} holds {want.dtype}, got {show(kind)}")
                if _broadcast(f"{name}: {target.buffer}", [want, kind]) != want.shape:
                    raise TileError(f"{name}: {target.buffer}: {show(kind)} into {show(want)}")
            case For(var, start, stop, step, body, parallel, unroll):
                for bound in (start, stop):
                    _reads(scope, bound, reads)
                    _scalar(scope, bound, "i64", f"bound of {var}")
                if step < 1 or not 1 <= unroll <= 64:
                    raise TileError(
                        f"{name}: loop {var}: step {step}, unroll {unroll}, wanted 1 up"
                    )
                if scope.find(var) is not None or not var.isidentifier():
                    raise TileError(f"{name}: loop variable {var!r} is taken or no name")
                scope.enter(var, parallel=parallel)
                _block(scope, body, reads=reads, writes=writes)
                scope.leave()
            case If(test, then, other):
                _reads(scope, test, reads)
                _scalar(scope, test, "bool", "test")
                for branch in (then, other):
                    scope.enter()
                    _block(scope, branch, reads=reads, writes=writes)
                    scope.leave()
            case Check(test, code):
                _reads(scope, test, reads)
                _scalar(scope, test, "bool", "check")
                if "output" not in writes or code < 1:
                    raise TileError(f"{name}: check: only in run, with a code of 1 or more")
            case Prefetch(target):
                place(target, scope)


def _scalar(scope: Scope, expr: Expr, dtype: str, what: str) -> None:
    kind = scope.infer(expr)
    if kind.shape or kind.dtype != dtype:
        raise TileError(f"{scope.kernel.name}: {what}: wanted one {dtype}, got {show(kind)}")


def _reads(scope: Scope, expr: Expr, allowed: tuple[str, ...]) -> None:
    for load in loads(expr):
        role = scope.kernel.buffer(load.buffer).role
        if role not in allowed:
            raise TileError(f"{scope.kernel.name}: {load.buffer} ({role}) cannot be read here")


def loads(expr: Expr) -> Iterable[Load]:
    """Every load inside `expr`, those in indices too."""
    match expr:
        case Load(_, index):
            yield expr
            for at in index:
                parts = (at.start, at.limit) if isinstance(at, Span) else (at,)
                for part in parts:
                    if part is not None:
                        yield from loads(part)
        case Fill(value, _, _):
            yield from loads(value)
        case Op(_, args):
            for arg in args:
                yield from loads(arg)


def _has_reduce(expr: Expr) -> bool:
    match expr:
        case Op(word, args):
            return WORDS[word].kind in ALONE or any(map(_has_reduce, args))
        case Fill(value, _, _):
            return _has_reduce(value)
    return False
