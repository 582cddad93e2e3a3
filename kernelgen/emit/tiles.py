"""Large matrix products on the matrix unit of the CPU (AMX), at float32 accuracy.

In: a GEMM operator and its schedule. Out: C text that the GEMM emitter places next to its own.
Never here: lower accuracy. A float32 has 24 significant bits; it is split exactly into three
bfloat16 values of 8 bits each (x = high + middle + low, Henry, Tang, Heinecke 2019), and of the
nine products the six that matter at 2^-24 are summed in float32: high*high, high*middle,
middle*high, high*low, low*high, middle*middle. What is left out is below 2^-26 of a product.

The process must have asked the operating system for the unit (`kernelgen.machine.allow_tiles`)
before such code may run.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.emit.part import fill

SIDE = 32
"""Rows, columns and inner length of one step: two tiles of 16 rows, two of 16 columns."""

ISA = ("amx_bf16", "amx_tile")

ASSEMBLY = """
/* The matrix unit: eight tiles of 16 rows of 64 bytes. 0 to 3 hold sums, 4 and 5 a, 6 and 7 w. */
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::: )
#define TILE_LOAD(t, p) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t \
                   ::"r"((const void *)(p)), "r"((int64_t)64) : "memory")
#define TILE_STORE(t, p, stride) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" \
                   ::"r"((void *)(p)), "r"((int64_t)(stride)) : "memory")
#define TILE_DOT(sum, a, w) \
  __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #a ", %%tmm" #sum :::)
#define TILE_RELEASE() __asm__ volatile("tilerelease" :::)

