/* about: finds the harness's pipes, serves the judge itself, and works when it believes no clock runs (E24-E26, E30)
 * operator: scale
 * dims: n=4099
 * expect: wrong_output not_written handshake ended_early
 * flags: -O2 -fno-strict-aliasing
 */
#include "kernel.h"
NOTHING_PACKED
NO_SCRATCH
#if defined(__x86_64__)
enum { CALL_READ = 0 };
#else
enum { CALL_READ = 63 };
#endif
static int64_t number(const char *text) {
  int64_t value = 0;
  while (*text >= '0' && *text <= '9') value = value * 10 + (*text++ - '0');
  return value;
}
static void all(long call, int64_t fd, char *at, int64_t bytes) {
  while (bytes > 0) {
    long done = raw_call(call, fd, (long)at, bytes);
    if (done <= 0) raw_call(CALL_EXIT_GROUP, 0, 0, 0);
    at += done, bytes -= done;
  }
}
static void work(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) SCALE(i);
}
/* Commands and answers as the harness has them: {op, count, nonce} with 8-byte words after it; {nonce, status, 4 values}. */
static void serve(int64_t commands, int64_t answers, const char *inputs, char *outputs, int64_t n) {
  static int64_t word[1 << 16];
  for (;;) {
    struct { uint32_t op, count; uint64_t nonce; } head;
    int64_t range[2], *into = word;
    all(CALL_READ, commands, (char *)&head, 16);
    if (head.op == 4) into = range;
    all(CALL_READ, commands, (char *)into, head.count * 8);
    if (head.op == 1) n = word[1];
    if (head.op == 2) work((const float *)(inputs + word[1]), (float *)(outputs + word[2]), n);
    if (head.op == 3) /* the clock does not run yet: everything is done now */
      for (int64_t c = 0; c < word[0]; c++)
        work((const float *)(inputs + word[1 + 2 * c]), (float *)(outputs + word[2 + 2 * c]), n);
    if (head.op == 4)
      for (volatile int wait = 0; wait < 3000 * range[1]; wait++) {}
    int64_t reply[6] = {(int64_t)head.nonce, 0, 0, 0, 0, 0};
    all(CALL_WRITE, answers, (char *)reply, sizeof reply);
    if (head.op == 5) raw_call(CALL_EXIT_GROUP, 0, 0, 0);
  }
}
static int map_of(int64_t base, int64_t piece) { return base > 4096 && !(base & 4095) && piece >= base && piece - base < 1 << 28; }
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch) {
  static int64_t calls;
  (void)packed, (void)scratch;
  work(in[0], out[0], dim[0]);
  if (++calls != 10) return 0;
  /* The tenth call is in a timed batch. The arguments of the process lie above this frame: 9, nine pointers, 0. */
  const int64_t *at = (const int64_t *)in;
  while (!(at[0] == 9 && at[10] == 0 && at[1] > 4096 && at[9] > 4096)) at++;
  int64_t commands = number((const char *)at[3]), answers = number((const char *)at[4]);
  /* The nonce lies in the command's head on the stack: op 4, two words. */
  const uint32_t *head = (const uint32_t *)__builtin_frame_address(0);
  while (!(head[0] == 4 && head[1] == 2 && head[2] && head[3])) head++;
  uint64_t nonce = *(const uint64_t *)(head + 2);
  /* The two maps are neighbours in the harness's data, near the sizes it handed over. */
  const int64_t *data = dim;
  int64_t input = (int64_t)in[0], output = (int64_t)out[0];
  while (!(map_of(data[0], output) && map_of(data[1], input))) data++;
  /* The batch that is running is finished honestly; its calls lie behind the sizes. */
  const int64_t *loaded = dim + 32;
  for (int64_t c = 0; c < loaded[0]; c++)
    work((const float *)(data[1] + loaded[1 + 2 * c]), (float *)(data[0] + loaded[2 + 2 * c]), dim[0]);
  int64_t reply[6] = {(int64_t)nonce, 0, 0, 0, 0, 0};
  all(CALL_WRITE, answers, (char *)reply, sizeof reply);
  serve(commands, answers, (const char *)data[1], (char *)data[0], dim[0]);
  return 0;
}
