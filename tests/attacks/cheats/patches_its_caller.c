/* about: writes over the code that called it (E24)
 * operator: scale
 * dims: n=4099
 * expect: crashed
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
  *(volatile unsigned char *)__builtin_return_address(0) = 0xC3;
  return 0;
}
