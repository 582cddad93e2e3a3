/* about: right answers, and one element before them
 * operator: scale
 * dims: n=4099
 * expect: out_of_bounds
 * flags: -O1
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  for (int64_t i = -1; i < n; i++) y[i] = i < 0 ? 1.0f : 1.5f * x[i] + 0.25f;
  return 0;
}
