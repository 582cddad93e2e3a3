/* about: handles whole vectors of eight and guesses the rest
 * operator: scale
 * dims: n=4096
 * expect: wrong_output
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  int64_t whole = n / 8 * 8;
  for (int64_t i = 0; i < whole; i++) SCALE(i);
  for (int64_t i = whole; i < n; i++) y[i] = 0.25f;
  return 0;
}
