/* about: spills over the end of the scratch it asked for
 * operator: scale
 * dims: n=4099
 * expect: out_of_bounds
 */
#include "kernel.h"
NOTHING_PACKED
size_t scratch_bytes(const int64_t *dim) { return (size_t)dim[0] * 4; }
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  float *s = scratch;
  for (int64_t i = 0; i <= n; i++) s[i] = 1.0f;
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
