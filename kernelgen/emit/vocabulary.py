"""The words of the tile IR in C, for vectors of any width, in GCC and Clang vector extensions.

In: the lane counts a program uses. Out: C text that defines, for each, types, loads, stores and
every word. Never here: an operator, a choice. What an instruction set does better has its own
spelling behind `#if`, beside the plain one that means the same (`dot4`, partial loads).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from kernelgen.emit.bytes import dot4_words, widening
from kernelgen.emit.orders import orders
from kernelgen.emit.part import c_float, fill
from kernelgen.emit.vectors import EXP, GELU, GELU_EDGE

HEADER = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* No vector crosses a call, all words are inlined: how calls would pass them does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
/* A generated file carries the whole vocabulary; an operator may leave a word of it unused. */
#define WORD static inline __attribute__((always_inline, unused))
"""

SCALARS = """
/* ---- words on single numbers ---- */
WORD float pick_f32(int test, float yes, float no) { return test ? yes : no; }
WORD int32_t pick_i32(int test, int32_t yes, int32_t no) { return test ? yes : no; }
WORD int64_t pick_i64(int test, int64_t yes, int64_t no) { return test ? yes : no; }
WORD float max_f32(float x, float y) { return x > y ? x : y; }
WORD float min_f32(float x, float y) { return x < y ? x : y; }
WORD int32_t max_i32(int32_t x, int32_t y) { return x > y ? x : y; }
WORD int32_t min_i32(int32_t x, int32_t y) { return x < y ? x : y; }
WORD int64_t max_i64(int64_t x, int64_t y) { return x > y ? x : y; }
WORD int64_t min_i64(int64_t x, int64_t y) { return x < y ? x : y; }
WORD float abs_f32(float x) { return __builtin_fabsf(x); }
WORD float sqrt_f32(float x) { return __builtin_sqrtf(x); }
WORD float round_f32(float x) { return (x + 12582912.0f) - 12582912.0f; }
WORD int32_t bits_f32(float x) { return ((i32x4)splat_f32x4(x))[0]; }
WORD float from_bits_i32(int32_t x) { return ((f32x4)splat_i32x4(x))[0]; }
WORD float exp_below_f32(float x) { return exp_below_f32x4(splat_f32x4(x))[0]; }
WORD float exp_f32(float x) { return exp_f32x4(splat_f32x4(x))[0]; }
WORD float log_f32(float x) { return log_f32x4(splat_f32x4(x))[0]; }
WORD float tanh_f32(float x) { return tanh_f32x4(splat_f32x4(x))[0]; }
WORD float sigmoid_f32(float x) { return sigmoid_f32x4(splat_f32x4(x))[0]; }
WORD float gelu_f32(float x) { return gelu_f32x4(splat_f32x4(x))[0]; }
WORD int32_t quad_of(const uint8_t *p) {
  int32_t x;
  memcpy(&x, p, 4);
  return x;
}
"""

