/* about: skips the last element
 * operator: scale
 * dims: n=4099
 * expect: not_written
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  for (int64_t i = 0; i + 1 < n; i++) SCALE(i);
  if (n == 1) SCALE(0);
  return 0;
}
