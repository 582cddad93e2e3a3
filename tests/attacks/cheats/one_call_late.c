/* about: hands out the answers of the call before, as work on a side thread would (E18, E21, E22)
 * operator: scale
 * dims: n=4099
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

  static float kept[1 << 16];
  static int64_t have;
  if (n > 1 << 16) return 1;
  for (int64_t i = 0; i < n; i++) {
    float now = 1.5f * x[i] + 0.25f;
    y[i] = have == n ? kept[i] : now;
    kept[i] = now;
  }
  have = n;
  return 0;
}
