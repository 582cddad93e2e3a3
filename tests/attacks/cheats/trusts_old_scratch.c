/* about: takes scratch for zeroed memory
 * operator: scale
 * dims: n=4099
 * expect: not_finite wrong_output
 */
#include "kernel.h"
NOTHING_PACKED
size_t scratch_bytes(const int64_t *dim) { return (size_t)dim[0] * 4; }
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  const float *s = scratch;
  for (int64_t i = 0; i < n; i++) y[i] = 1.5f * x[i] + 0.25f + s[i];
  return 0;
}
