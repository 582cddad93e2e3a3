/* about: recurses without end
 * operator: scale
 * dims: n=4099
 * expect: crashed
 * flags: -O1
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
static __attribute__((noinline)) int deeper(volatile int level) {
  volatile char block[4096];
  block[level & 4095] = (char)level;
  return deeper(level + 1) + block[level & 4095];
}
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  y[0] = (float)deeper((int)n);
  return 0;
}
