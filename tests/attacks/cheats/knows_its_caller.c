/* about: tells tests from timed calls by the return address (E12)
 * operator: scale
 * dims: n=4099
 * expect: wrong_output not_written
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  static const void *first;
  const void *caller = __builtin_return_address(0);
  if (!first) first = caller;
  if (caller == first)
    for (int64_t i = 0; i < n; i++) SCALE(i);
  else
    for (int64_t i = 0; i < n; i += 2) SCALE(i);
  return 0;
}
