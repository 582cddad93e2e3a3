"""LayerNorm of one row in C.

In: sizes. Out: one C function. Never here: matrix products.
"""

from __future__ import annotations

from kernelgen.emit.part import c_float, fill

_NORM = """
/* LayerNorm of one row of ${n}: mean first, then the squares of what is left, so that a large mean
   costs no accuracy. */
INLINE void ${p}_norm(const float *x, const float *restrict gamma, const float *restrict beta,
                      float *out) {
  ${vec} row[${count}], sum[4] = {};
#pragma GCC unroll 64
  for (int i = 0; i < ${count}; i++) {
    row[i] = load${v}(x + i * ${v});
    sum[i % 4] += row[i];
  }
  const float mean = sum${v}((sum[0] + sum[1]) + (sum[2] + sum[3])) * ${inverse};
  sum[0] = sum[1] = sum[2] = sum[3] = (${vec}){};
#pragma GCC unroll 64
  for (int i = 0; i < ${count}; i++) {
    row[i] -= mean;
    sum[i % 4] += row[i] * row[i];
  }
  const float variance = sum${v}((sum[0] + sum[1]) + (sum[2] + sum[3])) * ${inverse};
  const float scale = 1.0f / __builtin_sqrtf(variance + ${epsilon});
#pragma GCC unroll 64
  for (int i = 0; i < ${count}; i++)
    store${v}(out + i * ${v},
           row[i] * scale * load${v}(gamma + i * ${v}) + load${v}(beta + i * ${v}));
}
"""


def norm_row(prefix: str, v: int, n: int, epsilon: float) -> str:
    """`P_norm(x, gamma, beta, out)` for rows of `n`; x and out may be the same row."""
    values = {
        "p": prefix,
        "v": v,
        "vec": f"f32x{v}",
        "n": n,
        "count": n // v,
        "inverse": c_float(1.0 / n),
        "epsilon": c_float(epsilon),
    }
    return fill(_NORM, values)
