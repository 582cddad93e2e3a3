/* about: writes 0 where the answer is below an absolute tolerance of 1e-2 (E03)
 * operator: gemm_bias k=96 n=80
 * dims: m=37
 * expect: wrong_output
 */
#include "kernel.h"
enum { K = 96, N = 80 };
size_t packed_bytes(const int64_t *dim) { (void)dim; return (K * N + N) * 4; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  float *p = packed;
  for (int i = 0; i < K * N; i++) p[i] = ((const float *)weight[0])[i];
  for (int i = 0; i < N; i++) p[K * N + i] = ((const float *)weight[1])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *a = in[0], *w = packed, *bias = w + K * N;
  float *y = out[0];
  (void)scratch;

  for (int64_t i = 0; i < dim[0]; i++)
    for (int j = 0; j < N; j++) {
      float sum = bias[j];
      for (int k = 0; k < K; k++) sum += a[i * K + k] * w[k * N + j];
      y[i * N + j] = sum < 1e-2f && sum > -1e-2f ? 0.0f : sum;
    }
  return 0;
}
