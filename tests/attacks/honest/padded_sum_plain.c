/* about: leaves NaN in the padding alone
 * operator: padded_sum width=16 used=11
 * dims: m=203
 * expect: accepted
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  (void)packed, (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++) {
    float sum = 0.0f;
    for (int j = 0; j < 11; j++) sum += x[i * 16 + j];
    y[i] = sum;
  }
  return 0;
}
