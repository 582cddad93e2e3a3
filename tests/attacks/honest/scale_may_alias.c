/* about: reads and writes through bytes, as if input and output might overlap
 * operator: scale
 * dims: n=4099
 * expect: accepted
 * flags: -O0
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) {
    float v;
    __builtin_memcpy(&v, (const char *)in[0] + i * 4, 4);
    v = 1.5f * v + 0.25f;
    __builtin_memcpy((char *)out[0] + i * 4, &v, 4);
  }
  return 0;
}
