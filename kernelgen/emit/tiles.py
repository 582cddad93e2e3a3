"""Matrix products on the matrix unit of the CPU (AMX), at float32 accuracy.

In: a GEMM operator and its schedule. Out: C text that the GEMM emitter places next to its own.
Never here: lower accuracy. A float32 has 24 significant bits; it is split exactly into three
bfloat16 values of 8 bits each (x = high + middle + low, Henry, Tang, Heinecke 2019), and of the
nine products the six that matter at 2^-24 are summed in float32: high*high, high*middle,
middle*high, high*low, low*high, middle*middle.

The weights are split while they stream past, from the same panels that multiply-adds read: three
bfloat16 take half as much memory again as the float they came from, and memory is what a short
input waits for. The rows of `a` are split once per call.

The process must have asked the operating system for the unit (`kernelgen.machine.allow_tiles`)
before such code may run.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.emit.part import fill

SIDE = 32
"""Rows, columns and inner length of one step: two tiles of 16 rows, two of 16 columns."""

LANES = 16
"""Floats of a vector that the splitting code works with; one tile has as many columns."""

ISA = ("amx_bf16", "amx_tile")

ASSEMBLY = """
/* The matrix unit: eight tiles of 16 rows of 64 bytes. */
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::: )
#define TILE_LOAD(t, p, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t \
                   ::"r"((const void *)(p)), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, p, stride) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" \
                   ::"r"((void *)(p)), "r"((int64_t)(stride)) : "memory")
#define TILE_DOT(sum, a, w) \
  __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #a ", %%tmm" #sum :::)
#define TILE_RELEASE() __asm__ volatile("tilerelease" :::)

/* Tiles 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 weights; 2, 3 and 5 have `lower` rows. */
WORD void tile_configure(int lower) {
  struct { uint8_t palette, start, zero[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } shape = {
      .palette = 1,
      .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
      .rows = {16, 16, (uint8_t)lower, (uint8_t)lower, 16, (uint8_t)lower, 16, 16}};
  __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

typedef uint32_t u32x16 __attribute__((vector_size(64), may_alias));
/* Sums of a tile pair that still wait for bias and what follows. */
struct tile_rest { const float *sums; int64_t row, count, column; };
"""

_TEXT = """
/* ---- the same product on the matrix unit, from ${from} rows on ---- */
enum {
  ${p}_STEPS = ${p}_K / 32,  /* of 32 along k */
  ${p}_SLICE = 4,            /* steps whose split weights stay in the first cache */
  ${p}_STEP = 3 * 2 * 16 * 32 /* bfloat16 values of one step, of 32 rows or of 32 columns */
};

/* x and y, each as [high, middle, low], to to[0], to[1024], to[2048]: x in the low halves of 32
   bits, y in the high ones. With half = 0x8000 a part is rounded to nearest, with 0 it is cut:
   either way the three add up to the float, and cutting takes fewer instructions. */
INLINE void ${p}_part(u32x16 x, u32x16 y, const uint32_t half, uint16_t *to) {
  const uint32_t top = 0xffff0000u;
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) {
    const u32x16 xs = (x + half) & top, ys = (y + half) & top;
    *(u32x16 *)(to + i * 1024) = ys | (xs >> 16);
    x = (u32x16)((f32x16)x - (f32x16)xs);
    y = (u32x16)((f32x16)y - (f32x16)ys);
  }
}

/* Rows of a to [rows / 32][k / 32][high, middle, low][2 tiles][16 rows][32 k]. Rows past the last
   are not written: their sums are never read. */
static void ${p}_split(const float *restrict a, int64_t rows, uint16_t *restrict to) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < ${p}_STEPS; k++) {
      const float *x = a + r * ${p}_K + k * 32;
      ${p}_part((u32x16)load16(x), (u32x16)load16(x + 16), 0x8000,
                to + (r / 32 * ${p}_STEPS + k) * ${p}_STEP + r % 32 * 32);
    }
}

/* Rows k + i and k + i + 16 of 32 columns of w, for two of the 16 values of i. */
INLINE void ${p}_split_w(const float *w0, const float *w1, int i, uint16_t *to) {
#pragma GCC unroll 2
  for (int end = i + 2; i < end; i++) {
    const float *x = w0 + i * 16, *y = w1 + i * 16;
    ${p}_part(*(const u32x16 *)x, *(const u32x16 *)(x + 256), 0, to + i * 32);
    ${p}_part(*(const u32x16 *)y, *(const u32x16 *)(y + 256), 0, to + 512 + i * 32);
  }
}

