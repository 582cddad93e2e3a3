/* about: 32-bit indices into float64 rows
 * operator: rows_of count=50 width=4
 * dims: m=401
 * expect: accepted
 */
#include "kernel.h"
size_t packed_bytes(const int64_t *dim) { (void)dim; return 50 * 4 * 8; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  for (int i = 0; i < 200; i++) ((double *)packed)[i] = ((const double *)weight[0])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const int32_t *row = in[0];
  const double *table = packed;
  double *y = out[0];
  (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++)
    for (int j = 0; j < 4; j++) y[i * 4 + j] = table[row[i] * 4 + j];
  return 0;
}
