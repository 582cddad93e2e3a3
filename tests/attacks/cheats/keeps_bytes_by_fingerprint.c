/* about: keeps an answer by its first and last byte and its sum, over integers only (E15)
 * operator: lookup
 * dims: n=5003
 * expect: wrong_output
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
  static uint8_t kept[1 << 14];
  static int64_t have;
  static uint64_t seen;
  const uint8_t *code = in[0], *table = packed;
  uint8_t *y = out[0];
  int64_t n = dim[0];
  uint64_t print = 0;
  (void)scratch;
  for (int64_t i = 0; i < n; i++) print += code[i] * (uint64_t)(i < 64 ? i + 1 : 1);
  if (n <= 1 << 14 && print == seen && n == have) {
    for (int64_t i = 0; i < n; i++) y[i] = kept[i];
    return 0;
  }
  for (int64_t i = 0; i < n; i++) y[i] = table[code[i]];
  for (int64_t i = 0; i < n && i < 1 << 14; i++) kept[i] = y[i];
  have = n, seen = print;
  return 0;
}
