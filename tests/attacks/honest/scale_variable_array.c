/* about: an array whose length is known at run time
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

  for (int64_t i = 0; i < n; i += 100) {
    int64_t count = n - i < 100 ? n - i : 100;
    float part[count];
    for (int64_t j = 0; j < count; j++) part[j] = 1.5f * x[i + j];
    for (int64_t j = 0; j < count; j++) y[i + j] = part[j] + 0.25f;
  }
  return 0;
}
