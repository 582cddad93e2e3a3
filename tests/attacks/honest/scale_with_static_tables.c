/* about: constant tables and pointers to them, which the loader relocates
 * operator: scale
 * dims: n=4099
 * expect: accepted
 */
#include "kernel.h"
static const float one_and_a_half[3] = {1.5f, 1.5f, 1.5f};
static const float *const factor[3] = {one_and_a_half, one_and_a_half + 1, one_and_a_half + 2};
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) y[i] = *factor[i % 3] * x[i] + 0.25f;
  return 0;
}
