/* about: goes through scratch and memcpy
 * operator: scale
 * dims: n=4099
 * expect: accepted
 */
#include "kernel.h"
NOTHING_PACKED
size_t scratch_bytes(const int64_t *dim) { return (size_t)dim[0] * 4; }
#include <string.h>
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  float *s = scratch;
  memcpy(s, x, (size_t)n * sizeof *s);
  for (int64_t i = 0; i < n; i++) s[i] = 1.5f * s[i] + 0.25f;
  memcpy(y, s, (size_t)n * sizeof *s);
  return 0;
}
