/* about: a megabyte on the stack is within bounds
 * operator: scale
 * dims: n=4099
 * expect: accepted
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  volatile float table[1 << 18];
  table[0] = 1.5f, table[(1 << 18) - 1] = 0.25f;
  for (int64_t i = 0; i < n; i++) y[i] = table[0] * x[i] + table[(1 << 18) - 1];
  return 0;
}
