/* about: arranges for code to run between two timed calls
 * operator: scale
 * dims: n=4099
 * expect: forbidden_syscall
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  static const long interval[4] = {0, 100, 0, 100};
  raw_call(CALL_SETITIMER, 0, (long)interval, 0);
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
