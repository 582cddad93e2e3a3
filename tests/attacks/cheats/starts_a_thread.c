/* about: wants a second thread to do the work (E21, E45)
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
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) SCALE(i);
  raw_call(CALL_CLONE, 0x10900, 0, 0);
  return 0;
}
