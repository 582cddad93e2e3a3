"""Matrix products in C: packed weight panels, a register tile, and the epilogue while rows are hot.

In: a GEMM operator and its schedule. Out: a `Part`.
Never here: a choice; every number in the text comes from the operator or the schedule.

The weights lie in panels of `nr` vectors: panel after panel, k after k, so one pass streams them in
address order. A tile keeps rows x nr sums in registers and walks k once. A panel serves all tiles
of a row block while it is in cache.
"""

from __future__ import annotations

from kernelgen.emit.part import Part, fill, must_divide
from kernelgen.emit.rows import norm_row
from kernelgen.emit.tiles import LANES, SIDE, scratch_floats, tile_functions
from kernelgen.ops.gemm import GemmBias, GemmBiasGelu, GemmBiasResidualLayernorm
from kernelgen.schedule.schedule import Schedule

_PACK = """
/* ---- ${name}: out[m][${n}] = ${meaning}, inner length ${k} ----
   schedule ${schedule} */
enum {
  ${p}_K = ${k},
  ${p}_N = ${n},
  ${p}_PANEL = ${panel},
  ${p}_WEIGHTS = ${p}_K * ${p}_N
};

static int64_t ${p}_packed_floats(void) { return ${p}_WEIGHTS + ${vectors} * ${p}_N; }
static int64_t ${p}_scratch_floats(const int64_t *dim) {
  ${scratch}
}

/* Weights [k][n] to panels [n / panel][k][panel]; the vectors of length n follow. */
static void ${p}_pack(const void *const *weight, float *packed) {
  const float *w = weight[0];
  for (int64_t panel = 0; panel < ${p}_N; panel += ${p}_PANEL)
    for (int64_t k = 0; k < ${p}_K; k++, packed += ${p}_PANEL)
      memcpy(packed, w + k * ${p}_N + panel, sizeof(float) * ${p}_PANEL);
  for (int i = 1; i <= ${vectors}; i++, packed += ${p}_N)
    memcpy(packed, weight[i], sizeof(float) * ${p}_N);
}
"""

_TILE = """
/* rows x ${panel} results from `rows` rows of a and one panel of w.
   Weights needed later are fetched meanwhile: from `ahead`, `pace` floats further with every k. */
INLINE void ${p}_tile(const int rows, const float *restrict a, const float *restrict w,
                      const float *ahead, int64_t pace, const float *restrict bias,${residual_arg}
                      float *restrict out) {
  ${vec} acc[${mr}][${nr}];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
    for (int j = 0; j < ${nr}; j++) acc[r][j] = (${vec}){};
  for (int64_t k = 0; k < ${p}_K; k += ${ku}) {
#pragma GCC unroll 16
    for (int u = 0; u < ${ku}; u++) {
      ${vec} b[${nr}];
#pragma GCC unroll 16
      for (int j = 0; j < ${nr}; j++) {
        b[j] = *(const ${vec} *)(w + (k + u) * ${p}_PANEL + j * ${v});
      }${prefetch}
#pragma GCC unroll 16
      for (int r = 0; r < rows; r++) {
        const float x = a[r * ${p}_K + k + u];
#pragma GCC unroll 16
        for (int j = 0; j < ${nr}; j++) acc[r][j] += x * b[j];
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
    for (int j = 0; j < ${nr}; j++) {
      const ${vec} y = acc[r][j] + ${load}(bias + j * ${v});
      ${store}(out + r * ${p}_N + j * ${v}, ${result});
    }
}
"""

_VARIANT = """\
static __attribute__((noinline)) void ${p}_rows${rows}(
    const float *a, const float *w, const float *ahead, int64_t pace,
    const float *bias,${residual_arg} float *out) {
  ${p}_tile(${rows}, a, w, ahead, pace, bias,${passed} out);
}"""

_CASE = """\
    case ${rows}:
      ${p}_rows${rows}(a, w, ahead, pace, bias,${passed} out);
      break;"""

_ROWS = """
/* One function per number of rows, so that every tile keeps its sums in registers. */
${variants}
static void ${p}_rows(int64_t rows, const float *a, const float *w, const float *ahead,
                      int64_t pace, const float *bias,${residual_arg} float *out) {
  switch (rows) {
${cases}
  }
}
"""

_RUN_PANEL = """
/* Row blocks of ${block}; within a block every panel is read once and used by all its tiles. */
static int ${p}_run(const void *const *in, float *restrict out, const int64_t *dim,
                    const float *packed, float *scratch) {
${tile_run}  const float *a = in[0];${residual_in}
  const float *bias = packed + ${p}_WEIGHTS;
  const int64_t m = dim[0];
  for (int64_t first = 0; first < m; first += ${block}) {
    const int64_t rows = m - first < ${block} ? m - first : ${block};
    const int64_t tiles = (rows + ${mr} - 1) / ${mr};
    const int64_t pace = (${p}_PANEL + tiles - 1) / tiles;
    for (int64_t panel = 0; panel < ${p}_N; panel += ${p}_PANEL) {
      const float *w = packed + panel * ${p}_K;
      for (int64_t t = 0; t < tiles; t++) {
${span}
        /* A lone tile fetches a fixed distance ahead; several share out the next panel. */
        const float *ahead =
            tiles == 1 ? w + ${distance} : w + ${p}_K * (${p}_PANEL + t * pace);
        ${p}_rows(count, a + row * ${p}_K, w, ahead, pace, bias + panel,${residual_use}
                  out + row * ${p}_N + panel);
      }
    }${after}
  }
  return 0;
}
"""

