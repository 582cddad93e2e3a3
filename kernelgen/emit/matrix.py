"""Tiles of tile programs in the matrix unit of a CPU (AMX): which register holds which name, and C.

In: the blocks of a program. Out: register numbers, statements, the macros they are written in.
Never here: a choice of shapes; see `kernelgen.tile.matrix` for what the words mean.

The same C serves every machine. Where the compiler was told of the unit (`flags_of`), a macro is
one instruction; elsewhere it works on a plain array, with the same result to the last bit (of a NaN
only that it is one). The process must have asked the operating system for the unit
(`kernelgen.machine.allow_tiles`) before code for it may run.

A name is in the unit when a matrix word takes or gives it. The unit is configured once, with one
shape per name, before the first statement that touches it in the outermost block whose names fit
its eight registers, and released after the last; a block that only decides between others by one
`if` leaves that to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from string import Template

from kernelgen.schedule.schedule import ScheduleError
from kernelgen.tile.ir import Assign, Expr, Fill, For, If, Kernel, Load, Name, Op, Span, Stmt, Store
from kernelgen.tile.words import WORDS

REGISTERS = 8

_BYTES = {"f32": 4, "i32": 4, "i8": 1, "u8": 1}

_NEEDS = {
    "dot_bf16": ("amx_bf16", "__AMX_BF16__", "-mamx-bf16"),
    "dot_i8": ("amx_int8", "__AMX_INT8__", "-mamx-int8"),
}
"""Per word: what the machine must have, what the compiler says of it, how it is told."""


def flags_of(isa: Iterable[str]) -> tuple[str, ...]:
    """What tells the compiler of the matrix unit; nothing where `isa` has none."""
    known = set(isa)
    if "amx_tile" not in known:
        return ()
    return ("-mamx-tile", *(flag for word, _, flag in _NEEDS.values() if word in known))


@dataclass(frozen=True)
class Held:
    """A name in the unit and the shape it has there."""

    name: str
    rows: int
    row_bytes: int


class Unit:
    """The registers of one program, block by block."""

    def __init__(self, kernel: Kernel, block: tuple[Stmt, ...]) -> None:
        self._kernel = kernel
        self.names = frozenset(_operands(block))
        self._number: dict[Held, int] = {}
        self.in_use = False

    def span(self, block: tuple[Stmt, ...]) -> tuple[int, int] | None:
        """First and last statement of `block` between which the unit is to be in use: None when an
        outer block sees to it, when inner ones do, or when nothing here touches it.
        """
        touching = [] if self._number else [i for i, one in enumerate(block) if self._touches(one)]
        if not touching or (len(touching) == 1 and isinstance(block[touching[0]], If)):
            return None
        held = list(dict.fromkeys(self._held(block)))
        if len(held) > REGISTERS:
            if all(isinstance(block[i], For | If) for i in touching):
                return None
            shown = ", ".join(f"{one.name} ({one.rows} x {one.row_bytes} bytes)" for one in held)
            raise ScheduleError(
                f"{self._kernel.name}: {len(held)} tiles in one block: {shown}; the matrix unit "
                f"holds {REGISTERS}"
            )
        self._number = {one: number for number, one in enumerate(held)}
        return touching[0], touching[-1]

    def configure(self) -> Iterator[str]:
        """C that opens the unit for the names of the block; `release` closes it."""
        self.in_use = True
        row_bytes = ", ".join(str(one.row_bytes) for one in self._number)
        rows = ", ".join(str(one.rows) for one in self._number)
        names = ", ".join(f"{number} {one.name}" for one, number in self._number.items())
        yield f"/* In the matrix unit: {names}. */"
        yield (
            "static const struct matrix_shapes all_shapes = "
            f"{{1, 0, {{0}}, {{{row_bytes}}}, {{{rows}}}}};"
        )
        yield "MATRIX_CONFIGURE(all_shapes);"

    def release(self) -> str:
        self._number, self.in_use = {}, False
        return RELEASE

    def number(self, name: str, rows: int, row_bytes: int) -> int:
        """The register of `name` with this shape."""
        return self._number[Held(name, rows, row_bytes)]

    def _touches(self, statement: Stmt) -> bool:
        match statement:
            case Assign(name, _):
                return name in self.names
            case Store(_, value):
                return isinstance(value, Name) and value.name in self.names
            case For(_, _, _, _, body):
                return any(map(self._touches, body))
            case If(_, then, other):
                return any(map(self._touches, (*then, *other)))
        return False

    def _held(self, block: tuple[Stmt, ...]) -> Iterator[Held]:
        for statement in block:
            match statement:
                case Assign(name, value) if name in self.names:
                    shape = self._shape(value)
                    if shape is not None:
                        yield Held(name, *shape)
                case For(_, _, _, _, body):
                    yield from self._held(body)
                case If(_, then, other):
                    yield from self._held(then)
                    yield from self._held(other)

    def _shape(self, value: Expr) -> tuple[int, int] | None:
        """Rows and bytes of a row; a word's result has those of what it was added to."""
        match value:
            case Load(buffer, index):
                sizes = [at.count for at in index if isinstance(at, Span)]
                dtype = self._kernel.buffer(buffer).dtype
            case Fill(_, dtype, shape):
                sizes = list(shape)
            case _:
                return None
        return sizes[0], sizes[-1] * _BYTES[dtype]


