"""Matrix products in C: packed weight panels, a register tile, and the epilogue while rows are hot.

In: a GEMM operator and its schedule. Out: a `Part`.
Never here: a choice; every number in the text comes from the operator or the schedule.

The weights lie in strips one vector wide: strip after strip, k after k. Few rows are one tall tile
of a single strip, so that the weights pass once, in address order. More rows are cut into tiles of
rows x `nr` strips, which need fewer loads for each product; a panel of `nr` strips serves all tiles
of a row block while it is in cache.
"""

from __future__ import annotations

from kernelgen.emit.part import Part, fill, must_divide
from kernelgen.emit.rows import norm_row
from kernelgen.emit.tiles import LANES, SIDE, scratch_floats, tile_functions
from kernelgen.ops.gemm import GemmBias, GemmBiasGelu, GemmBiasResidualLayernorm
from kernelgen.schedule.schedule import Schedule

TALLEST = {16: 16, 8: 6, 4: 6}
"""Most rows of the tall tile, by floats of a vector: more rows of narrow vectors would need more
loads than they save.
"""

_PACK = """
/* ---- ${name}: out[m][${n}] = ${meaning}, inner length ${k} ----
   schedule ${schedule} */
enum {
  ${p}_K = ${k},
  ${p}_N = ${n},
  ${p}_STRIP = ${p}_K * ${v},
  ${p}_PANEL = ${panel},
  ${p}_WEIGHTS = ${p}_K * ${p}_N
};

static int64_t ${p}_packed_floats(void) { return ${p}_WEIGHTS + ${vectors} * ${p}_N; }
static int64_t ${p}_scratch_floats(const int64_t *dim) {
  ${scratch}
}

/* Weights [k][n] to strips [n / ${v}][k][${v}]; the vectors of length n follow. */
static void ${p}_pack(const void *const *weight, float *packed) {
  const float *w = weight[0];
  for (int64_t n = 0; n < ${p}_N; n += ${v})
    for (int64_t k = 0; k < ${p}_K; k++, packed += ${v})
      memcpy(packed, w + k * ${p}_N + n, sizeof(float) * ${v});
  for (int i = 1; i <= ${vectors}; i++, packed += ${p}_N)
    memcpy(packed, weight[i], sizeof(float) * ${p}_N);
}
"""

_TILE = """
/* rows x ${columns} results from `rows` rows of a and ${strips} of w.
   Weights needed later are fetched meanwhile: from `ahead`, `pace` floats further with every k. */
INLINE void ${p}_${kind}_tile(const int rows, const float *restrict a, const float *restrict w,
                      const float *ahead, int64_t pace, const float *restrict bias,${residual_arg}
                      float *restrict out) {
  ${vec} acc[${tall}][${wide}];
#pragma GCC unroll 32
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 32
    for (int j = 0; j < ${wide}; j++) acc[r][j] = (${vec}){};
  for (int64_t k = 0; k < ${p}_K; k += ${ku}) {
#pragma GCC unroll 32
    for (int u = 0; u < ${ku}; u++) {
      ${vec} b[${wide}];
#pragma GCC unroll 32
      for (int j = 0; j < ${wide}; j++) {
        b[j] = *(const ${vec} *)(w + j * ${p}_STRIP + (k + u) * ${v});
      }${prefetch}
#pragma GCC unroll 32
      for (int r = 0; r < rows; r++) {
        const float x = a[r * ${p}_K + k + u];
#pragma GCC unroll 32
        for (int j = 0; j < ${wide}; j++) acc[r][j] += x * b[j];
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 32
    for (int j = 0; j < ${wide}; j++) {
      const ${vec} y = acc[r][j] + ${load}(bias + j * ${v});
      ${store}(out + r * ${p}_N + j * ${v}, ${result});
    }
}
"""

_VARIANT = """\
static __attribute__((noinline)) void ${p}_${kind}${rows}(
    const float *a, const float *w, const float *ahead, int64_t pace,
    const float *bias,${residual_arg} float *out) {
  ${p}_${kind}_tile(${rows}, a, w, ahead, pace, bias,${passed} out);
}"""

_CASE = """\
    case ${rows}:
      ${p}_${kind}${rows}(a, w, ahead, pace, bias,${passed} out);
      break;"""

_ROWS = """
/* One function per number of rows, so that every tile keeps its sums in registers. */
${variants}
static void ${p}_${kind}(int64_t rows, const float *a, const float *w, const float *ahead,
                      int64_t pace, const float *bias,${residual_arg} float *out) {
  switch (rows) {
${cases}
  }
}
"""

