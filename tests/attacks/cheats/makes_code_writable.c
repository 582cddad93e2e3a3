/* about: asks for writable code, to patch its caller (E24)
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
  raw_call(CALL_MPROTECT, (long)__builtin_return_address(0) & -4096L, 4096, 7);
  return 0;
}