def _operands(block: tuple[Stmt, ...]) -> Iterator[str]:
    """Names that a matrix word takes or gives."""
    for statement in block:
        match statement:
            case Assign(name, Op(word, args)) if WORDS[word].kind == "matrix":
                yield name
                yield from (arg.name for arg in args if isinstance(arg, Name))
            case For(_, _, _, _, body):
                yield from _operands(body)
            case If(_, then, other):
                yield from _operands(then)
                yield from _operands(other)


RELEASE = "MATRIX_RELEASE();"

_HEAD = """
/* ---- the matrix unit: eight tiles of up to 16 rows of up to 64 bytes ---- */
struct matrix_shapes {
  uint8_t palette, start, zero[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
#if ${known}
#define MATRIX_CONFIGURE(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(shapes))
#define MATRIX_RELEASE() __asm__ volatile("tilerelease" :::)
#define MATRIX_ZERO(t) __asm__ volatile("tilezero %%tmm" #t :::)
#define MATRIX_LOAD(t, p, stride) \\
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t \\
                   ::"r"((const void *)(p)), "r"((int64_t)(stride)) : "memory")
#define MATRIX_STORE(t, p, stride) \\
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" \\
                   ::"r"((void *)(p)), "r"((int64_t)(stride)) : "memory")
#define MATRIX_WORD(word, acc, a, w) \\
  __asm__ volatile(word " %%tmm" #w ", %%tmm" #a ", %%tmm" #acc :::)
"""

_DOTS = {
    "dot_bf16": '#define MATRIX_DOT_BF16(acc, a, w) MATRIX_WORD("tdpbf16ps", acc, a, w)\n',
    "dot_i8": """\
#define MATRIX_DOT_I8(acc, a, w) MATRIX_WORD("tdpbssd", acc, a, w)
#define MATRIX_DOT_U8(acc, a, w) MATRIX_WORD("tdpbusd", acc, a, w)
""",
}

_PLAIN = """\
#else /* plain twins of its instructions */
#define MATRIX_CONFIGURE(shapes) int32_t all_tiles[8][16][16]
#define MATRIX_RELEASE() (void)0
#define MATRIX_ZERO(t) memset(all_tiles[t], 0, sizeof all_tiles[t])
#define MATRIX_LOAD(t, p, stride) \\
  for (int row = 0; row < all_shapes.rows[t]; row++) \\
    memcpy(all_tiles[t][row], (const char *)(p) + row * (stride), all_shapes.row_bytes[t])
#define MATRIX_STORE(t, p, stride) \\
  for (int row = 0; row < all_shapes.rows[t]; row++) \\
    memcpy((char *)(p) + row * (stride), all_tiles[t][row], all_shapes.row_bytes[t])
"""

