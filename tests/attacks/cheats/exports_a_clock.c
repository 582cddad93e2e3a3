/* about: defines the harness's clock function itself (E23)
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
__attribute__((visibility("default"))) int clock_gettime(int which, long *time) {
  (void)which;
  time[0] = time[1] = 0;
  return 0;
}
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