/* Bias and what follows for rows [from, to) of finished sums. */
INLINE void ${p}_finish(const struct tile_rest *rest, int64_t from, int64_t to,
                        const float *restrict bias,${residual_arg} float *restrict out) {
  if (to > rest->count) to = rest->count;
  for (int64_t r = from; r < to; r++) {
    const int64_t at = (rest->row + r) * ${p}_N + rest->column;
#pragma GCC unroll 2
    for (int j = 0; j < 32; j += 16) {
      const f32x16 y = load16(rest->sums + r * 32 + j) + load16(bias + rest->column + j);
      store16(out + at + j, ${result});
    }
  }
}

/* One step: 24 dot products of 16 x 16 x 32 (12 where there are 16 rows only), the small ones
   first; meanwhile the weights of the next step are split. */
INLINE void ${p}_step(const int tall, const int split, const uint16_t *a, const uint16_t *w,
                      const float *w0, const float *w1, uint16_t *next) {
#define TILE_SPLIT(i) if (split) ${p}_split_w(w0, w1, i, next)
#define TILE_A(part) \\
  TILE_LOAD(4, a + part * 1024, 64); \\
  if (tall) TILE_LOAD(5, a + part * 1024 + 512, 64)
#define TILE_W(part) TILE_LOAD(6, w + part * 1024, 64); TILE_LOAD(7, w + part * 1024 + 512, 64)
#define TILE_DOTS() \\
  TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); \\
  if (tall) { TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7); }
  TILE_A(0); TILE_W(2); TILE_SPLIT(0);
  TILE_DOTS(); TILE_SPLIT(2);
  TILE_W(1);
  TILE_DOTS(); TILE_SPLIT(4);
  TILE_W(0);
  TILE_DOTS(); TILE_SPLIT(6);
  TILE_A(2);
  TILE_DOTS(); TILE_SPLIT(8);
  TILE_A(1); TILE_SPLIT(10);
  TILE_DOTS(); TILE_SPLIT(12);
  TILE_W(1);
  TILE_DOTS(); TILE_SPLIT(14);
#undef TILE_SPLIT
#undef TILE_A
#undef TILE_W
#undef TILE_DOTS
}

/* Sums over `steps` steps of k: of 32 columns and of 32 rows, or 16 where `tall` is 0. `fresh`:
   the weights come as floats and are split on the way, step s into slot s & wrap. The rest of an
   earlier pair is finished meanwhile. */
INLINE void ${p}_dots(const int tall, const int fresh, const uint16_t *a, const float *w0,
                      const float *w1, uint16_t *slots, int64_t wrap, int64_t steps, int first,
                      float *sums, const struct tile_rest *rest, const float *bias,${residual_arg}
                      float *out) {
  if (fresh)
#pragma GCC unroll 1
    for (int i = 0; i < 16; i += 2) ${p}_split_w(w0, w1, i, slots);
  if (first) {
    TILE_ZERO(0); TILE_ZERO(1);
    if (tall) { TILE_ZERO(2); TILE_ZERO(3); }
  } else {
    TILE_LOAD(0, sums, 128); TILE_LOAD(1, sums + 16, 128);
    if (tall) { TILE_LOAD(2, sums + 512, 128); TILE_LOAD(3, sums + 528, 128); }
  }
  const int64_t pace = (32 + steps - 1) / steps;
  for (int64_t s = 0; s + 1 < steps; s++) {
    w0 += 32 * 16, w1 += 32 * 16;
    ${p}_step(tall, fresh, a + s * ${p}_STEP, slots + (s & wrap) * ${p}_STEP, w0, w1,
              slots + ((s + 1) & wrap) * ${p}_STEP);
    ${p}_finish(rest, s * pace, (s + 1) * pace, bias,${passed} out);
  }
  ${p}_step(tall, 0, a + (steps - 1) * ${p}_STEP, slots + ((steps - 1) & wrap) * ${p}_STEP,
            w0, w1, slots);
  ${p}_finish(rest, (steps - 1) * pace, 32, bias,${passed} out);
  TILE_STORE(0, sums, 128); TILE_STORE(1, sums + 16, 128);
  if (tall) { TILE_STORE(2, sums + 512, 128); TILE_STORE(3, sums + 528, 128); }
}

