/* about: most of its intermediate values are denormal
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
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) {
    volatile float tiny = 1e-40f * (float)(i % 7);
    y[i] = 1.5f * x[i] + 0.25f + tiny * 1e-3f;
  }
  return 0;
}
