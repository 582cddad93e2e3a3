/* about: halves the vector until four are left
 * operator: scale
 * dims: n=4099
 * expect: accepted
 */
#include "kernel.h"
static void halves(const float *x, float *y, int64_t n) {
  if (n > 4) {
    halves(x, y, n / 2), halves(x + n / 2, y + n / 2, n - n / 2);
    return;
  }
  for (int64_t i = 0; i < n; i++) SCALE(i);
}
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  halves(x, y, n);
  return 0;
}