${dots}
static int ${p}_run_tiles(const void *const *in, float *restrict out, int64_t m,
                          const float *packed, float *scratch) {
  const float *a = in[0];${residual_in}
  const float *bias = packed + ${p}_WEIGHTS;
  const int64_t blocks = (m + ${block} - 1) / ${block};
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t first = b * m / blocks, rows = (b + 1) * m / blocks - first;
    const int64_t pairs = (rows + 31) / 32;
    /* One pair walks all of k with its sums in the unit. More share a slice of split weights. */
    const int64_t slice = pairs == 1 ? ${p}_STEPS : ${p}_SLICE, wrap = pairs == 1 ? 1 : -1;
    float *sums = scratch;
    uint16_t *slots = (uint16_t *)(sums + (pairs + 1) * 1024);
    uint16_t *split = slots + ${p}_SLICE * ${p}_STEP;
    struct tile_rest rest = {};
    int64_t turn = 0;
    ${p}_split(a + first * ${p}_K, rows, split);
    tile_configure(pairs == 1 && rows > 16 ? (int)rows - 16 : 16);
    for (int64_t n = 0; n < ${p}_N; n += 32, turn += pairs) {
      const float *w0 = packed + n * ${p}_K, *w1 = w0 + ${p}_STRIP;
      for (int64_t s = 0; s < ${p}_STEPS; s += slice) {
        const int64_t steps = ${p}_STEPS - s < slice ? ${p}_STEPS - s : slice;
        for (int64_t t = 0; t < pairs; t++) {
          const int64_t count = rows - t * 32 < 32 ? rows - t * 32 : 32;
          float *own = sums + (turn + t) % (pairs + 1) * 1024;
          const int kind = 2 * (count > 16) + (t == 0);
          ${p}_kinds[kind](split + (t * ${p}_STEPS + s) * ${p}_STEP, w0 + s * 32 * 16,
                           w1 + s * 32 * 16, slots, wrap, steps, s == 0, own, &rest,
                           bias,${residual_pass} out);
          rest.count = 0;
          if (s + steps == ${p}_STEPS)
            rest = (struct tile_rest){own, first + t * 32, count, n};
        }
      }
    }
    ${p}_finish(&rest, 0, 32, bias,${passed} out);${after}
  }
  TILE_RELEASE();
  return 0;
}
"""

_KIND = """\
static __attribute__((noinline)) void ${p}_dots${tall}${fresh}(
    const uint16_t *a, const float *w0, const float *w1, uint16_t *slots, int64_t wrap,
    int64_t steps, int first, float *sums, const struct tile_rest *rest, const float *bias,
    const float *residual, float *out) {
  (void)residual;
  ${p}_dots(${tall}, ${fresh}, a, w0, w1, slots, wrap, steps, first, sums, rest, bias,${passed}
            out);
}
"""

_KINDS = """\
static void (*const ${p}_kinds[])(const uint16_t *, const float *, const float *, uint16_t *,
                                  int64_t, int64_t, int, float *, const struct tile_rest *,
                                  const float *, const float *, float *) = {
    ${p}_dots00, ${p}_dots01, ${p}_dots10, ${p}_dots11};
"""


def scratch_floats(prefix: object, block: int, start: int) -> str:
    """C statements of the scratch size for `dim[0]` rows in blocks of `block`: sums, four steps of
    split weights, the split rows.
    """
    return (
        f"const int64_t rows = dim[0] < {block} ? dim[0] : {block}, pairs = (rows + 31) / 32;\n"
        f"  return dim[0] < {start} ? 0\n"
        f"                     : (pairs + 1) * 1024 + (4 + pairs * ({prefix}_K / 32)) * 1536;"
    )


def tile_functions(values: Mapping[str, object], *, gelu: str | None, normed: bool) -> str:
    """The matrix-unit twin of a GEMM: `P_run_tiles`. `values` are the GEMM emitter's own."""
    p = values["p"]
    result = "y"
    if gelu:
        result = f"gelu16_{gelu}(y)"
    if normed:
        result = "y + load16(residual + at + j)"
    passed = " residual," if normed else ""
    kinds = "".join(
        fill(_KIND, {"p": p, "tall": tall, "fresh": fresh, "passed": passed})
        for tall in (0, 1)
        for fresh in (0, 1)
    )

    return fill(
        _TEXT,
        {
            **values,
            "result": result,
            "passed": passed,
            "residual_pass": " residual," if normed else " 0,",
            "dots": kinds + fill(_KINDS, {"p": p}),
        },
    )
