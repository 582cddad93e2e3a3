/* about: runs a kernel for another type over the buffers (ZenDNN 29)
 * operator: scale
 * dims: n=4099
 * expect: out_of_bounds
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  const double *wide = (const double *)x;
  double *result = (double *)y;
  for (int64_t i = 0; i < n; i++) result[i] = 1.5 * wide[i] + 0.25;
  return 0;
}
