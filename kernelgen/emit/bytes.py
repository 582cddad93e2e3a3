"""Bytes in C: wider integers out of them, and sums of four products of them.

In: lane counts. Out: C text. Never here: words on other types. What an instruction set does better
has its own spelling behind `#if`, beside the plain one that means the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelgen.emit.part import fill

_WIDEN = """
/* ---- int32 out of ${v} bytes ---- */
WORD i32x${v} wide_i8x${v}(i8x${v} x) {
${signed}  return __builtin_convertvector(__builtin_convertvector(x, i16x${v}), i32x${v});
}
WORD i32x${v} wide_u8x${v}(u8x${v} x) {
${unsigned}  return __builtin_convertvector(__builtin_convertvector(x, i16x${v}), i32x${v});
}
"""

# GCC makes two steps of it, or goes byte by byte.
_WIDEN_NATIVE = {
    16: """\
#if defined(__AVX512F__) && !defined(__clang__)
  typedef char bytes __attribute__((vector_size(16)));
  typedef int ints __attribute__((vector_size(64)));
  return (i32x16)__builtin_ia32_pmov${s}xbd512_mask((bytes)x, (ints){}, 0xffff);
#endif
""",
    8: """\
#if defined(__AVX2__) && !defined(__clang__)
  typedef char bytes __attribute__((vector_size(16)));
  typedef long long pair __attribute__((vector_size(16)));
  const pair all = {(long long)x, 0};
  return (i32x8)__builtin_ia32_pmov${s}xbd256((bytes)all);
#endif
""",
}

_DOT4 = """
/* Adds to every lane four products of a byte of a (the same for all lanes) and a byte of w, the
   first unsigned and the second signed, or the other way round; exact. */
WORD i32x${v} dot4_plain_x${v}(i32x${v} acc, int32_t a, i8x${four} w) {
  const u8x4 q = (u8x4)a;
${steps}  return acc;
}
WORD i32x${v} dot4_x${v}(i32x${v} acc, int32_t a, i8x${four} w) {
${native}  return dot4_plain_x${v}(acc, a, w);
}
WORD i32x${v} dot4_signed_plain_x${v}(i32x${v} acc, int32_t a, u8x${four} w) {
  const i8x4 q = (i8x4)a;
${steps}  return acc;
}
WORD i32x${v} dot4_signed_x${v}(i32x${v} acc, int32_t a, u8x${four} w) {
${native_signed}  return dot4_signed_plain_x${v}(acc, a, w);
}
/* The low and the high half of every byte. */
WORD u8x${four} halves_low_x${v}(u8x${four} w) { return w & 15; }
WORD u8x${four} halves_high_x${v}(u8x${four} w) {
  return (u8x${four})(((i32x${v})w >> 4) & 0x0f0f0f0f);
}
"""

_NATIVE = {
    16: """\
#if defined(__AVX512VNNI__) && !defined(__clang__)
  typedef int quads __attribute__((vector_size(64)));
  return (i32x16)__builtin_ia32_vpdpbusd_v16si((quads)acc, ${pair});
#endif
""",
    8: """\
#if (defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))) \\
    && !defined(__clang__)
  typedef int quads __attribute__((vector_size(32)));
  return (i32x8)__builtin_ia32_vpdpbusd_v8si((quads)acc, ${pair});
#elif defined(__AVX2__) && !defined(__clang__)
  /* Pairs of 16-bit products are summed exactly; saturating byte products would not be. */
  typedef short shorts __attribute__((vector_size(32)));
  typedef int ints __attribute__((vector_size(32)));
  const ${a}x16 q = (${a}x16)splat_i32x4(a);
  const shorts wide = (shorts)__builtin_convertvector(q, i16x16);
  const ${w}x16 first = __builtin_shufflevector(w, w, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                              14, 15);
  const ${w}x16 last = __builtin_shufflevector(w, w, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                             28, 29, 30, 31);
  const ints x = __builtin_ia32_pmaddwd256(wide, (shorts)__builtin_convertvector(first, i16x16));
  const ints y = __builtin_ia32_pmaddwd256(wide, (shorts)__builtin_convertvector(last, i16x16));
  const ints even = __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14);
  const ints odd = __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15);
  return acc + (i32x8)(even + odd);
#endif
""",
    4: """\
#if defined(__ARM_FEATURE_DOTPROD)
  /* sdot takes signed bytes alone: less 128 the unsigned ones fit, and 128 times the sum of the
     signed ones makes up for it. Exact. */
  const i32x4 less = (i32x4)${unsigned} ^ splat_i32x4((int32_t)0x80808080);
  const i32x4 ones = splat_i32x4(0x01010101), other = (i32x4)${signed};
  i32x4 sum = splat_i32x4(0);
  __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(ones), "w"(other));
  __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(acc) : "w"(less), "w"(other));
  return acc + (sum << 7);
#endif
""",
}


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def widening(v: int) -> str:
    """`wide_i8x${v}` and `wide_u8x${v}`."""
    native = _WIDEN_NATIVE.get(v, "")
    return fill(_WIDEN, v=v, signed=fill(native, s="s"), unsigned=fill(native, s="z"))


def dot4_words(v: int) -> str:
    """`dot4_x${v}`, its twin for signed a, their plain forms, and the halves of bytes."""
    steps = "".join(
        f"  acc += (int32_t)q[{q}] * __builtin_convertvector(__builtin_shufflevector(w, w, "
        f"{_listed(range(q, 4 * v, 4))}), i32x{v});\n"
        for q in range(4)
    )
    native, one = _NATIVE.get(v, ""), f"splat_i32x{v}(a)"
    spread = f"(quads){one}"
    return fill(
        _DOT4,
        v=v,
        four=4 * v,
        steps=steps,
        native=fill(native, a="u8", w="i8", pair=f"{spread}, (quads)w", unsigned=one, signed="w"),
        native_signed=fill(
            native, a="i8", w="u8", pair=f"(quads)w, {spread}", unsigned="w", signed=one
        ),
    )
