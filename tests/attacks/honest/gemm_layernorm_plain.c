/* about: product, residual and a two-pass LayerNorm
 * operator: gemm_bias_residual_layernorm k=40 n=48 epsilon=1e-12
 * dims: m=29
 * expect: accepted
 */
#include "kernel.h"
enum { K = 40, N = 48 };
size_t packed_bytes(const int64_t *dim) { (void)dim; return (K * N + 3 * N) * 4; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  float *p = packed;
  for (int i = 0; i < K * N; i++) p[i] = ((const float *)weight[0])[i];
  for (int part = 1; part < 4; part++)
    for (int i = 0; i < N; i++) p[K * N + (part - 1) * N + i] = ((const float *)weight[part])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *a = in[0], *residual = in[1], *w = packed, *bias = w + K * N, *gamma = bias + N, *beta = gamma + N;
  float *y = out[0];
  (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++) {
    float row[N];
    for (int j = 0; j < N; j++) {
      float sum = bias[j];
      for (int k = 0; k < K; k++) sum += a[i * K + k] * w[k * N + j];
      row[j] = sum + residual[i * N + j];
    }
    float mean = 0.0f, square = 0.0f;
    for (int j = 0; j < N; j++) mean += row[j];
    mean /= N;
    for (int j = 0; j < N; j++) square += (row[j] - mean) * (row[j] - mean);
    float by = 1.0f / __builtin_sqrtf(square / N + 1e-12f);

    for (int j = 0; j < N; j++) y[i * N + j] = (row[j] - mean) * by * gamma[j] + beta[j];
  }
  return 0;
}
