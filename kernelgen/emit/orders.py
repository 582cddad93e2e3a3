"""The larger and the smaller of two vectors in C, x > y ? x : y and x < y ? x : y lane by lane.

In: dtype, lanes. Out: C text. Never here: the scalar words.

Compilers find the one instruction for it in a lane-by-lane loop on its own, but take the loop
apart once its result goes round another loop or into one over the lanes; so it is spelled, behind
`#if`, with the plain form beside it. Elsewhere the loop falls apart altogether, and a choice by
bits is as good. For floats the instruction gives the second number when either is NaN or both are
zero, as the word says.
"""

from __future__ import annotations

from kernelgen.emit.part import fill

_PLAIN = """\
WORD ${t}x${v} ${name}_${t}x${v}(${t}x${v} x, ${t}x${v} y) {
#ifdef __SSE__
  for (int i = 0; i < ${v}; i++) x[i] = x[i] ${sign} y[i] ? x[i] : y[i];
  return x;
#else
  const i32x${v} first = x ${sign} y;
  return (${t}x${v})(((i32x${v})x & first) | ((i32x${v})y & ~first));
#endif
}
"""

_NATIVE = """\
WORD ${t}x${v} ${word}_${t}x${v}(${t}x${v} x, ${t}x${v} y) {
#if defined(${isa}) && !defined(__clang__)
  typedef ${own} own __attribute__((vector_size(4 * ${v})));
  return (${t}x${v})${call};
#else
  return ${word}_plain_${t}x${v}(x, y);
#endif
}
"""

_CALLS = {
    ("f32", 4): ("__SSE__", "__builtin_ia32_${word}ps((own)x, (own)y)"),
    ("f32", 8): ("__AVX__", "__builtin_ia32_${word}ps256((own)x, (own)y)"),
    # The last argument: rounding as it is set, which no order needs.
    ("f32", 16): (
        "__AVX512F__",
        "__builtin_ia32_${word}ps512_mask((own)x, (own)y, (own){}, -1, 4)",
    ),
    ("i32", 4): ("__SSE4_1__", "__builtin_ia32_p${word}sd128((own)x, (own)y)"),
    ("i32", 8): ("__AVX2__", "__builtin_ia32_p${word}sd256((own)x, (own)y)"),
    ("i32", 16): ("__AVX512F__", "__builtin_ia32_p${word}sd512_mask((own)x, (own)y, (own){}, -1)"),
}


def orders(lanes: int) -> str:
    """`max` and `min` of f32 and i32 vectors of `lanes`."""
    return "".join(
        _order(t, word, sign, lanes)
        for word, sign in (("max", ">"), ("min", "<"))
        for t in ("f32", "i32")
    )


def _order(t: str, word: str, sign: str, v: int) -> str:
    values = {"t": t, "v": v, "word": word, "sign": sign}
    if (t, v) not in _CALLS:
        return fill(_PLAIN, {**values, "name": word})
    isa, call = _CALLS[t, v]
    own = "float" if t == "f32" else "int"
    native = fill(_NATIVE, {**values, "isa": isa, "own": own, "call": fill(call, values)})
    return fill(_PLAIN, {**values, "name": f"{word}_plain"}) + native
