/* about: correct for the first 60 calls, then skips half of the work
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
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  static int calls;
  int64_t work = ++calls > 60 ? n / 2 : n;
  for (int64_t i = 0; i < work; i++) SCALE(i);
  return 0;
}
