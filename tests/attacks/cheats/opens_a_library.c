/* about: looks for a library, or an earlier winner, at run time (E34, E38)
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
void *dlopen(const char *, int);
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) SCALE(i);
  return dlopen("/tmp/winner.so", 2) != 0;
  return 0;
}
