/* about: has a constructor
 * operator: scale
 * dims: n=4099
 * expect: constructor
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
static volatile int ready;
__attribute__((constructor)) static void early(void) { ready = 1; }
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
