"""Ragged multi-head attention in C: one sequence and one head at a time, no padding between
sequences.

In: the attention operator and its schedule. Out: a `Part`. Never here: masks for padded batches.

Per head the keys are turned to [head_size][keys] once, so that scores of one query come out as
whole vectors along the keys. A block of `qr` queries then has its scores, softmax and weighted sum
of values done while they are in the first cache.
"""

from __future__ import annotations

from kernelgen.emit.part import BAD_OFFSETS, Part, c_float, fill, must_divide
from kernelgen.emit.rows import CHECK_OFFSETS
from kernelgen.ops.attention import Attention
from kernelgen.schedule.schedule import Schedule

_TEXT = """
/* ---- ${name}: softmax(q k^T * ${scale_text}) v
   per sequence and head, ${heads} heads of ${d}
   schedule ${schedule} */
enum {
  ${p}_D = ${d},
  ${p}_H = ${hidden},
  ${p}_STRIDE = 3 * ${hidden},
  ${p}_STEP = ${kv} * ${v}
};

static int64_t ${p}_packed_floats(void) { return 0; }
static void ${p}_pack(const void *const *weight, float *packed) { (void)weight; (void)packed; }

INLINE int64_t ${p}_padded(int64_t length) {
  return (length + ${p}_STEP - 1) / ${p}_STEP * ${p}_STEP;
}
/* Keys of one head, turned, and the scores of one block of queries, for the longest sequence. */
static int64_t ${p}_scratch_floats(const int64_t *dim) {
  return (${p}_D + ${qr}) * ${p}_padded(dim[1] - dim[0] + 1);
}

/* Keys [length][stride] to [D][padded]; columns past the length are zero. */
INLINE void ${p}_turn(const float *restrict k, int64_t length, int64_t padded, float *restrict kt) {
  int64_t j = 0;
  for (; j + ${v} <= length; j += ${v})
    for (int d = 0; d < ${p}_D; d += ${v}) {
      ${vec} x[${v}];
#pragma GCC unroll 16
      for (int i = 0; i < ${v}; i++) x[i] = load${v}(k + (j + i) * ${p}_STRIDE + d);
      ${p}_transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < ${v}; i++) store${v}(kt + (d + i) * padded + j, x[i]);
    }
  for (; j < length; j++)
    for (int d = 0; d < ${p}_D; d++) kt[d * padded + j] = k[j * ${p}_STRIDE + d];
  if (length < padded)
    for (int d = 0; d < ${p}_D; d++)
      for (int64_t i = length; i < padded; i++) kt[d * padded + i] = 0.0f;
}

INLINE void ${p}_queries(const int rows, const float *restrict q, const float *restrict kt,
                         const float *restrict v, int64_t length, int64_t padded,
                         float *restrict score, float *restrict out) {
  const ${ivec} lane = {${lanes}};
  ${vec} top[${qr}];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) top[r] = (${vec}){} - 3.0e38f;
  for (int64_t j = 0; j < padded; j += ${p}_STEP) {
    ${vec} acc[${qr}][${kv}] = {};
#pragma GCC unroll 4
    for (int d = 0; d < ${p}_D; d++) {
      ${vec} b[${kv}];
#pragma GCC unroll 16
      for (int i = 0; i < ${kv}; i++) b[i] = load${v}(kt + d * padded + j + i * ${v});
#pragma GCC unroll 16
      for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int i = 0; i < ${kv}; i++) acc[r][i] += q[r * ${p}_STRIDE + d] * b[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < ${kv}; i++) {
      /* Columns past the length weigh nothing. */
      const ${ivec} real = lane + (int32_t)(j + i * ${v}) < (int32_t)length;
#pragma GCC unroll 16
      for (int r = 0; r < rows; r++) {
        const ${vec} s = pick${v}(real, acc[r][i] * ${scale}, (${vec}){} - 3.0e38f);
        top[r] = max${v}(top[r], s);
        store${v}(score + r * padded + j + i * ${v}, s);
      }
    }
  }
  float inverse[${qr}];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    const float most = top${v}(top[r]);
    ${vec} sum = {};
    for (int64_t j = 0; j < padded; j += ${v}) {
      const ${vec} e = exp${v}_${exp}(load${v}(score + r * padded + j) - most);
      sum += e;
      store${v}(score + r * padded + j, e);
    }
    inverse[r] = 1.0f / sum${v}(sum);
  }
  ${vec} acc[${qr}][${dv}] = {};
  for (int64_t j = 0; j < length; j++) {
    ${vec} b[${dv}];
#pragma GCC unroll 16
    for (int i = 0; i < ${dv}; i++) b[i] = load${v}(v + j * ${p}_STRIDE + i * ${v});
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
      for (int i = 0; i < ${dv}; i++) acc[r][i] += score[r * padded + j] * b[i];
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
    for (int i = 0; i < ${dv}; i++) store${v}(out + r * ${p}_H + i * ${v}, acc[r][i] * inverse[r]);
}

${variants}

static int ${p}_run(const void *const *in, float *restrict out, const int64_t *dim,
                    const float *packed, float *scratch) {
  (void)packed;
  const float *qkv = in[0];
  const int64_t *offsets = in[1];
  const int64_t n = dim[0], tokens = dim[1];
  const int bad = ${p}_offsets_bad(offsets, n, tokens);
  if (bad) return bad;
  for (int64_t s = 0; s < n; s++) {
    const int64_t first = offsets[s], length = offsets[s + 1] - first;
    const int64_t padded = ${p}_padded(length), blocks = (length + ${qr} - 1) / ${qr};
    float *kt = scratch, *score = scratch + ${p}_D * padded;
    for (int head = 0; head < ${heads}; head++) {
      const float *q = qkv + first * ${p}_STRIDE + head * ${p}_D;
      const float *k = q + ${p}_H, *v = k + ${p}_H;
      float *o = out + first * ${p}_H + head * ${p}_D;
      ${p}_turn(k, length, padded, kt);
      for (int64_t b = 0; b < blocks; b++) {
        const int64_t row = b * length / blocks, rows = (b + 1) * length / blocks - row;
        switch (rows) {
${cases}
        }
      }
    }
  }
  return 0;
}
"""

