/* about: sums in double, one rounding
 * operator: mean_pool hidden=48
 * dims: n=6 tokens=90
 * expect: accepted
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
enum { H = 48 };
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  const int64_t *offset = in[1];
  float *y = out[0];
  (void)packed, (void)scratch;
  for (int64_t s = 0; s < dim[0]; s++)
    for (int h = 0; h < H; h++) {
      double sum = 0.0;
      for (int64_t t = offset[s + 1] - 1; t >= offset[s]; t--) sum += x[t * H + h];
      y[s * H + h] = (float)(sum / (double)(offset[s + 1] - offset[s]));
    }
  return 0;
}
