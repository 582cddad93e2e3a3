/* about: every factor as two bfloat16 parts, three products: 16 bits where 24 are due (E08)
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
static float half(float v) {
  union { float f; uint32_t u; } r = {v};
  r.u = (r.u + 0x7FFFu + (r.u >> 16 & 1)) & 0xFFFF0000u;
  return r.f;
}
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *a = in[0], *w = packed, *bias = w + K * N;
  float *y = out[0];
  (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++)
    for (int j = 0; j < N; j++) {
      float sum = 0.0f;
      for (int k = 0; k < K; k++) {
        float a1 = half(a[i * K + k]), a2 = half(a[i * K + k] - a1), w1 = half(w[k * N + j]), w2 = half(w[k * N + j] - w1);
        sum += a1 * w2 + a2 * w1 + a1 * w1;
      }
      y[i * N + j] = sum + bias[j];
    }
  return 0;
}
