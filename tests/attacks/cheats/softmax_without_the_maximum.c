/* about: exponentials of raw scores, which overflow (buddy-mlir 837, E46)
 * operator: attention heads=2 head_size=16 scale=0.25
 * dims: n=3 tokens=41
 * expect: not_finite wrong_output
 */
#include "kernel.h"
float expf(float);
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

        float sum = 0.0f, value[D] = {0};
        for (int64_t j = at[s]; j < at[s + 1]; j++) {
          float score = 0.0f;
          for (int d = 0; d < D; d++) score += q[d] * qkv[j * 3 * W + W + h * D + d];
          float e = expf(score * 0.25f);
          sum += e;
          for (int d = 0; d < D; d++) value[d] += e * qkv[j * 3 * W + 2 * W + h * D + d];
        }
        for (int d = 0; d < D; d++) y[i * W + h * D + d] = value[d] / sum;
      }
  return 0;
}