_TYPES = """
/* ---- ${v} lanes ---- */
typedef float f32x${v} __attribute__((vector_size(4 * ${v}), may_alias));
typedef float f32x${v}_any __attribute__((vector_size(4 * ${v}), aligned(4), may_alias));
typedef int32_t i32x${v} __attribute__((vector_size(4 * ${v}), may_alias));
typedef int32_t i32x${v}_any __attribute__((vector_size(4 * ${v}), aligned(4), may_alias));
typedef int8_t i8x${v} __attribute__((vector_size(${v}), may_alias));
typedef uint8_t u8x${v} __attribute__((vector_size(${v}), may_alias));
typedef int16_t i16x${v} __attribute__((vector_size(2 * ${v}), may_alias));
typedef uint16_t u16x${v} __attribute__((vector_size(2 * ${v}), may_alias));

WORD f32x${v} load_f32x${v}(const float *p) { return *(const f32x${v}_any *)p; }
WORD i32x${v} load_i32x${v}(const int32_t *p) { return *(const i32x${v}_any *)p; }
WORD void store_f32x${v}(float *p, f32x${v} x) { *(f32x${v}_any *)p = x; }
WORD void store_i32x${v}(int32_t *p, i32x${v} x) { *(i32x${v}_any *)p = x; }
WORD i8x${v} load_i8x${v}(const int8_t *p) { i8x${v} x; memcpy(&x, p, ${v}); return x; }
WORD u8x${v} load_u8x${v}(const uint8_t *p) { u8x${v} x; memcpy(&x, p, ${v}); return x; }
WORD void store_i8x${v}(int8_t *p, i8x${v} x) { memcpy(p, &x, ${v}); }
WORD void store_u8x${v}(uint8_t *p, u8x${v} x) { memcpy(p, &x, ${v}); }

/* x - 0 is x for every x, a negative zero too; x + 0 is not. */
WORD f32x${v} splat_f32x${v}(float x) { return x - (f32x${v}){}; }
WORD i32x${v} splat_i32x${v}(int32_t x) { return x - (i32x${v}){}; }
WORD i8x${v} splat_i8x${v}(int8_t x) { return x - (i8x${v}){}; }
WORD u8x${v} splat_u8x${v}(uint8_t x) { return x - (u8x${v}){}; }
WORD i32x${v} lanes_x${v}(void) { return (i32x${v}){${lanes}}; }

/* The first n lanes, the rest zero; nothing is touched beyond them. */
${partial}
WORD f32x${v} pick_f32x${v}(i32x${v} test, f32x${v} yes, f32x${v} no) {
  return (f32x${v})(((i32x${v})yes & test) | ((i32x${v})no & ~test));
}
WORD i32x${v} pick_i32x${v}(i32x${v} test, i32x${v} yes, i32x${v} no) {
  return (yes & test) | (no & ~test);
}
/* Written lane by lane: compilers find the one instruction that each of these is. */
${orders}WORD f32x${v} abs_f32x${v}(f32x${v} x) { return (f32x${v})((i32x${v})x & 0x7fffffff); }
WORD f32x${v} sqrt_f32x${v}(f32x${v} x) {
  for (int i = 0; i < ${v}; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
WORD f32x${v} swap_f32x${v}(f32x${v} x) { return __builtin_shufflevector(x, x, ${swap}); }
WORD i32x${v} swap_i32x${v}(i32x${v} x) { return __builtin_shufflevector(x, x, ${swap}); }
WORD i32x${v} bits_f32x${v}(f32x${v} x) { return (i32x${v})x; }
WORD f32x${v} from_bits_i32x${v}(i32x${v} x) { return (f32x${v})x; }
WORD f32x${v} round_f32x${v}(f32x${v} x) { return (x + 12582912.0f) - 12582912.0f; }

/* Over the lanes, by halves: the order is fixed, so results repeat bit for bit. */
${reduces}
/* exp(x): x = n ln 2 + r, a polynomial in r, then n enters the exponent bits. Zero below -87,
   infinite above 88.7; NaN stays NaN because the bound is always asked first. */
WORD f32x${v} exp_f32x${v}(f32x${v} x) {
  const f32x${v} low = splat_f32x${v}(-87.0f), high = splat_f32x${v}(88.7f);
  f32x${v} c = max_f32x${v}(low, min_f32x${v}(high, x));
  f32x${v} shifted = c * ${log2e} + 12582912.0f;
  f32x${v} n = shifted - 12582912.0f;
  f32x${v} r = c - n * ${ln2_high};
  r = r - n * ${ln2_low};
  f32x${v} p = splat_f32x${v}(${exp_first});
${exp_steps}  /* 2^n in two factors: 2^128 alone would not fit. */
  i32x${v} whole = ((i32x${v})shifted << 23) >> 23, half = whole >> 1;
  f32x${v} e = p * (f32x${v})((half + 127) << 23) * (f32x${v})((whole - half + 127) << 23);
  e = pick_f32x${v}(x > high, splat_f32x${v}(__builtin_inff()), e);
  return pick_f32x${v}(x < low, (f32x${v}){}, e);
}
/* exp(x) for x at most 88: 2^n comes from the low bits of n + 127 in one shift. Zero below -87. */
WORD f32x${v} exp_below_f32x${v}(f32x${v} x) {
  const f32x${v} low = splat_f32x${v}(-87.0f);
  f32x${v} c = max_f32x${v}(low, x);
  f32x${v} shifted = c * ${log2e} + 12583039.0f;
  f32x${v} n = shifted - 12583039.0f;
  f32x${v} r = c - n * ${ln2_high};
  r = r - n * ${ln2_low};
  f32x${v} p = splat_f32x${v}(${below_first});
${below_steps}  p = p * (f32x${v})((i32x${v})shifted << 23);
  return (f32x${v})((i32x${v})p & ~(x < low));
}
/* log(x) for x > 0: x = 2^n m with m near 1, then the series of atanh in (m - 1) / (m + 1). */
WORD f32x${v} log_f32x${v}(f32x${v} x) {
  i32x${v} n = ((i32x${v})x - 0x3f3504f3) >> 23;
  f32x${v} m = (f32x${v})((i32x${v})x - (n << 23));
  f32x${v} s = (m - 1.0f) / (m + 1.0f), z = s * s;
  f32x${v} p = z * ${ninth} + ${seventh};
  p = p * z + 0.2f;
  p = p * z + ${third};
  p = p * z + 1.0f;
  f32x${v} k = __builtin_convertvector(n, f32x${v});
  f32x${v} y = k * ${ln2_high} + (s * p * 2.0f + k * ${ln2_low});
  y = pick_f32x${v}(x == 0.0f, splat_f32x${v}(-__builtin_inff()), y);
  y = pick_f32x${v}(x == __builtin_inff(), x, y);
  return pick_f32x${v}(x >= 0.0f, y, splat_f32x${v}(__builtin_nanf("")));
}
WORD f32x${v} sigmoid_f32x${v}(f32x${v} x) { return 1.0f / (1.0f + exp_f32x${v}(-x)); }
/* Near zero an odd polynomial keeps the relative error; elsewhere 1 - 2 / (exp(2 |x|) + 1). */
WORD f32x${v} tanh_f32x${v}(f32x${v} x) {
  f32x${v} z = x * x, p = splat_f32x${v}(${tanh_first});
  f32x${v} a = abs_f32x${v}(x);
${tanh_steps}  f32x${v} far = 1.0f - 2.0f / (exp_f32x${v}(a + a) + 1.0f);
  far = pick_f32x${v}(x < 0.0f, -far, far);
  return pick_f32x${v}(a < 0.6f, x * (1.0f + z * p), far);
}
/* x times the normal distribution function of x: an odd function plus one half; beyond
   |x| = ${edge} it is x or nothing. */
WORD f32x${v} gelu_f32x${v}(f32x${v} x) {
  f32x${v} c = max_f32x${v}(min_f32x${v}(x, splat_f32x${v}(${edge}f)), splat_f32x${v}(-${edge}f));
  f32x${v} s = c * c * ${squeeze} - 1.0f;
  f32x${v} p = splat_f32x${v}(${gelu_first});
${gelu_steps}  f32x${v} y = pick_f32x${v}(x > ${edge}f, x, x * (p * c + 0.5f));
  return pick_f32x${v}(x < -${edge}f, (f32x${v}){}, y);
}
"""

