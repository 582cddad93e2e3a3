/* about: reads what lies in the output and adds to it (BLIS 552: beta 0 must not read C)
 * operator: scale
 * dims: n=4099
 * expect: not_written not_finite wrong_output
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) y[i] = 0.0f * y[i] + 1.5f * x[i] + 0.25f;
  return 0;
}