_VARIANT = """\
static __attribute__((noinline)) void ${p}_queries${rows}(
    const float *q, const float *kt, const float *v, int64_t length, int64_t padded,
    float *score, float *out) {
  ${p}_queries(${rows}, q, kt, v, length, padded, score, out);
}"""

_CASE = """\
          case ${rows}:
            ${p}_queries${rows}(q + row * ${p}_STRIDE, kt, v, length, padded, score,
                                o + row * ${p}_H);
            break;"""


def transpose(prefix: str, v: int) -> str:
    """`P_transpose(x)`: a square of v vectors turned in registers, log2(v) rounds of pairwise
    shuffles.
    """
    lines = [
        f"\n/* Turns a {v} x {v} square held in {v} registers. */",
        f"INLINE void {prefix}_transpose(f32x{v} *x) {{",
    ]
    step = 1
    while step < v:
        # Round with distance `step`: rows i and i + step exchange the lanes whose bit `step`
        # differs.
        low = ", ".join(str(lane if not lane & step else v + lane - step) for lane in range(v))
        high = ", ".join(str(lane + step if not lane & step else v + lane) for lane in range(v))
        lines.append(f"  const i32x{v} low{step} = {{{low}}}, high{step} = {{{high}}};")
        lines.append("#pragma GCC unroll 16")
        lines.append(f"  for (int i = 0; i < {v}; i++)")
        lines.append(f"    if (!(i & {step})) {{")
        lines.append(f"      const f32x{v} upper = x[i], lower = x[i + {step}];")
        lines.append(f"      x[i] = __builtin_shuffle(upper, lower, low{step});")
        lines.append(f"      x[i + {step}] = __builtin_shuffle(upper, lower, high{step});")
        lines.append("    }")
        step *= 2
    lines.append("}\n")
    return "\n".join(lines)


def attention(operator: Attention, schedule: Schedule, prefix: str) -> Part:
    """Attention over ragged sequences under `schedule`."""
    v, qr, kv = (schedule.number(axis) for axis in ("vector", "qr", "kv"))
    must_divide(operator.name, "vectors", v, operator.head_size)
    values: dict[str, object] = {
        "p": prefix,
        "name": operator.name,
        "schedule": schedule.text(),
        "scale": c_float(operator.scale),
        "scale_text": f"{operator.scale:.6g}",
        "heads": operator.heads,
        "d": operator.head_size,
        "dv": operator.head_size // v,
        "hidden": operator.hidden,
        "v": v,
        "vec": f"f32x{v}",
        "ivec": f"i32x{v}",
        "lanes": ", ".join(str(lane) for lane in range(v)),
        "qr": qr,
        "kv": kv,
        "exp": schedule.word("exp"),
        "bad_offsets": BAD_OFFSETS,
    }
    rows = range(1, qr + 1)
    values["variants"] = "\n".join(fill(_VARIANT, {**values, "rows": row}) for row in rows)
    values["cases"] = "\n".join(fill(_CASE, {**values, "rows": row}) for row in rows)
    text = transpose(prefix, v) + fill(CHECK_OFFSETS, values) + fill(_TEXT, values)
    return Part(prefix, (v,), text)
