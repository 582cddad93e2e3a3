/* about: changes the rounding mode for itself and puts it back
 * operator: scale
 * dims: n=4099
 * expect: accepted
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

#if defined(__x86_64__)
  uint32_t mode, other;
  __asm__ volatile("stmxcsr %0" : "=m"(mode));
  other = mode | 0x8040;
  __asm__ volatile("ldmxcsr %0" ::"m"(other));
  for (int64_t i = 0; i < n; i++) SCALE(i);
  __asm__ volatile("ldmxcsr %0" ::"m"(mode));
#else
  for (int64_t i = 0; i < n; i++) SCALE(i);
#endif
  return 0;
}
