"""Values of tile programs in C: what one vector of an expression is written as.

In: an expression, a row, the number of a vector, its lanes. Out: C text. Never here: statements.
"""

from __future__ import annotations

from kernelgen.emit.matrix import Unit
from kernelgen.emit.part import c_float
from kernelgen.emit.turns import Turn
from kernelgen.schedule.schedule import ScheduleError
from kernelgen.tile.check import Scope, Type, place
from kernelgen.tile.ir import Const, Expr, Fill, Kernel, Load, Name, Op, Span
from kernelgen.tile.text import show
from kernelgen.tile.words import WORDS

C_TYPE = {"f32": "float", "i32": "int32_t", "i64": "int64_t", "i8": "int8_t", "u8": "uint8_t"}
BYTES = {"f32": 4, "i32": 4, "i64": 8, "i8": 1, "u8": 1}

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "/",
    "mod": "%",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shl": "<<",
    "shr": ">>",
    "lt": "<",
    "le": "<=",
    "eq": "==",
}
_CALLS = {
    "maximum": "max",
    "minimum": "min",
    "select": "pick",
    **dict.fromkeys(("abs", "sqrt", "round", "exp", "exp_below", "log"), ""),
    **dict.fromkeys(("tanh", "sigmoid", "gelu", "bits", "from_bits"), ""),
}


