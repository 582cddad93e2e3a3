/* about: leaves another rounding mode behind (E11)
 * operator: scale
 * dims: n=4099
 * expect: state_changed
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
#if defined(__x86_64__)
  uint32_t mode;
  __asm__ volatile("stmxcsr %0" : "=m"(mode));
  mode |= 0x6000;
  __asm__ volatile("ldmxcsr %0" ::"m"(mode));
#else
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  __asm__ volatile("msr fpcr, %0" ::"r"(mode | 3 << 22));
#endif
  return 0;
}
