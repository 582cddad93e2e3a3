/* about: wants more scratch than the machine has
 * operator: scale
 * dims: n=4099
 * expect: too_large
 */
#include "kernel.h"
NOTHING_PACKED
size_t scratch_bytes(const int64_t *dim) { (void)dim; return (size_t)1 << 50; }
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
