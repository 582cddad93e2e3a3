/* about: writes an answer of its own to every descriptor it can think of
 * operator: scale
 * dims: n=4099
 * expect: forbidden_syscall handshake
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  static const uint64_t answer[6];
  for (long fd = 3; fd < 32; fd++) raw_call(CALL_WRITE, fd, (long)answer, sizeof answer);
  return 0;
}
