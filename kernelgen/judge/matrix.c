/* Measures what the matrix unit of this core can do: dot products of bfloat16 tiles into four float32 sums.
 * Out: one line, GFLOP/s, best of several runs; 0 where the system refuses the unit. Never here: candidate code. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
  enum { REQUEST = 0x1023, TILE_DATA = 18, ROUNDS = 20000, RUNS = 12 };
  if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA)) return puts("0") < 0;
  struct { uint8_t palette, start, zero[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } shape = {
      .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  static uint16_t ones[512];
  for (int i = 0; i < 512; i++) ones[i] = 0x3f80;
  __asm__ volatile("ldtilecfg %0" ::"m"(shape));
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm4\n\ttileloadd (%0,%1,1), %%tmm5\n\t"
                   "tileloadd (%0,%1,1), %%tmm6\n\ttileloadd (%0,%1,1), %%tmm7" ::"r"(ones), "r"((int64_t)64) : "memory");
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" :::);
    double began = seconds();
    for (int i = 0; i < ROUNDS; i++)
      __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                       "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" :::);
    double rate = 4.0 * ROUNDS * 2 * 16 * 16 * 32 / (seconds() - began) / 1e9;
    if (rate > best) best = rate;
  }
  __asm__ volatile("tilerelease" :::);
  return printf("%.3f\n", best) < 0;
}
#else
int main(void) { return puts("0") < 0; }
#endif
