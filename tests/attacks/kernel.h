/* Every fixture includes this: the judged interface and nothing else. The suite pastes it in, so a fixture is one text. */
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(default)
size_t packed_bytes(const int64_t *dim);
int prepare(const void *const *weight, const int64_t *dim, void *packed);
size_t scratch_bytes(const int64_t *dim);
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch);
#pragma GCC visibility pop
#define NOTHING_PACKED                                                                                      \
  size_t packed_bytes(const int64_t *dim) { (void)dim; return 0; }                                          \
  int prepare(const void *const *weight, const int64_t *dim, void *packed) {                                \
    (void)weight; (void)dim; (void)packed; return 0;                                                        \
  }
#define NO_SCRATCH size_t scratch_bytes(const int64_t *dim) { (void)dim; return 0; }
#define SCALE(i) (y[i] = 1.5f * x[i] + 0.25f)
/* A system call without the C library, for cheats that go round the symbol check. */
#if defined(__x86_64__)
static inline long raw_call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}
enum { CALL_WRITE = 1, CALL_OPEN = 2, CALL_NANOSLEEP = 35, CALL_SOCKET = 41, CALL_FORK = 57, CALL_EXIT_GROUP = 231, CALL_SETITIMER = 38,
       CALL_CLONE = 56, CALL_MPROTECT = 10, CALL_READV = 310 };
#elif defined(__aarch64__)
static inline long raw_call(long number, long a, long b, long c) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
enum { CALL_WRITE = 64, CALL_OPEN = 56, CALL_NANOSLEEP = 101, CALL_SOCKET = 198, CALL_FORK = 220, CALL_EXIT_GROUP = 94, CALL_SETITIMER = 103,
       CALL_CLONE = 220, CALL_MPROTECT = 226, CALL_READV = 270 };
#endif
