/* about: switches the sanitizers off for itself
 * operator: scale
 * dims: n=4099
 * expect: forbidden_source
 */
#include "kernel.h"
#define WATCH(what) __attribute__((no_##what("address", "undefined")))
WATCH(sanitize) static void quiet(float *y) { (void)y; }
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) SCALE(i);
  quiet(y);
  return 0;
}
