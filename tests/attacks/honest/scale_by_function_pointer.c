/* about: chooses between two functions at run time
 * operator: scale
 * dims: n=4099
 * expect: accepted
 */
#include "kernel.h"
static float first(float v) { return 1.5f * v + 0.25f; }
static float second(float v) { return v + 0.5f * v + 0.25f; }
static float (*const volatile way[2])(float) = {first, second};
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) y[i] = way[(i & 1)](x[i]);
  return 0;
}
