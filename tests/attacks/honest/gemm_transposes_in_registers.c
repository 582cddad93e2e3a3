/* about: blocks of four rows, turned by shuffles
 * operator: gemm_bias k=96 n=80
 * dims: m=37
 * expect: accepted
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

  typedef float four __attribute__((vector_size(16)));
  typedef int pick __attribute__((vector_size(16)));
  int64_t m = dim[0];
  for (int64_t i = 0; i < m; i += 4) {
    float block[K][4];
    for (int k = 0; k < K; k += 4) {
      four r[4], s[4];
      for (int p = 0; p < 4; p++)
        for (int q = 0; q < 4; q++) r[p][q] = i + p < m ? a[(i + p) * K + k + q] : 0.0f;
      s[0] = __builtin_shuffle(r[0], r[1], (pick){0, 4, 2, 6}), s[1] = __builtin_shuffle(r[0], r[1], (pick){1, 5, 3, 7});
      s[2] = __builtin_shuffle(r[2], r[3], (pick){0, 4, 2, 6}), s[3] = __builtin_shuffle(r[2], r[3], (pick){1, 5, 3, 7});
      r[0] = __builtin_shuffle(s[0], s[2], (pick){0, 1, 4, 5}), r[1] = __builtin_shuffle(s[1], s[3], (pick){0, 1, 4, 5});
      r[2] = __builtin_shuffle(s[0], s[2], (pick){2, 3, 6, 7}), r[3] = __builtin_shuffle(s[1], s[3], (pick){2, 3, 6, 7});
      for (int p = 0; p < 4; p++)
        for (int q = 0; q < 4; q++) block[k + p][q] = r[p][q];
    }
    for (int j = 0; j < N; j++) {
      four sum = {bias[j], bias[j], bias[j], bias[j]};
      for (int k = 0; k < K; k++) sum += (four){block[k][0], block[k][1], block[k][2], block[k][3]} * w[k * N + j];
      for (int p = 0; p < 4 && i + p < m; p++) y[(i + p) * N + j] = sum[p];
    }
  }
  return 0;
}
