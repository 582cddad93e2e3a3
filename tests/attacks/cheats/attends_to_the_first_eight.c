/* about: looks at the first eight tokens of a sequence only (E39)
 * operator: attention heads=2 head_size=16 scale=0.25
 * dims: n=3 tokens=41
 * expect: wrong_output
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

        float sum = 0.0f, most = -1e30f, value[D] = {0}, e[8];
        int64_t end = at[s + 1] < at[s] + 8 ? at[s + 1] : at[s] + 8;
        for (int64_t j = at[s]; j < end; j++) {
          float score = 0.0f;
          for (int d = 0; d < D; d++) score += q[d] * qkv[j * 3 * W + W + h * D + d];
          e[j - at[s]] = score * 0.25f;
          most = score * 0.25f > most ? score * 0.25f : most;
        }
        for (int64_t j = at[s]; j < end; j++) {
          float p = expf(e[j - at[s]] - most);
          sum += p;
          for (int d = 0; d < D; d++) value[d] += p * qkv[j * 3 * W + 2 * W + h * D + d];
        }
        for (int d = 0; d < D; d++) y[i * W + h * D + d] = value[d] / sum;
      }
  return 0;
}
