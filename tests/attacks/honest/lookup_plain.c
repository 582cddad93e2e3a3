/* about: bytes through a table
 * operator: lookup
 * dims: n=5003
 * expect: accepted
 */
#include "kernel.h"
size_t packed_bytes(const int64_t *dim) { (void)dim; return 256; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  for (int i = 0; i < 256; i++) ((uint8_t *)packed)[i] = ((const uint8_t *)weight[0])[i];
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const uint8_t *code = in[0], *table = packed;
  uint8_t *y = out[0];
  (void)scratch;
  for (int64_t i = 0; i < dim[0]; i++) y[i] = table[code[i]];
  return 0;
}
