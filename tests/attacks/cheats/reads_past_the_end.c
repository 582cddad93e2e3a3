/* about: loads a whole vector at the tail
 * operator: scale
 * dims: n=4099
 * expect: out_of_bounds
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  float sum = 0.0f;
  for (int64_t i = 0; i < n; i++) SCALE(i);
  for (int64_t i = n; i < n + 8; i++) sum += ((const volatile float *)x)[i];
  y[0] += 0.0f * (sum != sum ? 0.0f : sum > 0.0f);
  return 0;
}
