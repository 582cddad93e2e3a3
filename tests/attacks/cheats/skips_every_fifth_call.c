/* about: hopes that a sample of outputs misses what it left out
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
  static unsigned calls;
  if (++calls > 40 && calls % 5 == 0) return 0;
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