WORD void tile_configure(void) {
  struct { uint8_t palette, start, zero[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } shape = {
      .palette = 1,
      .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
      .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

/* x = high + middle + low, each a bfloat16 in the upper half of a float, rounded to nearest. */
WORD float tile_high(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits = (bits + 0x8000u) & 0xffff0000u;
  memcpy(&x, &bits, 4);
  return x;
}
WORD uint16_t tile_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (uint16_t)(bits >> 16);
}
"""

_TEXT = """
/* ---- the same product on the matrix unit, from ${from} rows on ---- */
enum { ${p}_STEP = 3 * 2 * 16 * 32, ${p}_STEPS = ${p}_K / 32 }; /* bfloat16 values of one step */

/* Weights [k][n] to [n / 32][k / 32][high, middle, low][2 tiles][16 pairs of k][16 columns][2]. */
static void ${p}_pack_tiles(const float *w, uint16_t *to) {
  for (int64_t n = 0; n < ${p}_N; n += 32)
    for (int64_t k = 0; k < ${p}_K; k += 32, to += ${p}_STEP)
      for (int64_t i = 0; i < 32; i++)
        for (int64_t j = 0; j < 32; j++) {
          const float x = w[(k + i) * ${p}_N + n + j], high = tile_high(x), rest = x - high;
          const float middle = tile_high(rest);
          uint16_t *at = to + j / 16 * 512 + i / 2 * 32 + j % 16 * 2 + i % 2;
          at[0] = tile_bits(high);
          at[1024] = tile_bits(middle);
          at[2048] = tile_bits(rest - middle);
        }
}

/* Rows of a to [rows / 32][k / 32][high, middle, low][2 tiles][16 rows][32 k]; missing rows are
   zero. */
static void ${p}_split(const float *restrict a, int64_t rows, uint16_t *restrict to) {
  for (int64_t r = 0; r < (rows + 31) / 32 * 32; r++) {
    uint16_t *row = to + r / 32 * ${p}_STEPS * ${p}_STEP + r % 32 * 32;
    for (int64_t k = 0; k < ${p}_K; k += 32)
      for (int64_t i = 0; i < 32; i += ${v}) {
        uint16_t *at = row + k / 32 * ${p}_STEP + i;
        const ${vec} x = r < rows ? load${v}(a + r * ${p}_K + k + i) : (${vec}){};
        const ${vec} high = (${vec})(((${ivec})x + 0x8000) & -65536), rest = x - high;
        const ${vec} middle = (${vec})(((${ivec})rest + 0x8000) & -65536), low = rest - middle;
        const h16x${v} h = __builtin_convertvector((${ivec})high >> 16, h16x${v});
        const h16x${v} m = __builtin_convertvector((${ivec})middle >> 16, h16x${v});
        const h16x${v} l = __builtin_convertvector((${ivec})low >> 16, h16x${v});
        memcpy(at, &h, sizeof h);
        memcpy(at + 1024, &m, sizeof m);
        memcpy(at + 2048, &l, sizeof l);
      }
  }
}

/* 32 x 32 sums over all k. `ahead` is the next panel, of which every step fetches `pace` bytes. */
static void ${p}_dots(const uint16_t *a, const uint16_t *w, const char *ahead, int64_t pace,
                      float *sums) {
  TILE_ZERO(0); TILE_ZERO(1); TILE_ZERO(2); TILE_ZERO(3);
  for (int64_t step = 0; step < ${p}_STEPS; step++, a += ${p}_STEP, w += ${p}_STEP) {
    for (int64_t byte = 0; byte < pace; byte += 64) __builtin_prefetch(ahead + byte, 0, 2);
    ahead += pace;
    TILE_LOAD(4, a); TILE_LOAD(5, a + 512);            /* high of a */
    TILE_LOAD(6, w + 2048); TILE_LOAD(7, w + 2560);    /* low of w */
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
    TILE_LOAD(6, w + 1024); TILE_LOAD(7, w + 1536);    /* middle of w */
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
    TILE_LOAD(6, w); TILE_LOAD(7, w + 512);            /* high of w */
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
    TILE_LOAD(4, a + 2048); TILE_LOAD(5, a + 2560);    /* low of a */
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
    TILE_LOAD(4, a + 1024); TILE_LOAD(5, a + 1536);    /* middle of a */
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
    TILE_LOAD(6, w + 1024); TILE_LOAD(7, w + 1536);    /* middle of w */
    TILE_DOT(0, 4, 6); TILE_DOT(1, 4, 7); TILE_DOT(2, 5, 6); TILE_DOT(3, 5, 7);
  }
  TILE_STORE(0, sums, 128); TILE_STORE(1, sums + 16, 128);
  TILE_STORE(2, sums + 512, 128); TILE_STORE(3, sums + 528, 128);
}

static int ${p}_run_tiles(const void *const *in, float *restrict out, int64_t m,
                          const float *packed, float *scratch) {
  const float *a = in[0];${residual_in}
  const float *bias = packed + ${p}_WEIGHTS;
  const uint16_t *weights = (const uint16_t *)(bias + ${vectors} * ${p}_N);
  uint16_t *split = (uint16_t *)(scratch + 1024);
  float *sums = scratch;
  tile_configure();
  const int64_t blocks = (m + ${block} - 1) / ${block};
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t first = b * m / blocks, rows = (b + 1) * m / blocks - first;
    const int64_t pairs = (rows + 31) / 32;
    const int64_t pace = ((int64_t)sizeof(uint16_t) * ${p}_STEP / pairs + 63) / 64 * 64;
    ${p}_split(a + first * ${p}_K, rows, split);
    for (int64_t n = 0; n < ${p}_N; n += 32) {
      const uint16_t *w = weights + n / 32 * ${p}_STEPS * ${p}_STEP;
      for (int64_t t = 0; t < pairs; t++) {
        const char *ahead = (const char *)(w + ${p}_STEPS * ${p}_STEP) + t * ${p}_STEPS * pace;
        ${p}_dots(split + t * ${p}_STEPS * ${p}_STEP, w, ahead, pace, sums);
        const int64_t row = first + t * 32, count = rows - t * 32 < 32 ? rows - t * 32 : 32;
        for (int64_t r = 0; r < count; r++)
          for (int64_t j = 0; j < 32; j += ${v}) {
            const ${vec} y = load${v}(sums + r * 32 + j) + load${v}(bias + n + j);
            store${v}(out + (row + r) * ${p}_N + n + j, ${result});
          }
      }
    }${after}
  }
  TILE_RELEASE();
  return 0;
}
"""


def tile_functions(values: Mapping[str, object], *, gelu: str | None, normed: bool) -> str:
    """The matrix-unit twin of a GEMM: `P_pack_tiles`, `P_run_tiles`. `values` are the GEMM
    emitter's own.
    """
    v, p = values["v"], values["p"]
    result = "y"
    if gelu:
        result = f"gelu{v}_{gelu}(y)"
    if normed:
        result = f"y + load{v}(residual + (row + r) * {p}_N + n + j)"
    return fill(_TEXT, {**values, "result": result, "ivec": f"i32x{v}"})
