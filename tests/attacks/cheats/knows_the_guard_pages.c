/* about: tells tests from timed calls by buffers that end or begin with a page (E12)
 * operator: scale
 * dims: n=4099
 * expect: wrong_output not_written
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  int test = !((uintptr_t)y % 4096) || !((uintptr_t)(y + n) % 4096);
  for (int64_t i = 0; i < n; i++)
    if (test || i % 3) SCALE(i);
  return 0;
}
