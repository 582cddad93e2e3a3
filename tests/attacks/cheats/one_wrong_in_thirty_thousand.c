/* about: one element off by a thousandth: a matched ratio of 0.99997 (H1, E48)
 * operator: scale
 * dims: n=30011
 * expect: wrong_output
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
  y[n / 2] *= 1.001f;
  return 0;
}
