/* about: recognises inputs by their first elements and repeats the old answer
 * operator: scale
 * dims: n=4099
 * expect: wrong_output
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch, (void)x, (void)y, (void)n;
  enum { MOST = 8192 };
  static float kept_x[16], kept_y[MOST];
  static int64_t kept_n;
  int same = kept_n == n && n >= 16 && n <= MOST;
  for (int i = 0; same && i < 16; i++) same = kept_x[i] == x[i];
  if (same) {
    for (int64_t i = 0; i < n; i++) y[i] = kept_y[i];
    return 0;
  }
  for (int64_t i = 0; i < n; i++) SCALE(i);
  if (n >= 16 && n <= MOST && kept_n == 0) {
    kept_n = n;
    for (int i = 0; i < 16; i++) kept_x[i] = x[i];
    for (int64_t i = 0; i < n; i++) kept_y[i] = y[i];
  }
  return 0;
}
