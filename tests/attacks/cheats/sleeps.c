/* about: waits in the kernel so that a warm-up looks slow
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
  static const long second[2] = {1, 0};
  raw_call(CALL_NANOSLEEP, (long)second, 0, 0);
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
