"""Random tile programs, most of them legal, for holding the interpreter against compiled C."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

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
    Span,
    Stmt,
    Store,
)

COLUMNS = 24
INDEX = Op
INPUTS: tuple[tuple[str, Dtype], ...] = (("xf", "f32"), ("xi", "i32"), ("xb", "i8"), ("xu", "u8"))
SHAPES = ((), (1,), (2,), (4,), (8,), (16,), (2, 1), (3, 8), (2, 16), (5, 4))
LANES = {"f32": SHAPES, "i32": SHAPES}


@dataclass
class Growing:
    """A program in the making: its names by type, the loops it stands in."""

    draw: st.DrawFn
    values: list[tuple[str, Dtype, tuple[int, ...]]] = field(default_factory=list)
    loops: list[tuple[str, str]] = field(default_factory=list)
    fixed: int = 0
    count: int = 0
    parallel: bool = False

    def pick(self, *of: object) -> object:
        return self.draw(st.sampled_from(of))

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # ---- indices -------------------------------------------------------------------------------

    def row(self, rows: int) -> Expr:
        """An index whose `rows` places often lie in [0, m)."""
        turns = [Name(name) for name, axis in self.loops if axis == "m"]
        choices: list[Expr] = [*turns] * 3
        choices.append(Op("sub", (Name("m"), Const(rows))))
        choices.append(Const(0))
        if turns:
            choices.append(Op("mod", (Op("add", (turns[0], Const(1))), Name("m"))))
            choices.append(Op("minimum", (turns[0], Op("sub", (Name("m"), Const(rows))))))
        choices.append(Op("mod", (Load("xp", (Const(0),)), Name("m"))))
        return self.draw(st.sampled_from(choices))

    def column(self, lanes: int) -> Expr | Span:
        """Where a run of lanes begins, at times cut off at the end of the row."""
        starts: list[Expr] = [Const(0), Const(3), Const(COLUMNS - lanes)]
        starts += [Name(name) for name, axis in self.loops if axis == "n"] * 4
        start = self.draw(st.sampled_from(starts))
        limit = Op("sub", (Const(COLUMNS), start)) if self.draw(st.booleans()) else None
        return Span(start, lanes, limit)

    def place(self, buffer: str, shape: tuple[int, ...]) -> Load:
        if buffer in ("u", "w"):  # one row only
            if not shape:
                return Load(buffer, (self.draw(st.sampled_from([Const(0), Const(5)])),))
            return Load(buffer, (self.column(shape[-1]),))
        if len(shape) == 2:
            return Load(buffer, (Span(self.row(shape[0]), shape[0]), self.column(shape[1])))
        if shape and self.draw(st.integers(0, 4)) == 0:  # down a column
            return Load(buffer, (Span(self.row(shape[0]), shape[0]), Const(2)))
        if shape:
            return Load(buffer, (self.row(1), self.column(shape[0])))
        return Load(buffer, (self.row(1), Const(1)))

    # ---- values --------------------------------------------------------------------------------

    def value(self, dtype: Dtype, shape: tuple[int, ...], depth: int) -> Expr:
        known = [name for name, kind, size in self.values if kind == dtype and size == shape]
        if known and self.draw(st.integers(0, 2)) > 0:
            return Name(self.draw(st.sampled_from(known)))
        kind = self.draw(st.integers(0, 9)) if depth > 0 else self.draw(st.integers(0, 2))
        if kind <= 2:
            return self.leaf(dtype, shape)
        if kind <= 5:
            words = ("add", "sub", "maximum", "minimum", "mul")
            word = self.draw(st.sampled_from(words))
            if word == "mul":  # of leaves alone, so that sums stay small
                return Op("mul", (self.leaf(dtype, shape), self.leaf(dtype, self.narrow(shape))))
            pair = [self.value(dtype, shape, depth - 1), self.value(dtype, self.narrow(shape), 0)]
            return Op(word, tuple(pair if self.draw(st.booleans()) else reversed(pair)))
        if kind == 6:
            test = Op(
                str(self.pick("lt", "le", "eq")),
                (self.value(dtype, shape, 0), self.value(dtype, self.narrow(shape), 0)),
            )
            yes, no = (self.value(dtype, shape, depth - 1) for _ in range(2))
            return Op("select", (test, yes, no))
        if kind == 7 and dtype == "f32":
            a, b = self.leaf(dtype, shape), self.leaf(dtype, self.narrow(shape))
            return Op("fma", (a, b, self.value(dtype, shape, depth - 1)))
        if kind == 7 and dtype == "i32" and len(shape) == 1 and shape[0] > 1:
            return Op("add", (Op("lane", (Const(shape[0]),)), self.value(dtype, (), depth - 1)))
        if kind == 8 and len(shape) == 1 and 1 < shape[0] <= 8:
            wide = self.value(dtype, (2 * shape[0],), depth - 1)
            return Op(str(self.pick("even", "odd")), (wide,))
        if kind == 8 and len(shape) == 1 and shape[0] in (4, 8):
            half = (shape[0] // 2,)
            return Op("zip", (self.value(dtype, half, 0), self.value(dtype, half, 0)))
        return Op("neg", (self.value(dtype, shape, depth - 1),))

    def narrow(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        options = [shape, ()]
        if len(shape) == 2:
            options += [(shape[0], 1), (shape[1],)]
        return self.draw(st.sampled_from(options))

    def leaf(self, dtype: Dtype, shape: tuple[int, ...]) -> Expr:
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            number = Const(self.draw(st.integers(-3, 3)))
            value = Const(float(number.value)) if dtype == "f32" else number
            return Fill(value, dtype, shape) if shape else Op(dtype, (value,))
        if kind == 1:
            return Op(dtype, (self.place(str(self.pick("xb", "xu")), shape),))
        if kind == 2 and self.fixed:
            buffer = "w" if dtype == "f32" else "xi"
            return self.place(buffer, shape if buffer == "xi" or len(shape) < 2 else shape[1:])
        return self.place("xf" if dtype == "f32" else "xi", shape)

    # ---- statements ----------------------------------------------------------------------------

    def block(self, depth: int, most: int) -> tuple[Stmt, ...]:
        before = len(self.values)
        statements: list[Stmt] = []
        for _ in range(self.draw(st.integers(1, most))):
            statements += self.statement(depth)
        del self.values[before:]
        return tuple(statements)

    def statement(self, depth: int) -> list[Stmt]:
        kind = self.draw(st.integers(0, 10))
        if kind == 10:
            return self.product()
        dtype: Dtype = self.draw(st.sampled_from(("f32", "i32")))
        shape = self.draw(st.sampled_from(SHAPES))
        if kind <= 2:
            name = self.fresh("v")
            value = self.value(dtype, shape, 2)
            self.values.append((name, dtype, shape))
            return [Assign(name, value)]
        if kind == 3 and self.values:
            name, dtype, shape = self.draw(st.sampled_from(self.values))
            if self.parallel:
                return []
            return [Assign(name, self.value(dtype, shape, 2))]
        if kind == 4 and len(shape) > 0:
            name = self.fresh("s")
            word = str(self.pick("sum", "max", "min"))
            value = Op(word, (self.value(dtype, shape, 1),))
            self.values.append((name, dtype, (shape[0], 1) if len(shape) == 2 else ()))
            return [Assign(name, value)]
        if kind <= 6:
            target = self.place("yf" if dtype == "f32" else "yi", shape)
            if dtype == "f32" and self.parallel and self.draw(st.integers(0, 3)) == 0:
                target = self.place("u", shape if len(shape) < 2 else shape[1:])
                shape = shape if len(shape) < 2 else shape[1:]
            return [Store(target, self.value(dtype, shape, 2))]
        if kind <= 8 and depth > 0:
            return [self.loop(depth)]
        if depth > 0:
            test = Op(str(self.pick("lt", "le", "eq")), (self.row(1), Const(self.count % 3)))
            other = self.block(0, 2) if self.draw(st.booleans()) else ()
            return [If(test, self.block(depth - 1, 3), other)]
        return [Check(Op("lt", (Load("xp", (Const(0),)), Const(5))), 9)] if kind == 9 else []

    def product(self) -> list[Stmt]:
        """Fills two private buffers and multiplies them in the matrix unit, a few times over."""
        rows, k = (
            int(self.draw(st.sampled_from((1, 3, 4)))),
            int(self.draw(st.sampled_from((1, 2, 4)))),
        )
        floats = self.draw(st.booleans())
        word, dtype = ("dot_bf16", "f32") if floats else ("dot_i8", "i32")
        left, right = ("pa", "pw") if floats else (str(self.pick("pu", "ps")), "pb")
        four = 1 if floats else 4
        acc, a, w = (self.fresh(stem) for stem in ("acc", "a", "w"))
        zero = Const(0.0) if floats else Const(0)
        start: Expr = Fill(zero, "f32" if floats else "i32", (rows, 16))
        if self.draw(st.booleans()):
            start = Load("xf" if floats else "xi", self.square(rows))
        dot = Assign(acc, Op(word, (Name(acc), Name(a), Name(w))))
        again = For(
            self.fresh("i"), Const(0), Name("m"), int(self.draw(st.sampled_from((1, 3)))), (dot,)
        )
        target = Load("yf" if dtype == "f32" else "yi", self.square(rows))
        return [
            self.filled(left, rows, floats),
            self.filled(right, k, floats),
            Assign(acc, start),
            Assign(a, Load(left, (Span(Const(0), rows), Span(Const(0), four * k)))),
            Assign(w, Load(right, (Span(Const(0), k), Span(Const(0), four * 16)))),
            again if self.draw(st.booleans()) else dot,
            Store(target, Name(acc)),
        ]

    def square(self, rows: int) -> tuple[Span, Span]:
        start = self.draw(st.sampled_from([Const(0), Const(8)]))
        return Span(self.row(rows), rows), Span(start, 16)

    def filled(self, buffer: str, rows: int, floats: bool) -> For:
        """Rows of pairs of bfloat16, or of bytes, out of the inputs."""
        i = self.fresh("i")
        at = Op("mod", (Name(i), Name("m")))
        columns = [Span(Const(start), 16) for start in (0, 8)]
        if floats:
            low, high = (Op("bits", (Load("xf", (at, column)),)) for column in columns)
            low = Op("bit_and", (Op("shr", (low, Const(16))), Const(65535)))
            pair = Op("bit_or", (Op("bit_and", (high, Const(-65536))), low))
            return For(
                i, Const(0), Const(rows), 1, (Store(Load(buffer, (Name(i), columns[0])), pair),)
            )
        source = "xu" if buffer == "pu" else "xb"
        stores = [
            Store(
                Load(buffer, (Name(i), Span(Const(16 * part), 16))),
                Load(source, (at, columns[part % 2])),
            )
            for part in range(4)
        ]
        return For(i, Const(0), Const(rows), 1, tuple(stores))

    def loop(self, depth: int) -> For:
        axis = str(self.pick("m", "n"))
        var = self.fresh("i")
        step = int(self.draw(st.sampled_from((1, 2, 3)))) if axis == "m" else 8
        parallel = not self.parallel and self.draw(st.integers(0, 2)) == 0
        stop: Expr = Name("m") if axis == "m" else Const(COLUMNS)
        self.loops.append((var, axis))
        outside, self.parallel = self.parallel, self.parallel or parallel
        body = self.block(depth - 1, 3)
        self.parallel = outside
        self.loops.pop()
        return For(
            var, Const(0), stop, step, body, parallel, int(self.draw(st.sampled_from((1, 4))))
        )


@st.composite
def kernels(draw: st.DrawFn, name: str) -> Kernel:
    """A program over one row dim m: outputs are written once in full, then at random."""
    rows: tuple[Expr, ...] = (Name("m"), Const(COLUMNS))
    buffers = [Buffer(buffer, dtype, rows, "input") for buffer, dtype in INPUTS]
    buffers += [
        Buffer("xp", "i64", (Const(1),), "input"),
        Buffer("wf", "f32", (Const(COLUMNS),), "weight"),
        Buffer("w", "f32", (Const(COLUMNS),), "packed"),
        Buffer("u", "f32", (Const(COLUMNS),), "private"),
        Buffer("pa", "i32", (Const(16), Const(16)), "private"),
        Buffer("pw", "i32", (Const(16), Const(16)), "private"),
        Buffer("pu", "u8", (Const(16), Const(64)), "private"),
        Buffer("ps", "i8", (Const(16), Const(64)), "private"),
        Buffer("pb", "i8", (Const(16), Const(64)), "private"),
        Buffer("yf", "f32", rows, "output"),
        Buffer("yi", "i32", rows, "output"),
    ]
    whole = (Span(Name("j"), 8),)
    prepare = (
        For("j", Const(0), Const(COLUMNS), 8, (Store(Load("w", whole), Load("wf", whole)),)),
    )
    here = (Name("i"), *whole)
    clear = For(
        "i",
        Const(0),
        Name("m"),
        1,
        (
            For(
                "j",
                Const(0),
                Const(COLUMNS),
                8,
                (
                    Store(Load("yf", here), Load("xf", here)),
                    Store(Load("yi", here), Load("xi", here)),
                ),
            ),
        ),
        True,
    )
    growing = Growing(draw, fixed=1)
    body = (clear, *growing.block(3, 5))
    return Kernel(name, ("m",), tuple(buffers), prepare, body)