_LONE = """
  if (m <= ${most}) {
    for (int64_t n = 0; n < ${p}_N; n += ${v}) {
      const float *w = packed + n * ${p}_K;
      ${p}_lone(m, a, w, w + ${distance}, ${v}, bias + n,${residual_lone} out + n);
    }${lone_after}
    return 0;
  }"""

_RUN_PANEL = """
/* Row blocks of ${block}; within a block every panel is read once and used by all its tiles. */
static int ${p}_run(const void *const *in, float *restrict out, const int64_t *dim,
                    const float *packed, float *scratch) {
${tile_run}  const float *a = in[0];${residual_in}
  const float *bias = packed + ${p}_WEIGHTS;
  const int64_t m = dim[0];${lone}
  for (int64_t first = 0; first < m; first += ${block}) {
    const int64_t rows = m - first < ${block} ? m - first : ${block};
    const int64_t tiles = (rows + ${mr} - 1) / ${mr};
    const int64_t pace = (${p}_PANEL + tiles - 1) / tiles;
    for (int64_t panel = 0; panel < ${p}_N; panel += ${p}_PANEL) {
      const float *w = packed + panel * ${p}_K;
      for (int64_t t = 0; t < tiles; t++) {
${span}
        /* The tiles share out the fetching of the next panel. */
        const float *ahead = w + ${p}_K * (${p}_PANEL + t * pace);
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
  const int64_t m = dim[0];${lone}
  const int64_t first = 0, rows = m;
  const int64_t tiles = (rows + ${mr} - 1) / ${mr};
  for (int64_t t = 0; t < tiles; t++) {
${span}
    for (int64_t panel = 0; panel < ${p}_N; panel += ${p}_PANEL) {
      const float *w = packed + panel * ${p}_K;
      ${p}_rows(count, a + row * ${p}_K, w, w + ${p}_K * ${p}_PANEL, ${p}_PANEL,
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
        "most": TALLEST[v],
        "result": result,
        "residual_arg": "\n                      const float *restrict residual," if normed else "",
        "residual_in": "\n  const float *residual = in[1];" if normed else "",
        "residual_use": f"\n                  residual + row * {prefix}_N + panel,"
        if normed
        else "",
    }
    values["lone_after"] = (
        fill("\n    const int64_t first = 0, rows = m;" + _NORM, values) if normed else ""
    )
    values["residual_lone"] = " residual + n," if normed else ""
    values["span"] = fill(_SPAN[schedule.word("tail")], values)
    values["after"] = fill(_NORM, values) if normed else ""
    values["lone"] = fill(_LONE, values)
    gelu = schedule.word("gelu") if isinstance(operator, GemmBiasGelu) else None
    tiles = _tiles(operator, schedule, values)
    text = [fill(_PACK, values)]
    if isinstance(operator, GemmBiasResidualLayernorm):
        text.append(norm_row(prefix, v, operator.n, operator.epsilon))
    if tiles:
        text.append(tile_functions({**values, "from": tiles}, gelu=gelu, normed=normed))
    run = _RUN_PANEL if schedule.word("order") == "panel" else _RUN_ROWS
    text += [
        _kernels(values, "lone", TALLEST[v], 1, level),
        _kernels(values, "rows", mr, nr, level),
        fill(run, values),
    ]
    return Part(prefix, (v,), "".join(text))


def _kernels(values: dict[str, object], kind: str, tall: int, wide: int, level: int) -> str:
    """The functions for 1 to `tall` rows of `wide` strips, and the one that picks among them."""
    v = int(str(values["v"]))
    # One prefetch per cache line of a panel row, and none at all when the schedule says so.
    lines = max(1, wide * v // 16)
    fetch = "\n      (void)ahead, (void)pace;"
    if values["distance"]:
        fetch = "".join(
            f"\n      __builtin_prefetch(ahead + (k + u) * pace"
            f" + {i} * pace / {lines}, 0, {level});"
            for i in range(lines)
        )
    own = {
        **values,
        "kind": kind,
        "tall": tall,
        "wide": wide,
        "columns": wide * v,
        "strips": "one strip" if wide == 1 else f"{wide} strips",
        "prefetch": fetch,
        "passed": " residual," if values["residual_in"] else "",
    }
    rows = range(1, tall + 1)
    own["variants"] = "\n".join(fill(_VARIANT, {**own, "rows": row}) for row in rows)
    own["cases"] = "\n".join(fill(_CASE, {**own, "rows": row}) for row in rows)
    return fill(_TILE, own) + fill(_ROWS, own)


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
