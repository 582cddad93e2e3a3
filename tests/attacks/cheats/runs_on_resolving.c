/* about: has an indirect function whose resolver runs while the object is loaded
 * operator: scale
 * dims: n=4099
 * expect: constructor
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
static float plain(float v) { return 1.5f * v + 0.25f; }
static float (*choose(void))(float) { return plain; }
float chosen(float v) __attribute__((ifunc("choose")));
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  for (int64_t i = 0; i < n; i++) y[i] = chosen(x[i]);
  return 0;
}
