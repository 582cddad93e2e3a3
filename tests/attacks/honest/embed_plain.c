/* about: looks up, adds and normalises
 * operator: embed_layernorm vocabulary=90 positions=64 hidden=24 epsilon=1e-12
 * dims: n=4 tokens=50
 * expect: accepted
 */
#include "kernel.h"
enum { V = 90, P = 64, H = 24, ALL = V * H + P * H + 3 * H };
size_t packed_bytes(const int64_t *dim) { (void)dim; return ALL * 4; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  static const int size[5] = {V * H, P * H, H, H, H};
  float *p = packed;
  (void)dim;
  for (int part = 0; part < 5; part++)
    for (int i = 0; i < size[part]; i++) *p++ = ((const float *)weight[part])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const int64_t *ids = in[0], *at = in[1];
  const float *word = packed, *position = word + V * H, *kind = position + P * H, *gamma = kind + H, *beta = gamma + H;
  float *y = out[0];
  (void)scratch;
  for (int64_t s = 0; s < dim[0]; s++)
    for (int64_t t = at[s]; t < at[s + 1]; t++) {
      float row[H], mean = 0.0f, square = 0.0f;
      for (int h = 0; h < H; h++) row[h] = word[ids[t] * H + h] + position[(t - at[s]) * H + h] + kind[h], mean += row[h];
      mean /= H;
      for (int h = 0; h < H; h++) square += (row[h] - mean) * (row[h] - mean);
      float by = 1.0f / __builtin_sqrtf(square / H + 1e-12f);
      for (int h = 0; h < H; h++) y[t * H + h] = (row[h] - mean) * by * gamma[h] + beta[h];
    }
  return 0;
}
