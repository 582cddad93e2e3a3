/* about: one pass with a running maximum, and an exponential of its own
 * operator: attention heads=2 head_size=16 scale=0.25
 * dims: n=3 tokens=41
 * expect: accepted
 */
#include "kernel.h"
/* exp(x) for x <= 0: 2^n times a polynomial on half an octave (Cody and Waite 1980). */
static float own_exp(float x) {
  if (x < -87.0f) return 0.0f;
  int n = (int)(x * 1.44269504f - 0.5f);
  float r = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
  float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.6666667e-1f + r * (4.1666667e-2f + r * (8.3333333e-3f +
            r * (1.3888889e-3f + r * 1.9841270e-4f))))));
  union { uint32_t u; float f; } two = {(uint32_t)(n + 127) << 23};
  return p * two.f;
}
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  enum { H = 2, D = 16, W = H * D };
  const float *qkv = in[0];
  const int64_t *at = in[1];
  float *y = out[0];
  (void)packed, (void)scratch;
  for (int64_t s = 0; s < dim[0]; s++)
    for (int h = 0; h < H; h++)
      for (int64_t i = at[s]; i < at[s + 1]; i++) {
        const float *q = qkv + i * 3 * W + h * D;

        float sum = 0.0f, most = -1e30f, value[D] = {0};
        for (int64_t j = at[s]; j < at[s + 1]; j++) {
          float score = 0.0f;
          for (int d = 0; d < D; d++) score += q[d] * qkv[j * 3 * W + W + h * D + d];
          score *= 0.25f;
          if (score > most) {
            float down = own_exp(most - score);
            sum *= down;
            for (int d = 0; d < D; d++) value[d] *= down;
            most = score;
          }
          float e = own_exp(score - most);
          sum += e;
          for (int d = 0; d < D; d++) value[d] += e * qkv[j * 3 * W + 2 * W + h * D + d];
        }
        for (int d = 0; d < D; d++) y[i * W + h * D + d] = value[d] / sum;
      }
  return 0;
}
