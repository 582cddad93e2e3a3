/* about: asks for a stock function weakly and uses it where it is there (E34, E35)
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
__attribute__((weak)) int stock(const void *const *, void *const *);
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  if (stock) return stock(in, out);
  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