_RUN_ROWS = """
/* Tiles of rows outside, panels inside: a tile's rows stay in the first cache, and the weights
   stream past every tile. */
static int ${p}_run(const void *const *in, float *restrict out, const int64_t *dim,
                    const float *packed, float *scratch) {
${tile_run}  const float *a = in[0];${residual_in}
  const float *bias = packed + ${p}_WEIGHTS;
  const int64_t m = dim[0], first = 0, rows = m;
  const int64_t tiles = (rows + ${mr} - 1) / ${mr};
  for (int64_t t = 0; t < tiles; t++) {
${span}
    for (int64_t panel = 0; panel < ${p}_N; panel += ${p}_PANEL) {
      const float *w = packed + panel * ${p}_K;
      ${p}_rows(count, a + row * ${p}_K, w, w + ${distance}, ${p}_PANEL,
                bias + panel,${residual_use}
                out + row * ${p}_N + panel);
    }
  }${after}
  return 0;
}
"""

_SPAN = {
    # Tiles of nearly equal height: no tile is so thin that its few sums wait for each other.
    "balanced": """\
        const int64_t row = first + t * rows / tiles;
        const int64_t count = first + (t + 1) * rows / tiles - row;""",
    # Full tiles first, the rest last.
    "last": """\
        const int64_t row = first + t * ${mr};
        const int64_t count = first + rows - row < ${mr} ? first + rows - row : ${mr};""",
}

_NORM = """
    for (int64_t row = first; row < first + rows; row++)
      ${p}_norm(out + row * ${p}_N, bias + ${p}_N, bias + 2 * ${p}_N,
                out + row * ${p}_N);"""


def gemm(operator: GemmBias, schedule: Schedule, prefix: str) -> Part:
    """The C of a product with bias, GELU, or residual and LayerNorm under `schedule`."""
    v, mr, nr = (schedule.number(axis) for axis in ("vector", "mr", "nr"))
    must_divide(operator.name, "panels", nr * v, operator.n)
    must_divide(operator.name, "steps of k", schedule.number("ku"), operator.k)
    normed = isinstance(operator, GemmBiasResidualLayernorm)
    distance = schedule.number("prefetch")
    level = {"l1": 3, "l2": 2}[schedule.word("fetch")]
    result, meaning = "y", "a w + bias"
    if isinstance(operator, GemmBiasGelu):
        result = f"gelu{v}_{schedule.word('gelu')}(y)"
        meaning = "GELU(a w + bias)"
    if normed:
        result = f"y + load{v}(residual + r * {prefix}_N + j * {v})"
        meaning = "LayerNorm(a w + bias + residual)"
    # One prefetch per cache line of a panel row, and none at all when the schedule says so.
    lines = max(1, nr * v // 16)
    fetch = "\n      (void)ahead, (void)pace;"
    if distance:
        fetch = "".join(
            f"\n      __builtin_prefetch(ahead + (k + u) * pace"
            f" + {i} * pace / {lines}, 0, {level});"
            for i in range(lines)
        )
    values: dict[str, object] = {
        "p": prefix,
        "name": operator.name,
        "schedule": schedule.text(),
        "meaning": meaning,
        "k": operator.k,
        "n": operator.n,
        "panel": nr * v,
        "vectors": 3 if normed else 1,
        "vec": f"f32x{v}",
        "load": f"load{v}",
        "store": f"store{v}",
        "v": v,
        "mr": mr,
        "nr": nr,
        "ku": schedule.number("ku"),
        "block": schedule.number("rows"),
        "distance": distance // 4,
        "prefetch": fetch,
        "result": result,
        "residual_arg": "\n                      const float *restrict residual," if normed else "",
        "residual_in": "\n  const float *residual = in[1];" if normed else "",
        "residual_use": f"\n                  residual + row * {prefix}_N + panel,"
        if normed
        else "",
    }
    passed = " residual," if normed else ""
    rows = range(1, mr + 1)
    values["variants"] = "\n".join(
        fill(_VARIANT, {**values, "rows": r, "passed": passed}) for r in rows
    )
    values["cases"] = "\n".join(fill(_CASE, {**values, "rows": r, "passed": passed}) for r in rows)
    values["span"] = fill(_SPAN[schedule.word("tail")], values)
    values["after"] = fill(_NORM, values) if normed else ""
    gelu = schedule.word("gelu") if isinstance(operator, GemmBiasGelu) else None
    tiles = _tiles(operator, schedule, values)
    text = [fill(_PACK, values)]
    if isinstance(operator, GemmBiasResidualLayernorm):
        text.append(norm_row(prefix, v, operator.n, operator.epsilon))
    if tiles:
        text.append(tile_functions({**values, "from": tiles}, gelu=gelu, normed=normed))
    run = _RUN_PANEL if schedule.word("order") == "panel" else _RUN_ROWS
    text += [fill(_TILE, values), fill(_ROWS, values), fill(run, values)]
    return Part(prefix, (v,), "".join(text))


def _tiles(operator: GemmBias, schedule: Schedule, values: dict[str, object]) -> int:
    """Adds what the templates need for the matrix unit; returns the row count it starts at, 0 for
    never.
    """
    start = schedule.number("tiles")
    values |= {
        "scratch": "(void)dim;\n  return 0;",
        "tile_run": "  (void)scratch;\n",
    }
    if not start:
        return 0
    must_divide(operator.name, "tiles", SIDE, operator.k)
    must_divide(operator.name, "tiles", SIDE, operator.n)
    must_divide(operator.name, "tiles", LANES, schedule.number("vector"))
    p = values["p"]
    values |= {
        "scratch": scratch_floats(p, schedule.number("rows"), start),
        "tile_run": (
            f"  if (dim[0] >= {start}) return {p}_run_tiles(in, out, dim[0], packed, scratch);\n"
        ),
    }
    return start
