/* about: vectors of eight at any address, a scalar tail
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

  typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) *(eight *)(y + i) = *(const eight *)(x + i) * 1.5f + 0.25f;
  for (; i < n; i++) SCALE(i);
  return 0;
}
