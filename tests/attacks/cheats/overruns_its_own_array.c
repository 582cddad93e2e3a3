/* about: writes past a static array where no guard page can see it
 * operator: scale
 * dims: n=4099
 * expect: sanitizer
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  static float table[16];
  static float beside[4096];
  int64_t last = n > 16 ? 16 : n - 1;
  ((volatile float *)table)[last] = x[0];
  beside[0] = x[0];
  __asm__ volatile("" : : "r"(table), "r"(beside) : "memory");
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
