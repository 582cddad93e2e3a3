/* about: adds 8-bit products in pairs that saturate (oneDNN 1805)
 * operator: code_product k=24 n=8
 * dims: m=61
 * expect: wrong_output
 */
#include "kernel.h"
enum { K = 24, N = 8 };
size_t packed_bytes(const int64_t *dim) { (void)dim; return K * N; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  for (int i = 0; i < K * N; i++) ((int8_t *)packed)[i] = ((const int8_t *)weight[0])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const uint8_t *a = in[0];
  const int8_t *w = packed;
  int32_t *y = out[0];
  (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++)
    for (int j = 0; j < N; j++) {
      int32_t sum = 0;
      for (int k = 0; k < K; k += 2) {
        int32_t pair = a[i * K + k] * w[k * N + j] + a[i * K + k + 1] * w[(k + 1) * N + j];
        sum += pair > 32767 ? 32767 : pair < -32768 ? -32768 : pair;
      }
      y[i * N + j] = sum;
    }
  return 0;
}
