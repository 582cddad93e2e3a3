/* about: keeps state where the loader has to set it up
 * operator: scale
 * dims: n=4099
 * expect: constructor
 */
#include "kernel.h"
static __thread volatile int calls = 1;
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  calls++;
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
