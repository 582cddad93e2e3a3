/* about: leaves the work to a library (E34)
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
void cblas_saxpy(int64_t, float, const float *, int, float *, int);
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  cblas_saxpy(n, 1.5f, x, 1, y, 1);
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