_PARTIAL_PLAIN = """\
WORD ${t}x${v} upto_${t}x${v}(const ${c} *p, int64_t n) {
  ${t}x${v} x = {};
  for (int i = 0; i < ${v}; i++)
    if (i < n) x[i] = p[i];
  return x;
}
WORD void store_upto_${t}x${v}(${c} *p, int64_t n, ${t}x${v} x) {
  for (int i = 0; i < ${v}; i++)
    if (i < n) p[i] = x[i];
}
"""

_PARTIAL_512 = """\
#if defined(__AVX512F__) && !defined(__clang__)
WORD ${t}x16 upto_${t}x16(const ${c} *p, int64_t n) {
  const uint16_t m = n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0;
  return (${t}x16)__builtin_ia32_load${w}512_mask(${cast}p, (${r}){}, m);
}
WORD void store_upto_${t}x16(${c} *p, int64_t n, ${t}x16 x) {
  const uint16_t m = n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0;
  __builtin_ia32_store${w}512_mask(${cast2}p, (${r})x, m);
}
#else
${plain}#endif
"""

_SHUFFLES = """
/* ---- between ${v} and ${half} lanes ---- */
WORD ${t}x${half} even_${t}x${half}(${t}x${v} x) {
  return __builtin_shufflevector(x, x, ${even});
}
WORD ${t}x${half} odd_${t}x${half}(${t}x${v} x) {
  return __builtin_shufflevector(x, x, ${odd});
}
WORD ${t}x${v} zip_${t}x${v}(${t}x${half} a, ${t}x${half} b) {
  return __builtin_shufflevector(a, b, ${zip});
}
"""

_PAIRS = """
/* ---- pairs of ${v} lanes ---- */
WORD ${t}x${v} even2_${t}x${v}(${t}x${v} a, ${t}x${v} b) {
  return __builtin_shufflevector(a, b, ${even});
}
WORD ${t}x${v} odd2_${t}x${v}(${t}x${v} a, ${t}x${v} b) {
  return __builtin_shufflevector(a, b, ${odd});
}
WORD ${t}x${v} zip_low_${t}x${v}(${t}x${v} a, ${t}x${v} b) {
  return __builtin_shufflevector(a, b, ${low});
}
WORD ${t}x${v} zip_high_${t}x${v}(${t}x${v} a, ${t}x${v} b) {
  return __builtin_shufflevector(a, b, ${high});
}
"""

_LOG2E, _LN2_HIGH = 1.4426950408889634, 0.693359375
_LN2 = 0.6931471805599453

TANH = (
    -0.33333252,
    0.13331186,
    -0.05375129,
    0.02069205,
    -0.00577213,
)
"""(tanh(x) / x - 1) / x^2, rising powers of x^2, |x| <= 0.6."""


