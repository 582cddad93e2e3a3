"""Tile programs in C: named buffers, one small loop over rows and vectors per assignment.

In: a kernel and the vector width in lanes. Out: the four functions of an operator (see
`kernelgen.emit.part`); `P_run` takes all outputs. Never here: a choice; what is unrolled, packed or
blocked is in the program.

A value of (rows, lanes) becomes `f32x16 acc[rows][lanes / 16]`; the loops over it have written
bounds, so the compiler keeps it in registers. The memory a program names is the memory the C
touches: bounds and races are shown by the interpreter and again by the judge's guard pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from kernelgen.emit.matrix import RELEASE, Unit
from kernelgen.emit.part import fill
from kernelgen.emit.values import BYTES, C_TYPE, Values
from kernelgen.schedule.schedule import ScheduleError
from kernelgen.tile.check import Scope, Type, check, place
from kernelgen.tile.ir import (
    Assign,
    Buffer,
    Check,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Name,
    Op,
    Prefetch,
    Stmt,
    Store,
)
from kernelgen.tile.text import show
from kernelgen.tile.words import WORDS

_FUNCTIONS = """
static int64_t ${p}_packed_floats(void) { return ${packed}; }
static int64_t ${p}_scratch_floats(const int64_t *arg_dim) {
${dims}  return ${scratch};
}
static void ${p}_pack(const void *const *arg_weight, float *arg_packed) {
  (void)arg_weight, (void)arg_packed;
${pack}}
static int ${p}_run(const void *const *arg_in, void *const *arg_out, const int64_t *arg_dim,
                    const float *arg_packed, float *arg_scratch) {
  (void)arg_in, (void)arg_out, (void)arg_packed, (void)arg_scratch;
${run}  return 0;
}
"""


TAKEN = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "asm",
        "typeof",
        "row",
        "vec",
        "lane",
        "whole",
    ]
)
"""C's own words and the loop counters of this emitter; a program's names must be others."""


class Writer(Values):
    """The C of one kernel in the making."""

    def __init__(self, kernel: Kernel, vector: int) -> None:
        check(kernel)
        for name in _names(kernel):
            if name in TAKEN or name.startswith(("arg_", "all_")) or name.endswith("_t"):
                raise ScheduleError(f"{kernel.name}: {name!r} is taken in C, wanted another name")
        super().__init__(kernel, vector)
        self._out: list[str] = []
        self._pad = "  "

    # ---- text ----------------------------------------------------------------------------------

    def text(self, prefix: str) -> str:
        """The four functions of the kernel, their names beginning with `prefix`."""
        return fill(
            _FUNCTIONS,
            p=prefix,
            dims=self._dims(),
            packed=self._total("packed"),
            scratch=self._total("local", "private"),
            pack=self._program(self.kernel.prepare, "weight", "packed"),
            run=self._dims()
            + self._program(self.kernel.run, "input", "output", "packed", "local", "private"),
        )

    def _dims(self) -> str:
        if not self.kernel.dims:
            return "  (void)arg_dim;\n"
        lines = [
            f"  const int64_t {dim} = arg_dim[{i}];\n  (void){dim};\n"
            for i, dim in enumerate(self.kernel.dims)
        ]
        return "".join(lines)

    def _total(self, *roles: str) -> str:
        sizes = [self._floats(buffer) for buffer in self.kernel.buffers if buffer.role in roles]
        return " + ".join(sizes) or "0"

    def _floats(self, buffer: Buffer) -> str:
        """Size in floats, rounded up to 16 so that everything begins on a cache line."""
        known = [size.value for size in buffer.shape if isinstance(size, Const)]
        if len(known) == len(buffer.shape):
            return str(-(-int(prod(known)) * BYTES[buffer.dtype] // 64) * 16)
        count = " * ".join(f"({self._scalar(size)})" for size in buffer.shape)
        return f"(({count}) * {BYTES[buffer.dtype]} + 63) / 64 * 16"

    def _program(self, block: tuple[Stmt, ...], *roles: str) -> str:
        self._out, self._scope = [], Scope(self.kernel)
        self._unit = Unit(self.kernel, block)
        used = {load.buffer for load in _touched(block)}
        place_of = {"input": "arg_in", "weight": "arg_weight", "output": "arg_out"}
        count: dict[str, int] = {}
        before: dict[str, list[str]] = {"arg_packed": [], "arg_scratch": []}
        for buffer in self.kernel.buffers:
            number = count.get(buffer.role, 0)
            count[buffer.role] = number + 1
            read_only = buffer.role in ("input", "weight") or (
                buffer.role == "packed" and "packed" in roles and "input" in roles
            )
            const = "const " if read_only else ""
            if buffer.role in place_of:
                origin = f"{place_of[buffer.role]}[{number}]"
            else:
                area = "arg_packed" if buffer.role == "packed" else "arg_scratch"
                origin = f"(void *)({' + '.join((area, *before[area]))})"
                before[area].append(self._floats(buffer))
            if buffer.role in roles and buffer.name in used:
                kind = C_TYPE[buffer.dtype]
                self._line(f"{const}{kind} *restrict {buffer.name} = {origin};")
        self._block(block)
        return "".join(self._out)

    def _line(self, text: str) -> None:
        self._out.append(f"{self._pad}{text}\n")

    @contextmanager
    def _braces(self, head: str) -> Iterator[None]:
        self._line(f"{head} {{")
        self._pad += "  "
        yield
        self._pad = self._pad[:-2]
        self._line("}")

    # ---- statements ----------------------------------------------------------------------------

    def _block(self, block: tuple[Stmt, ...]) -> None:
        first, last = self._unit.span(block) or (-1, -1)
        for at, statement in enumerate(block):
            if at == first:
                for line in self._unit.configure():
                    self._line(line)
            self._statement(statement)
            if at == last:
                self._line(self._unit.release())

    def _statement(self, statement: Stmt) -> None:
        match statement:
            case Assign(name, value):
                self._assign(name, value)
            case Store(target, value):
                self._store(target, value)
            case For(var, start, stop, step, body, parallel, unroll):
                if unroll > 1:
                    self._line(f"#pragma GCC unroll {unroll}")
                if parallel:
                    self._line("/* Turns are independent of each other. */")
                first, last = self._scalar(start), self._scalar(stop)
                turn = f"{var}++" if step == 1 else f"{var} += {step}"
                with self._braces(f"for (int64_t {var} = {first}; {var} < {last}; {turn})"):
                    self._scope.enter(var, parallel=parallel)
                    self._block(body)
                    self._scope.leave()
            case If(test, then, other):
                with self._braces(f"if ({self._scalar(test)})"):
                    self._branch(then)
                if other:
                    with self._braces("else"):
                        self._branch(other)
            case Check(test, code):
                leave = f"return {code};"
                if self._unit.in_use:
                    leave = f"{{ {RELEASE} {leave} }}"
                self._line(f"if (!({self._scalar(test)})) {leave}")
            case Prefetch(target, cache):
                pointer, _, _ = self._address(target, "0", "0", 1)
                self._line(f"__builtin_prefetch({pointer}, 0, {4 - cache});")

    def _branch(self, block: tuple[Stmt, ...]) -> None:
        self._scope.enter()
        self._block(block)
        self._scope.leave()

    def _assign(self, name: str, value: Expr) -> None:
        kind = self._scope.infer(value)
        kind = Type(kind.dtype, kind.shape)
        if name in self._unit.names:
            self._scope.assign(name, kind)
            self._line(self._tile(name, value))
            return
        if self._scope.assign(name, kind):
            self._line(f"{self._declared(kind)} {name}{self._sizes(kind)};")
        if isinstance(value, Op) and WORDS[value.word].kind == "reduce":
            self._reduce(name, value)
            return
        if isinstance(value, Op) and WORDS[value.word].kind == "turn":
            self._turn(name, value)
            return
        with self._each(kind) as (r, c):
            self._line(
                f"{self._at(name, kind, r, c)} = {self._vector(value, r, c, self._chunk(kind))};"
            )

    def _reduce(self, name: str, value: Op) -> None:
        (inner,) = value.args
        kind = self._scope.infer(inner)
        lanes = self._chunk(kind)
        vectors = kind.lanes // lanes
        word, v = value.word, f"{kind.dtype}x{lanes}"
        with self._rows(kind) as r:
            target = self._at(name, Type(kind.dtype, (kind.rows, 1)), r, "0")
            if lanes == 1:
                self._line(f"{target} = {self._vector(inner, r, '0', 1)};")
                return
            self._line(f"{v} all_{name} = {self._vector(inner, r, '0', lanes)};")
            for c in range(1, vectors):
                one = self._vector(inner, r, str(c), lanes)
                joined = (
                    f"all_{name} + {one}" if word == "sum" else f"{word}_{v}(all_{name}, {one})"
                )
                self._line(f"all_{name} = {joined};")
            self._line(f"{target} = {word}_of_{v}(all_{name});")

    def _turn(self, name: str, value: Op) -> None:
        (inner,) = value.args
        kind = self._scope.infer(inner)
        lanes, word = self._chunk(kind), value.word
        square = kind.rows == lanes if word == "row_sums" else kind.shape == (lanes, lanes)
        if not square or lanes == 1:
            raise ScheduleError(
                f"{self.kernel.name}: {word} of {kind.rows} rows of {kind.lanes}: wanted as many "
                f"rows as one vector has lanes, here {lanes}"
            )
        self.turns.add((word, kind.dtype, lanes))
        v = f"{kind.dtype}x{lanes}"
        with self._braces(""):
            self._line(f"{v} all_{name}[{lanes}];")
            with self._rows(kind) as r:
                parts = (self._vector(inner, r, str(c), lanes) for c in range(kind.lanes // lanes))
                self._line(f"all_{name}[{r}] = {' + '.join(parts)};")
            if word == "row_sums":
                self._line(f"{name} = row_sums_{v}(all_{name});")
            else:
                self._line(f"transpose_{v}(all_{name}, {name});")

    def _store(self, target: Load, value: Expr) -> None:
        if isinstance(value, Name) and value.name in self._unit.names:
            self._line(f"MATRIX_STORE({self._in_unit(value.name)}, {self._tile_place(target)});")
            return
        kind = place(target, self._scope)
        lanes = self._chunk(kind)
        with self._each(kind) as (r, c):
            pointer, stride, limit = self._address(target, r, c, lanes)
            text = self._vector(value, r, c, lanes)
            v = f"{kind.dtype}x{lanes}"
            if lanes == 1:
                guard = f"if ({limit} > 0) " if limit else ""
                self._line(f"{guard}*({pointer}) = {text};")
            elif stride != "1":
                with self._braces(""):
                    self._line(f"const {v} whole = {text};")
                    bound = f"{lanes} && lane < ({limit})" if limit else str(lanes)
                    self._line("#pragma GCC unroll 64")
                    self._line(
                        f"for (int lane = 0; lane < {bound}; lane++) "
                        f"({pointer})[lane * ({stride})] = whole[lane];"
                    )
            elif limit:
                self._line(f"store_upto_{v}({pointer}, {limit}, {text});")
            else:
                self._line(f"store_{v}({pointer}, {text});")

    # ---- loops over a tile ---------------------------------------------------------------------

    @contextmanager
    def _rows(self, kind: Type) -> Iterator[str]:
        if kind.rows == 1:
            with self._braces(""):
                yield "0"
            return
        self._line("#pragma GCC unroll 64")
        with self._braces(f"for (int row = 0; row < {kind.rows}; row++)"):
            yield "row"

    @contextmanager
    def _each(self, kind: Type) -> Iterator[tuple[str, str]]:
        vectors = kind.lanes // self._chunk(kind)
        pad = self._pad
        if kind.rows > 1:
            self._line("#pragma GCC unroll 64")
            self._line(f"for (int row = 0; row < {kind.rows}; row++)")
            self._pad += "  "
        if vectors > 1:
            self._line("#pragma GCC unroll 64")
            self._line(f"for (int vec = 0; vec < {vectors}; vec++)")
            self._pad += "  "
        yield ("row" if kind.rows > 1 else "0"), ("vec" if vectors > 1 else "0")
        self._pad = pad


def _names(kernel: Kernel) -> Iterator[str]:
    yield from kernel.dims
    yield from (buffer.name for buffer in kernel.buffers)
    for block in (kernel.prepare, kernel.run):
        yield from _named(block)


def _named(block: tuple[Stmt, ...]) -> Iterator[str]:
    for statement in block:
        match statement:
            case Assign(name, _):
                yield name
            case For(var, _, _, _, body):
                yield var
                yield from _named(body)
            case If(_, then, other):
                yield from _named(then)
                yield from _named(other)


def _touched(block: tuple[Stmt, ...]) -> Iterator[Load]:
    """Every place that a block reads or writes."""
    from kernelgen.tile.check import loads

    for statement in block:
        match statement:
            case Assign(_, value):
                yield from loads(value)
            case Store(target, value):
                yield from loads(target)
                yield from loads(value)
            case For(_, start, stop, _, body):
                yield from loads(start)
                yield from loads(stop)
                yield from _touched(body)
            case If(test, then, other):
                yield from loads(test)
                yield from _touched(then)
                yield from _touched(other)
            case Check(test, _):
                yield from loads(test)
            case Prefetch(target):
                yield from loads(target)


def describe(kernel: Kernel) -> str:
    """One line per buffer, for the comment above the functions."""
    return "\n".join(
        f"     {b.role:8} {b.name}: {b.dtype}[{', '.join(map(show, b.shape))}]"
        for b in kernel.buffers
    )
