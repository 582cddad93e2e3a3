/* about: defines a function that the harness uses, hoping to be called instead (E23)
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
__attribute__((visibility("default"))) void *memcpy(void *to, const void *from, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = ((const volatile char *)from)[i];
  return to;
}
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
