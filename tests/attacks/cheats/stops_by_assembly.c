/* about: puts its address into .fini_array without an attribute
 * operator: scale
 * dims: n=4099
 * expect: constructor
 */
#include "kernel.h"
static volatile int done;
__attribute__((used)) static void late(void) { done = 1; }
__asm__(".pushsection .fini_array,\"aw\"\n.quad late\n.popsection");
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
