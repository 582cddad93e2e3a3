"""Row-wise operators in C: LayerNorm of one row, the embedding lookup, mean pooling.

In: operator and schedule. Out: `Part` records, or one C function. Never here: matrix products.
"""

from __future__ import annotations

from kernelgen.emit.part import BAD_ID, BAD_LENGTH, BAD_OFFSETS, Part, c_float, fill, must_divide
from kernelgen.ops.embed import EmbedLayernorm
from kernelgen.ops.pool import MeanPool
from kernelgen.schedule.schedule import Schedule

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

CHECK_OFFSETS = """
/* 0 when offsets are sound: they begin at 0, rise, end at the token count. */
INLINE int ${p}_offsets_bad(const int64_t *offsets, int64_t n, int64_t tokens) {
  if (n < 1 || offsets[0] != 0 || offsets[n] != tokens) return ${bad_offsets};
  for (int64_t i = 0; i < n; i++)
    if (offsets[i + 1] <= offsets[i]) return ${bad_offsets};
  return 0;
}
"""

_EMBED = """
/* ---- ${name}: word + position + token type, then LayerNorm ----
   schedule ${schedule} */
enum { ${p}_VOCABULARY = ${vocabulary}, ${p}_POSITIONS = ${positions}, ${p}_H = ${n} };

static int64_t ${p}_packed_floats(void) {
  return (int64_t)(${p}_VOCABULARY + ${p}_POSITIONS + 2) * ${p}_H;
}
static int64_t ${p}_scratch_floats(const int64_t *dim) { (void)dim; return 0; }

/* Word table; position table with the token type already added; gamma; beta. */
static void ${p}_pack(const void *const *weight, float *packed) {
  memcpy(packed, weight[0], sizeof(float) * ${p}_VOCABULARY * ${p}_H);
  packed += (int64_t)${p}_VOCABULARY * ${p}_H;
  const float *position = weight[1], *type = weight[2];
  for (int64_t i = 0; i < ${p}_POSITIONS; i++)
    for (int64_t h = 0; h < ${p}_H; h++) *packed++ = position[i * ${p}_H + h] + type[h];
  memcpy(packed, weight[3], sizeof(float) * ${p}_H);
  memcpy(packed + ${p}_H, weight[4], sizeof(float) * ${p}_H);
}

static int ${p}_run(const void *const *in, float *restrict out, const int64_t *dim,
                    const float *packed, float *scratch) {
  (void)scratch;
  const int64_t *ids = in[0], *offsets = in[1];
  const int64_t n = dim[0], tokens = dim[1];
  const float *position = packed + (int64_t)${p}_VOCABULARY * ${p}_H;
  const float *gamma = position + (int64_t)${p}_POSITIONS * ${p}_H, *beta = gamma + ${p}_H;
  const int bad = ${p}_offsets_bad(offsets, n, tokens);
  if (bad) return bad;
  for (int64_t t = 0; t < tokens; t++)
    if (ids[t] < 0 || ids[t] >= ${p}_VOCABULARY) return ${bad_id};
  for (int64_t i = 0; i < n; i++) {
    if (offsets[i + 1] - offsets[i] > ${p}_POSITIONS) return ${bad_length};
    for (int64_t t = offsets[i]; t < offsets[i + 1]; t++) {
      const float *word = packed + ids[t] * ${p}_H;
      const float *place = position + (t - offsets[i]) * ${p}_H;
      float *row = out + t * ${p}_H;${prefetch}
#pragma GCC unroll 8
      for (int h = 0; h < ${p}_H; h += ${v})
        store${v}(row + h, load${v}(word + h) + load${v}(place + h));
      ${p}_norm(row, gamma, beta, row);
    }
  }
  return 0;
}
"""

_EMBED_PREFETCH = """
      /* Rows of the word table lie anywhere in memory: ask for a later token's row now. */
      if (t + ${ahead} < tokens)
        for (int h = 0; h < ${p}_H; h += 16)
          __builtin_prefetch(packed + ids[t + ${ahead}] * ${p}_H + h);"""

_POOL = """
/* ---- ${name}: mean of the rows of every sequence ----
   schedule ${schedule} */
static int64_t ${p}_packed_floats(void) { return 0; }
static int64_t ${p}_scratch_floats(const int64_t *dim) { (void)dim; return 0; }
static void ${p}_pack(const void *const *weight, float *packed) { (void)weight; (void)packed; }

static int ${p}_run(const void *const *in, float *restrict out, const int64_t *dim,
                    const float *packed, float *scratch) {
  (void)packed;
  (void)scratch;
  const float *states = in[0];
  const int64_t *offsets = in[1];
  const int64_t n = dim[0], tokens = dim[1];
  const int bad = ${p}_offsets_bad(offsets, n, tokens);
  if (bad) return bad;
  for (int64_t i = 0; i < n; i++) {
    const float inverse = 1.0f / (float)(offsets[i + 1] - offsets[i]);
    /* ${group} vectors of columns at a time stay in registers while the rows pass. */
    for (int h = 0; h < ${n}; h += ${group} * ${v}) {
      ${vec} sum[${group}] = {};
      for (int64_t t = offsets[i]; t < offsets[i + 1]; t++)
#pragma GCC unroll 64
        for (int j = 0; j < ${group}; j++) sum[j] += load${v}(states + t * ${n} + h + j * ${v});
#pragma GCC unroll 64
      for (int j = 0; j < ${group}; j++) store${v}(out + i * ${n} + h + j * ${v}, sum[j] * inverse);
    }
  }
  return 0;
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


def embed(operator: EmbedLayernorm, schedule: Schedule, prefix: str) -> Part:
    """Embedding lookup, sum and LayerNorm, token by token."""
    v, ahead = schedule.number("vector"), schedule.number("ahead")
    must_divide(operator.name, "vectors", v, operator.hidden)
    values: dict[str, object] = {
        "p": prefix,
        "name": operator.name,
        "schedule": schedule.text(),
        "vocabulary": operator.vocabulary,
        "positions": operator.positions,
        "n": operator.hidden,
        "v": v,
        "ahead": ahead,
        "bad_id": BAD_ID,
        "bad_length": BAD_LENGTH,
        "bad_offsets": BAD_OFFSETS,
    }
    values["prefetch"] = fill(_EMBED_PREFETCH, values) if ahead else ""
    text = norm_row(prefix, v, operator.hidden, operator.epsilon)
    return Part(prefix, (v,), text + fill(CHECK_OFFSETS, values) + fill(_EMBED, values))


def pool(operator: MeanPool, schedule: Schedule, prefix: str) -> Part:
    """Mean over the rows of every sequence."""
    v = schedule.number("vector")
    must_divide(operator.name, "groups", v * schedule.number("group"), operator.hidden)
    values = {
        "p": prefix,
        "name": operator.name,
        "schedule": schedule.text(),
        "n": operator.hidden,
        "v": v,
        "vec": f"f32x{v}",
        "group": schedule.number("group"),
        "bad_offsets": BAD_OFFSETS,
    }
    return Part(prefix, (v,), fill(CHECK_OFFSETS, values) + fill(_POOL, values))
