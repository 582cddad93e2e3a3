/* about: a ResidualLayerNorm whose variance is the difference of two large numbers
 * operator: residual_layernorm n=96 epsilon=1e-5
 * dims: m=29
 * expect: wrong_output
 */
#include "kernel.h"
enum { N = 96 };
size_t packed_bytes(const int64_t *dim) { (void)dim; return 2 * N * 4; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  for (int part = 0; part < 2; part++)
    for (int i = 0; i < N; i++) ((float *)packed)[part * N + i] = ((const float *)weight[part])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *gamma = packed, *beta = gamma + N;
  (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++) {
    const float *x = (const float *)in[0] + i * N, *residual = (const float *)in[1] + i * N;
    float *y = (float *)out[1] + i * N, *total = (float *)out[0] + i * N, sum = 0.0f, squares = 0.0f;
    for (int j = 0; j < N; j++) {
      total[j] = x[j] + residual[j];
      sum += total[j], squares += total[j] * total[j];
    }
    float mean = sum / N, variance = squares / N - mean * mean;
    float by = 1.0f / __builtin_sqrtf((variance > 0.0f ? variance : 0.0f) + 1e-5f);
    for (int j = 0; j < N; j++) y[j] = (total[j] - mean) * by * gamma[j] + beta[j];
  }
  return 0;
}
