"""The tile IR: a kernel is a short program over small tiles of numbers, and this page is all of it.

In: nothing. Out: the nodes. Never here: what a machine does with them.

A value is a scalar, a row of lanes (n,) or a tile (rows, lanes), always of fixed size; only buffers
have sizes that vary. Values are assigned to names; a name assigned again inside a loop carries its
value from one turn to the next. Loops are counted, so every program ends. Memory is reached only
through buffers:

    input, weight   read by the program, never written
    packed          written by `prepare` from the weights, read by `run`
    local           scratch shared by the whole run
    private         scratch of one turn of the outermost parallel loop, unset when the turn begins
    output          written by `run`, every element

`kernelgen.tile.text` prints a kernel and reads it back; `check` types it; `interpret` runs it in
NumPy with bounds, unset values and races watched; `kernelgen.emit.c` turns it into C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dtype = Literal["f32", "i32", "i64", "i8", "u8", "bool"]
Role = Literal["input", "weight", "packed", "local", "private", "output"]

DTYPES: tuple[Dtype, ...] = ("f32", "i32", "i64", "i8", "u8", "bool")
ROLES: tuple[Role, ...] = ("input", "weight", "packed", "local", "private", "output")


class TileError(ValueError):
    """A program that means nothing: the place, what was got and what was wanted."""


# ---- values -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Const:
    """A number. It takes the dtype of what it meets; alone, an int is i64 and a float f32."""

    value: int | float


@dataclass(frozen=True)
class Name:
    """A dim, a loop variable or an assigned value."""

    name: str


@dataclass(frozen=True)
class Fill:
    """A tile of `shape` whose every lane is the scalar `value`."""

    value: Expr
    dtype: Dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """`count` places from `start` on. Lanes at and beyond `limit` are not touched; they read as
    zero.
    """

    start: Expr
    count: int
    limit: Expr | None = None


@dataclass(frozen=True)
class Load:
    """A tile out of a buffer: one index per axis; axes with a `Span` stay, single places go."""

    buffer: str
    index: tuple[Expr | Span, ...]


@dataclass(frozen=True)
class Op:
    """A word of `kernelgen.tile.words` on its arguments, lane by lane, shapes broadcast."""

    word: str
    args: tuple[Expr, ...]


Expr = Const | Name | Fill | Load | Op


# ---- statements -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assign:
    """`name` holds `value` from here to the end of the block it was first assigned in."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Store:
    target: Load
    value: Expr


@dataclass(frozen=True)
class For:
    """`var` = start, start + step, ... below stop. Turns of a `parallel` loop may run in any
    order or at once. `unroll` is a wish to the compiler and changes no meaning.
    """

    var: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Stmt, ...]
    parallel: bool = False
    unroll: int = 1


@dataclass(frozen=True)
class If:
    test: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@dataclass(frozen=True)
class Check:
    """Ends the run with `code` (see `kernelgen.emit.part.ERRORS`) unless `test` holds: how a
    program meets data that it would follow out of a buffer.
    """

    test: Expr
    code: int


@dataclass(frozen=True)
class Prefetch:
    """A wish to have the place at hand soon, in the first or the second `cache`; changes no meaning
    and may point anywhere.
    """

    target: Load
    cache: int = 2


Stmt = Assign | Store | For | If | Check | Prefetch


# ---- programs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Buffer:
    """Row-major memory; `shape` may use the kernel's dims."""

    name: str
    dtype: Dtype
    shape: tuple[Expr, ...]
    role: Role


@dataclass(frozen=True)
class Kernel:
    """`prepare` packs the weights once; `run` is one call. `dims` in the operator's order."""

    name: str
    dims: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    prepare: tuple[Stmt, ...]
    run: tuple[Stmt, ...]

    def buffer(self, name: str) -> Buffer:
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        known = ", ".join(buffer.name for buffer in self.buffers)
        raise TileError(f"{self.name}: no buffer {name!r}, there are {known}")

    def by_role(self, *roles: Role) -> tuple[Buffer, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.role in roles)
