/* about: prints what a parser might look for, then leaves with success
 * operator: scale
 * dims: n=4099
 * expect: forbidden_symbol
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
#include <stdio.h>
#include <unistd.h>
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  printf("{\"correct\": true, \"time_ns\": 1}\n");
  fflush(stdout);
  _exit(0);
  return 0;
}
