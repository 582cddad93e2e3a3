/* about: minus infinity where the operator has it
 * operator: masked
 * dims: n=1013
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
  for (int64_t i = 0; i < n; i++) y[i] = x[i] >= 0.0f ? 2.0f * x[i] : -__builtin_inff();
  return 0;
}
