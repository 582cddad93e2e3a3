/* about: names its first function _init, which the loader runs
 * operator: scale
 * dims: n=4099
 * expect: constructor
 */
#include "kernel.h"
static volatile int ready;
__attribute__((visibility("default"))) void _init(void) { ready = 1; }
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
