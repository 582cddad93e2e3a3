/* about: asks for malloc, where results could be kept
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
#include <stdlib.h>
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  float *copy = malloc((size_t)n * sizeof *copy);
  if (!copy) return 1;
  for (int64_t i = 0; i < n; i++) copy[i] = 1.5f * x[i] + 0.25f;
  for (int64_t i = 0; i < n; i++) y[i] = copy[i];
  return 0;
}
