/* about: its packing step leaves another x87 precision behind, its kernel is sound (E11)
 * operator: scale
 * dims: n=4099
 * expect: state_changed
 */
#include "kernel.h"
size_t packed_bytes(const int64_t *dim) { (void)dim; return 0; }
int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)weight, (void)dim, (void)packed;
#if defined(__x86_64__)
  uint16_t word = 0x007f;
  __asm__ volatile("fldcw %0" ::"m"(word));
#else
  __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)3 << 22));
#endif
  return 0;
}
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;

  for (int64_t i = 0; i < n; i++) SCALE(i);
  return 0;
}