def vocabulary(lanes: Iterable[int], *, dot4: Iterable[int] = ()) -> str:
    """C of every word for these lane counts (powers of two, 2 to 64); `dot4` lists the int32 lane
    counts that need it. Scalar words always come along.
    """
    quads = sorted(set(dot4))
    counts = sorted(
        {4, *lanes, *quads, *(4 * count for count in quads), *((16,) if 8 in quads else ())}
    )
    text = [HEADER, *map(_types, counts), SCALARS]
    for small, large in pairwise(counts):
        if large == 2 * small:
            text += [_shuffles(t, large) for t in ("f32", "i32")]
    text += [_pairs(t, count) for count in counts for t in ("f32", "i32")]
    text += [widening(count) for count in counts]
    text += [dot4_words(count) for count in quads]
    return "".join(text)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _types(v: int) -> str:
    exp_first, exp_steps = _horner(EXP["poly6"], "r")
    below_first, below_steps = _horner(EXP["poly5"], "r")
    gelu_first, gelu_steps = _horner(GELU["poly13"], "s")
    tanh_first, tanh_steps = _horner(TANH, "z")
    return fill(
        _TYPES,
        v=v,
        lanes=_listed(range(v)),
        partial="".join(_partial(t, v) for t in ("f32", "i32", "i8", "u8")),
        orders=orders(v),
        swap=_listed(lane ^ 1 for lane in range(v)),
        reduces="".join(
            _reduce(t, word, v) for t in ("f32", "i32") for word in ("sum", "max", "min")
        ),
        log2e=c_float(_LOG2E),
        # ln 2 in two parts: the high one has few bits, so n * high is exact.
        ln2_high=c_float(_LN2_HIGH),
        ln2_low=c_float(_LN2 - _LN2_HIGH),
        third=c_float(1 / 3),
        seventh=c_float(1 / 7),
        ninth=c_float(1 / 9),
        exp_first=exp_first,
        exp_steps=exp_steps,
        below_first=below_first,
        below_steps=below_steps,
        tanh_first=tanh_first,
        tanh_steps=tanh_steps,
        edge=GELU_EDGE,
        squeeze=c_float(2.0 / GELU_EDGE**2),
        gelu_first=gelu_first,
        gelu_steps=gelu_steps,
    )


def _horner(coefficients: tuple[float, ...], variable: str) -> tuple[str, str]:
    first, *rest = reversed(tuple(coefficients))
    steps = "".join(f"  p = p * {variable} + {c_float(value)};\n" for value in rest)
    return c_float(first), steps


_C_TYPE = {"f32": "float", "i32": "int32_t", "i8": "int8_t", "u8": "uint8_t"}


def _partial(t: str, v: int) -> str:
    plain = fill(_PARTIAL_PLAIN, t=t, v=v, c=_C_TYPE[t])
    if v != 16 or t not in ("f32", "i32"):
        return plain
    floats = t == "f32"
    return fill(
        _PARTIAL_512,
        t=t,
        c=_C_TYPE[t],
        w="ups" if floats else "dqusi",
        r="f32x16" if floats else "i32x16",
        cast="" if floats else "(const int *)",
        cast2="" if floats else "(int *)",
        plain=plain,
    )


def _reduce(t: str, word: str, v: int) -> str:
    """Lanes meet the one that differs in one bit: near ones need only a shuffle within 128 bits."""
    lines = [f"WORD {_C_TYPE[t]} {word}_of_{t}x{v}({t}x{v} x) {{"]
    half = v // 2
    while half:
        other = _listed(lane ^ half for lane in range(v))
        turned = f"__builtin_shufflevector(x, x, {other})"
        joined = f"x + {turned}" if word == "sum" else f"{word}_{t}x{v}(x, {turned})"
        lines.append(f"  x = {joined};")
        half //= 2
    return "\n".join((*lines, "  return x[0];", "}\n"))


def _shuffles(t: str, v: int) -> str:
    half = v // 2
    zipped = (lane // 2 + (half if lane % 2 else 0) for lane in range(v))
    return fill(
        _SHUFFLES,
        t=t,
        v=v,
        half=half,
        even=_listed(range(0, v, 2)),
        odd=_listed(range(1, v, 2)),
        zip=_listed(zipped),
    )


def _pairs(t: str, v: int) -> str:
    def zipped(first: int) -> str:
        return _listed(first + lane // 2 + (v if lane % 2 else 0) for lane in range(v))

    return fill(
        _PAIRS,
        t=t,
        v=v,
        even=_listed(range(0, 2 * v, 2)),
        odd=_listed(range(1, 2 * v, 2)),
        low=zipped(0),
        high=zipped(v // 2),
    )
