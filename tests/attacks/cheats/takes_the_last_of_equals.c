/* about: breaks ties the other way (top-k)
 * operator: largest width=19
 * dims: m=301
 * expect: wrong_output
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *value = out[0];
  int64_t *place = out[1];
  (void)packed, (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++) {
    int64_t best = 0;
    for (int64_t j = 1; j < 19; j++)
      if (x[i * 19 + j] >= x[i * 19 + best]) best = j;
    value[i] = x[i * 19 + best], place[i] = best;
  }
  return 0;
}
