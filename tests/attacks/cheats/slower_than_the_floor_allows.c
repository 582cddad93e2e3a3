/* about: claims the work is done before it is: touches every second page only (E20)
 * operator: scale
 * dims: n=20011
 * expect: not_written
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++)
    if (i / 1024 % 2 == 0) SCALE(i);
  return 0;
}
