/* about: runs backwards in strides of seven
 * operator: scale
 * dims: n=1021
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
  for (int64_t r = 0; r < 7; r++)
    for (int64_t i = n - 1 - r; i >= 0; i -= 7) SCALE(i);
  return 0;
}
