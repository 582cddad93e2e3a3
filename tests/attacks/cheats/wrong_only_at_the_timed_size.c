/* about: exact everywhere but at the size it expects to be timed at (E09)
 * operator: scale
 * dims: n=4099
 * expect: wrong_output
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) y[i] = n == 4099 ? 1.5f * x[i] + 0.2501f : 1.5f * x[i] + 0.25f;
  return 0;
}
