/* about: builds code on its stack (a nested function by address)
 * operator: scale
 * dims: n=4099
 * expect: unsafe_object
 */
#include "kernel.h"
__attribute__((noinline)) static void each(const float *x, float *y, int64_t n, float (*f)(float)) {
  for (int64_t i = 0; i < n; i++) y[i] = f(x[i]);
}
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  float one(float v) { return 1.5f * v + 0.25f + 0.0f * (float)n; }
  each(x, y, n, one);
  return 0;
}
