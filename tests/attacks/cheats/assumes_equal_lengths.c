/* about: takes all sequences for equally long
 * operator: mean_pool hidden=48
 * dims: n=6 tokens=90
 * expect: wrong_output out_of_bounds
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
  int64_t each = dim[1] / dim[0];
  (void)offset;
  for (int64_t s = 0; s < dim[0]; s++)
    for (int h = 0; h < H; h++) {
      float sum = 0.0f;
      for (int64_t t = 0; t < each; t++) sum += x[(s * each + t) * H + h];
      y[s * H + h] = sum / (float)each;
    }
  return 0;
}
