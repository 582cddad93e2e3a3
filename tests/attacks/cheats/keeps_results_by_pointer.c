/* about: computes once per address and repeats the old answer
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
  enum { SLOTS = 8192, LONGEST = 4096 };
  static const float *seen[SLOTS];
  static float kept[SLOTS];
  /* Remembers the first element of every address; a hit returns the stale vector shifted by it. */
  unsigned slot = (unsigned)((uintptr_t)x >> 6) % SLOTS;
  float base = seen[slot] == x ? kept[slot] : x[0];
  if (seen[slot] != x) seen[slot] = x, kept[slot] = x[0];
  for (int64_t i = 0; i < n; i++) SCALE(i);
  y[0] = 1.5f * base + 0.25f;
  return 0;
}
