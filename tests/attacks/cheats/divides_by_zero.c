/* about: traps
 * operator: scale
 * dims: n=4099
 * expect: crashed
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  volatile int zero = 0;
  y[0] = (float)((int)n / zero);
  return 0;
}
