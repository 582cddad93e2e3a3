"""The vector vocabulary of generated C: types, loads, sums and GELU, in GCC vector extensions.

In: a vector width and the polynomials chosen. Out: C text. Never here: intrinsics, ISA names: the
same text serves any machine whose compiler knows the width.

Polynomials were fitted with weighted least squares (Lawson iteration) in float64 and rounded to
float32. Errors against float64, in units of 2^-24: exp poly5 1.6, poly6 0.04 (relative, before
rounding); GELU poly13 3.6, poly14 2.4 (of |x|, with rounding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelgen.emit.part import c_float, fill
from kernelgen.emit.tiles import ASSEMBLY

EXP: Mapping[str, tuple[float, ...]] = {
    "poly5": (
        1.0,
        0.9999997019767761,
        0.4999914765357971,
        0.1666763871908188,
        0.04189816117286682,
        0.008290271274745464,
    ),
    "poly6": (
        1.0,
        1.0,
        0.4999999403953552,
        0.16666430234909058,
        0.04166800528764725,
        0.008374195545911789,
        0.0013843605993315578,
    ),
}
"""exp(r) on |r| <= ln(2)/2, rising powers of r."""

GELU_EDGE = 5.3
"""Beyond it the normal distribution function is 0 or 1 to within float32."""

GELU: Mapping[str, tuple[float, ...]] = {
    "poly13": (
        0.1333925873041153,
        -0.06651831418275833,
        0.049261897802352905,
        -0.03959500417113304,
        0.0321187749505043,
        -0.025243714451789856,
        0.018672144040465355,
        -0.013393111526966095,
        0.009604721330106258,
        -0.005469465162605047,
        0.0019203941337764263,
        -0.0014271460240706801,
        0.0016701706917956471,
        -0.0006543371709994972,
    ),
    "poly14": (
        0.1333925575017929,
        -0.06651850789785385,
        0.04926416650414467,
        -0.03958889842033386,
        0.03207945451140404,
        -0.025298602879047394,
        0.018926354125142097,
        -0.013184253126382828,
        0.008826321922242641,
        -0.0058519188314676285,
        0.0031382322777062654,
        -0.0010937689803540707,
        0.000729211897123605,
        -0.0007653284119442105,
        0.00028459198074415326,
    ),
}
"""(normal distribution function(x) - 1/2) / x, rising powers of s = 2 (x / edge)^2 - 1, |x| <=
GELU_EDGE.
"""

HEADER = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
/* A generated file carries the whole vocabulary; an operator may leave a word of it unused. */
#define WORD static inline __attribute__((always_inline, unused))
"""

_TYPES = """
/* ${v} floats in one register. An _any is the same at an address that is only float-aligned. */
typedef float f32x${v} __attribute__((vector_size(${bytes}), may_alias));
typedef float f32x${v}_any __attribute__((vector_size(${bytes}), aligned(4), may_alias));
typedef int32_t i32x${v} __attribute__((vector_size(${bytes}), may_alias));
typedef int16_t h16x${v} __attribute__((vector_size(${half})));

WORD f32x${v} load${v}(const float *p) { return *(const f32x${v}_any *)p; }
WORD void store${v}(float *p, f32x${v} x) { *(f32x${v}_any *)p = x; }
WORD f32x${v} pick${v}(i32x${v} mask, f32x${v} yes, f32x${v} no) {
  return (f32x${v})(((i32x${v})yes & mask) | ((i32x${v})no & ~mask));
}
WORD f32x${v} max${v}(f32x${v} x, f32x${v} y) { return pick${v}(x > y, x, y); }
WORD f32x${v} min${v}(f32x${v} x, f32x${v} y) { return pick${v}(x < y, x, y); }
/* Sum and maximum over the lanes, by halves: the order is fixed, so results repeat bit for bit. */
WORD float sum${v}(f32x${v} x) {
${sum_steps}  return x[0];
}
WORD float top${v}(f32x${v} x) {
${top_steps}  return x[0];
}
"""

_GELU = """
/* x times the normal distribution function of x: an odd function plus one half, flat beyond
   |x| = ${edge}. */
WORD f32x${v} gelu${v}_${name}(f32x${v} x) {
  f32x${v} c = max${v}(min${v}(x, (f32x${v}){} + ${edge_f}), (f32x${v}){} - ${edge_f});
  f32x${v} s = c * c * ${squeeze} - 1.0f;
  f32x${v} p = (f32x${v}){} + ${first};
${steps}  return x * (p * c + 0.5f);
}
"""


def prelude(
    widths: Sequence[int],
    gelus: Sequence[str] = (),
    *,
    tiles: bool = False,
) -> str:
    """Types and functions for the vector `widths` (floats), with the named polynomials."""
    text = [HEADER, ASSEMBLY if tiles else ""]
    for v in sorted(set(widths)):
        text.append(_types(v))
        text.extend(_gelu(v, name) for name in sorted(set(gelus)))
    return "".join(text)


def _types(v: int) -> str:
    def steps(join: str) -> str:
        lines, half = [], v // 2
        while half:
            lanes = ", ".join(str((lane + half) % v) for lane in range(v))
            other = f"__builtin_shuffle(x, (i32x{v}){{{lanes}}})"
            lines.append(f"  x = {join.format(other=other, v=v)};\n")
            half //= 2
        return "".join(lines)

    values = {
        "v": v,
        "bytes": 4 * v,
        "half": 2 * v,
        "sum_steps": steps("x + {other}"),
        "top_steps": steps("max{v}(x, {other})"),
    }
    return fill(_TYPES, values)


def _horner(coefficients: Sequence[float], variable: str) -> tuple[str, str]:
    """First value and the remaining steps of Horner's rule, highest power first."""
    first, *rest = reversed(coefficients)
    steps = "".join(f"  p = p * {variable} + {c_float(value)};\n" for value in rest)
    return c_float(first), steps


def _gelu(v: int, name: str) -> str:
    first, steps = _horner(GELU[name], "s")
    values = {
        "v": v,
        "name": name,
        "edge": GELU_EDGE,
        "edge_f": c_float(GELU_EDGE),
        "squeeze": c_float(2.0 / GELU_EDGE**2),
        "first": first,
        "steps": steps,
    }
    return fill(_GELU, values)