class Values:
    """Writes values. `lanes`, `quads`, `turns` and `matrix` collect what the vocabulary needs."""

    def __init__(self, kernel: Kernel, vector: int) -> None:
        self.kernel = kernel
        self.vector = vector
        self.lanes: set[int] = {vector}
        self.quads: set[int] = set()
        self.turns: set[Turn] = set()
        self.matrix: set[str] = set()
        self._scope = Scope(kernel)
        self._unit = Unit(kernel, ())

    def _chunk(self, kind: Type) -> int:
        """Lanes of the vectors that hold a tile; 1 when it is made of single numbers."""
        lanes = kind.lanes
        if lanes == 1:
            return 1
        count = min(lanes, self.vector)
        if lanes % count or count & (count - 1):
            raise ScheduleError(
                f"{self.kernel.name}: tile of {lanes} lanes, wanted a power of two up to "
                f"{self.vector}, or a multiple of it"
            )
        if kind.dtype == "i64":
            raise ScheduleError(f"{self.kernel.name}: lanes of i64 are not for CPUs, cast them")
        self.lanes.add(count)
        return count

    def _declared(self, kind: Type) -> str:
        lanes = self._chunk(kind)
        if kind.dtype == "bool":
            return "int" if lanes == 1 else f"i32x{lanes}"
        return C_TYPE[kind.dtype] if lanes == 1 else f"{kind.dtype}x{lanes}"

    def _sizes(self, kind: Type) -> str:
        vectors = kind.lanes // self._chunk(kind)
        rows = f"[{kind.rows}]" if kind.rows > 1 else ""
        return rows + (f"[{vectors}]" if vectors > 1 else "")

    def _at(self, name: str, kind: Type, r: str, c: str) -> str:
        rows = f"[{r}]" if kind.rows > 1 else ""
        return f"{name}{rows}" + (f"[{c}]" if kind.lanes // self._chunk(kind) > 1 else "")

    def _scalar(self, expr: Expr) -> str:
        return self._value(expr, "0", "0", 1)

    def _vector(self, expr: Expr, r: str, c: str, lanes: int) -> str:
        """C of `expr` at row r, vector c, as a whole vector of `lanes`."""
        kind = self._scope.infer(expr)
        text = self._value(expr, r, c, lanes)
        if lanes == 1 or kind.lanes > 1:
            return text
        if kind.dtype == "bool":
            return f"-splat_i32x{lanes}({text})"
        return f"splat_{kind.dtype if not kind.weak else self._weak(kind)}x{lanes}({text})"

    @staticmethod
    def _weak(kind: Type) -> str:
        return "f32" if kind.dtype == "f32" else "i32"

    def _value(self, expr: Expr, r: str, c: str, lanes: int, dtype: str = "") -> str:
        """C of `expr` at row r, vector c: a vector of `lanes`, or one number where it has one."""
        match expr:
            case Const(value):
                return _number(value, dtype)
            case Name(name) if name in self._unit.names:
                raise ScheduleError(
                    f"{self.kernel.name}: {name} is in the matrix unit: store it first"
                )
            case Name(name):
                found = self._scope.find(name)
                assert found is not None, name  # noqa: S101 - check() has seen every name
                return self._at(name, found, r, c)
            case Fill(value, dtype_, _):
                one = self._value(value, r, c, 1, dtype_)
                return one if lanes == 1 else f"splat_{dtype_}x{lanes}({one})"
            case Load():
                return self._load(expr, r, c, lanes)
            case Op(word, args):
                return self._word(expr, word, args, r, c, lanes)
        raise ScheduleError(f"{self.kernel.name}: {expr!r} has no C")

    def _load(self, load: Load, r: str, c: str, lanes: int) -> str:
        kind = place(load, self._scope)
        if kind.lanes == 1:
            pointer, _, limit = self._address(load, r, "0", 1)
            return f"({limit} > 0 ? *({pointer}) : 0)" if limit else _element(pointer)
        pointer, stride, limit = self._address(load, r, c, lanes)
        v = f"{kind.dtype}x{lanes}"
        if stride == "1":
            return f"upto_{v}({pointer}, {limit})" if limit else f"load_{v}({pointer})"
        if limit:
            items = (f"{i} < ({limit}) ? ({pointer})[{i} * ({stride})] : 0" for i in range(lanes))
        else:
            items = (f"({pointer})[{i} * ({stride})]" for i in range(lanes))
        return f"({v}){{{', '.join(items)}}}"

    def _address(self, load: Load, r: str, c: str, lanes: int) -> tuple[str, str, str | None]:
        """Pointer to the first lane, distance between lanes, and how many lanes count from it."""
        buffer = self.kernel.buffer(load.buffer)
        spans = [axis for axis, at in enumerate(load.index) if isinstance(at, Span)]
        terms, stride, limit = [], "1", None
        for axis, at in enumerate(load.index):
            step = " * ".join(f"({self._scalar(size)})" for size in buffer.shape[axis + 1 :])
            start = self._scalar(at.start if isinstance(at, Span) else at)
            if isinstance(at, Span):
                moved = ""
                if axis == spans[-1]:
                    moved = f"{c} * {lanes}" if c != "0" else ""
                    stride = step or "1"
                    if at.limit is not None:
                        limit = self._scalar(at.limit) + (f" - {moved}" if moved else "")
                elif r != "0":
                    moved = r
                start = f"{start} + {moved}" if moved and start != "0" else moved or start
            if start == "0":
                continue
            terms.append(f"({start}) * {step}" if step else start)
        return f"{load.buffer} + {' + '.join(terms)}" if terms else load.buffer, stride, limit

    # ---- the matrix unit -----------------------------------------------------------------------

    def _in_unit(self, name: str) -> int:
        """The register that holds `name`."""
        kind = self._scope.infer(Name(name))
        return self._unit.number(name, kind.rows, kind.lanes * BYTES[kind.dtype])

    def _tile(self, name: str, value: Expr) -> str:
        """The statement that assigns `value` to a name in the matrix unit."""
        match value:
            case Fill(Const(number), _, _) if number == 0 and not str(number).startswith("-"):
                return f"MATRIX_ZERO({self._in_unit(name)});"
            case Load():
                return f"MATRIX_LOAD({self._in_unit(name)}, {self._tile_place(value)});"
            case Op(word, (Name(acc), Name(a), Name(w))) if acc == name:
                self.matrix.add(word)
                signs = "BF16" if word == "dot_bf16" else self._scope.infer(Name(a)).dtype.upper()
                tiles = ", ".join(str(self._in_unit(one)) for one in (acc, a, w))
                return f"MATRIX_DOT_{signs}({tiles});"
        raise ScheduleError(
            f"{self.kernel.name}: {name} is in the matrix unit: got {show(value)}, wanted a load, "
            f"a fill of 0, or a matrix word on {name} itself and two names; store it first"
        )

    def _tile_place(self, load: Load) -> str:
        """Pointer and bytes from row to row of a place that the unit reads or writes."""
        pointer, stride, limit = self._address(load, "0", "0", 1)
        if stride != "1" or limit is not None:
            raise ScheduleError(
                f"{self.kernel.name}: {show(load)}: the matrix unit wants whole rows, one after "
                "another in the last axis"
            )
        buffer = self.kernel.buffer(load.buffer)
        first = next(axis for axis, at in enumerate(load.index) if isinstance(at, Span))
        row = " * ".join(f"({self._scalar(size)})" for size in buffer.shape[first + 1 :])
        return f"{pointer}, {row} * {BYTES[buffer.dtype]}"

    def _word(self, expr: Op, word: str, args: tuple[Expr, ...], r: str, c: str, lanes: int) -> str:
        kind = self._scope.infer(expr)
        known = WORDS[word]
        if known.kind == "lane":
            return f"(lanes_x{lanes}(){f' + {c} * {lanes}' if c != '0' else ''})"
        if known.kind == "cast":
            return self._cast(word, args[0], r, c, lanes)
        if known.kind == "dot4":
            return self._dot4(word, args, r, c, lanes)
        if known.kind == "shuffle":
            return self._shuffle(word, args, kind, c, lanes)
        kinds = [self._scope.infer(arg) for arg in args]
        dtype = next((k.dtype for k in kinds[-2:] if not k.weak), kinds[-1].dtype)
        # One number meets a whole vector as it is in infix; in calls it is spread first.
        wide = 1 if kind.lanes == 1 else lanes
        values = [
            self._value(arg, r, c, wide if k.lanes > 1 else 1, dtype)
            for arg, k in zip(args, kinds, strict=True)
        ]
        if known.kind == "compare" and wide > 1 and dtype not in ("f32", "i32"):
            raise ScheduleError(f"{self.kernel.name}: {word} on lanes of {dtype}, cast them to i32")
        if word in _INFIX:
            if wide > 1 and all(k.lanes == 1 for k in kinds):
                values[0] = f"splat_{dtype}x{wide}({values[0]})"
            return f"({values[0]} {_INFIX[word]} {values[1]})"
        if word == "fma":
            return f"({values[0]} * {values[1]} + {values[2]})"
        if word == "neg":
            return f"(-{values[0]})"
        suffix = dtype if wide == 1 else f"{dtype}x{wide}"
        if wide > 1:
            values = [
                text if k.lanes > 1 else self._spread(text, k, dtype, wide)
                for text, k in zip(values, kinds, strict=True)
            ]
        return f"{_CALLS[word] or word}_{suffix}({', '.join(values)})"

    @staticmethod
    def _spread(text: str, kind: Type, dtype: str, lanes: int) -> str:
        if kind.dtype == "bool":
            return f"-splat_i32x{lanes}({text})"
        return f"splat_{dtype}x{lanes}({text})"

    def _cast(self, to: str, arg: Expr, r: str, c: str, lanes: int) -> str:
        kind = self._scope.infer(arg)
        wide = 1 if kind.lanes == 1 else lanes
        text = self._value(arg, r, c, wide)
        if wide == 1:
            return f"({C_TYPE[to]})({text})"
        if kind.dtype == "bool":
            text = f"(-{text})"
            return text if to == "i32" else f"__builtin_convertvector({text}, {to}x{wide})"
        if kind.dtype in ("i8", "u8") and to in ("i32", "f32"):
            text = f"wide_{kind.dtype}x{wide}({text})"
            if to == "i32":
                return text
        return f"__builtin_convertvector({text}, {to}x{wide})"

    def _dot4(self, word: str, args: tuple[Expr, ...], r: str, c: str, lanes: int) -> str:
        acc, a, w = args
        if not isinstance(a, Load) or not isinstance(w, Load):
            raise ScheduleError(f"{self.kernel.name}: dot4 wants its bytes straight from memory")
        four, _, _ = self._address(a, r, "0", 1)
        many, stride, limit = self._address(w, "0", c, 4 * lanes)
        if stride != "1" or limit is not None:
            raise ScheduleError(f"{self.kernel.name}: dot4 wants whole rows of bytes")
        self.quads.add(lanes)
        half = word.removeprefix("dot4")
        signed = self.kernel.buffer(a.buffer).dtype == "i8"
        loaded = f"load_{'u8' if half else 'i8'}x{4 * lanes}({many})"
        if half:
            loaded = f"halves{half}_x{lanes}({loaded})"
        if half and not signed:
            loaded = f"(i8x{4 * lanes}){loaded}"
        known = f"dot4_signed_x{lanes}" if signed else f"dot4_x{lanes}"
        four = f"(const uint8_t *)({four})" if signed else four
        return f"{known}({self._vector(acc, r, c, lanes)}, quad_of({four}), {loaded})"

    def _shuffle(self, word: str, args: tuple[Expr, ...], kind: Type, c: str, lanes: int) -> str:
        """Vector c of the result comes from vectors 2c and 2c + 1, or from the halves of one."""
        t = kind.dtype
        if word == "swap":
            return f"swap_{t}x{lanes}({self._value(args[0], '0', c, lanes)})"
        inner = self._scope.infer(args[0])
        own = self._chunk(inner)
        if word in ("even", "odd"):
            if inner.lanes == own:  # one vector in, half a vector out
                return f"{word}_{t}x{lanes}({self._value(args[0], '0', '0', own)})"
            if c != "0":
                raise ScheduleError(f"{self.kernel.name}: {word}: wanted one vector out")
            pair = ", ".join(self._value(args[0], "0", at, own) for at in ("0", "1"))
            return f"{word}2_{t}x{lanes}({pair})"
        pair = ", ".join(self._value(arg, "0", "0", own) for arg in args)
        if kind.lanes == lanes:
            return f"zip_{t}x{lanes}({pair})"
        if inner.lanes != own:
            raise ScheduleError(f"{self.kernel.name}: zip: wanted single vectors")
        return f"({c} ? zip_high_{t}x{lanes}({pair}) : zip_low_{t}x{lanes}({pair}))"


def _element(pointer: str) -> str:
    base, plus, rest = pointer.partition(" + ")
    return f"{base}[{rest}]" if plus else f"{base}[0]"


def _number(value: int | float, dtype: str) -> str:
    if isinstance(value, float) or dtype == "f32":
        text = c_float(float(value))
        return f"({text})" if text.startswith("-") else text
    return str(value) if value >= 0 else f"({value})"
