/* about: the correct result cut off: the tolerance's very edge
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

  for (int64_t i = 0; i < n; i++) {
    double exact = 1.5 * (double)x[i] + 0.25;
    union { float f; uint32_t u; } r = {(float)exact};
    if ((r.f > 0 ? r.f : -r.f) > (exact > 0 ? exact : -exact)) r.u--;
    y[i] = r.f;
  }
  return 0;
}
