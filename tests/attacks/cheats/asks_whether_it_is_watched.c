/* about: overruns its own array except in a sanitizer build
 * operator: scale
 * dims: n=4099
 * expect: sanitizer
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

#ifdef __SANITIZE_ADDRESS__
  enum { ROOM = 9 };
#else
  enum { ROOM = 8 };
#endif
  float own[ROOM];
  volatile int last = 8;
  for (int i = 0; i <= last; i++) own[i] = (float)i;
  for (int64_t i = 0; i < n; i++) y[i] = 1.5f * x[i] + 0.25f + 0.0f * own[i % 8];
  return 0;
}
