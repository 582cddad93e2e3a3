/* about: ends the process with code 0 instead of computing
 * operator: scale
 * dims: n=4099
 * expect: ended_early
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  raw_call(CALL_EXIT_GROUP, 0, 0, 0);
  return 0;
}