_PLAIN_DOTS = {
    "dot_bf16": """\
#define MATRIX_DOT_BF16(acc, a, w) matrix_dot_bf16(all_tiles, &all_shapes, acc, a, w)
/* A float of these bits, denormals as zero. */
WORD double matrix_float(uint32_t bits) {
  const uint32_t tiny = bits & 0x7f800000u ? 0xffffffffu : 0x80000000u;
  return from_bits_i32((int32_t)(bits & tiny));
}
/* x, rounded once from its exact value; what rounds below the smallest normal float is zero. */
WORD float matrix_rounded(double x) {
  const double tiny = 0x1.ffffffp-127;
  return (float)(x < tiny && x > -tiny ? x * 0.0 : x);
}
/* Products of two bfloat16 are exact in double, and their sums with a float round as if fused. */
static __attribute__((noinline)) void matrix_dot_bf16(
    int32_t (*tiles)[16][16], const struct matrix_shapes *shapes, int acc, int a, int w) {
  const uint32_t upper = 0xffff0000u;
  for (int r = 0; r < shapes->rows[a]; r++) {
    float low[16] = {}, high[16] = {};
    for (int k = 0; k < shapes->rows[w]; k++) {
      const uint32_t x = (uint32_t)tiles[a][r][k];
      for (int n = 0; n < 16; n++) {
        const uint32_t y = (uint32_t)tiles[w][k][n];
        low[n] = matrix_rounded(matrix_float(x << 16) * matrix_float(y << 16) + low[n]);
        high[n] = matrix_rounded(matrix_float(x & upper) * matrix_float(y & upper) + high[n]);
      }
    }
    for (int n = 0; n < 16; n++) {
      const double both = matrix_rounded((double)low[n] + high[n]);
      int32_t *sum = &tiles[acc][r][n];
      *sum = bits_f32(matrix_rounded(matrix_float((uint32_t)*sum) + both));
    }
  }
}
""",
    "dot_i8": """\
#define MATRIX_DOT_I8(acc, a, w) matrix_dot_i8(all_tiles, &all_shapes, acc, a, w, 0)
#define MATRIX_DOT_U8(acc, a, w) matrix_dot_i8(all_tiles, &all_shapes, acc, a, w, 1)
static __attribute__((noinline)) void matrix_dot_i8(
    int32_t (*tiles)[16][16], const struct matrix_shapes *shapes, int acc, int a, int w,
    int without_sign) {
  for (int r = 0; r < shapes->rows[a]; r++)
    for (int k = 0; k < shapes->rows[w]; k++) {
      const int8_t *x = (const int8_t *)&tiles[a][r][k], *y = (const int8_t *)tiles[w][k];
      for (int n = 0; n < 16; n++)
        for (int q = 0; q < 4; q++)
          tiles[acc][r][n] += (without_sign ? (uint8_t)x[q] : x[q]) * y[4 * n + q];
    }
}
""",
}


def matrix_words(used: Iterable[str]) -> str:
    """C of the matrix words in `used`; needs the vocabulary before it. Nothing for none."""
    words = sorted(set(used))
    if not words:
        return ""
    known = " && ".join(f"defined({macro})" for macro in ("__AMX_TILE__", *map(_macro, words)))
    parts = [Template(_HEAD).substitute(known=known)]
    parts += [_DOTS[word] for word in words]
    return "".join((*parts, _PLAIN, *(_PLAIN_DOTS[word] for word in words), "#endif\n"))


def _macro(word: str) -> str:
    return _NEEDS[word][1]
