/* The child that runs one candidate kernel for the judge.
 *
 * In:  a shared object; commands on a pipe; inputs in a memory file that is read-only here.
 * Out: raw output bytes in a second memory file; one fixed-size answer per command that repeats the judge's nonce.
 * Never here: the oracle, a seed, a clock or a verdict. The candidate shares this process and may forge anything in it,
 * so nothing this process says is believed: the judge checks the bytes and takes the time itself.
 *
 * Usage: harness OBJECT COMMAND_FD ANSWER_FD INPUT_FD OUTPUT_FD CORE ADDRESS_SPACE_BYTES CPU_SECONDS
 * Built with -DSANITIZE the buffers come from malloc, where AddressSanitizer watches their edges.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

typedef size_t (*size_fn)(const int64_t *dim);
typedef int (*prepare_fn)(const void *const *weight, const int64_t *dim, void *packed);
typedef int (*kernel_fn)(const void *const *in, void *const *out, const int64_t *dim, const void *packed, void *scratch);

enum { OP_SETUP = 1, OP_CALL = 2, OP_LOAD = 3, OP_GO = 4, OP_EXIT = 5 };
enum { KIND_INPUT = 0, KIND_OUTPUT = 1, KIND_WEIGHT = 2, KIND_PACKED = 3, KIND_SCRATCH = 4, KIND_SHARED_INPUT = 5 };
enum { ST_OK = 0, ST_RETURNED = 1, ST_CANARY = 2, ST_TOO_LARGE = 3, ST_NO_MEMORY = 4, ST_BAD_COMMAND = 5, ST_NOT_LOADABLE = 6, ST_STATE = 7, ST_FAULT = 1000 };
enum { MAX_TENSORS = 256, MAX_DIMS = 32, MAX_PAYLOAD = 1 << 16 };

struct header { uint32_t op; uint32_t count; uint64_t nonce; };
struct answer { uint64_t nonce; int64_t status; int64_t value[4]; };
struct buffer { char *map; size_t map_bytes; char *body; size_t body_bytes; char *p; size_t bytes; int kind; int index; };

static const size_t PAGE = 4096, GUARD = 1 << 20, LIMIT = (size_t)3 << 30;
static int command_fd, answer_fd;
static uint64_t nonce;
static char *in_map, *out_map;
static size_t in_bytes, out_bytes;
static struct buffer table[4 * MAX_TENSORS];
static int used;
static int64_t payload[MAX_PAYLOAD];
static int64_t dims[MAX_DIMS], size_in[MAX_TENSORS], size_out[MAX_TENSORS], size_weight[MAX_TENSORS];
static int64_t align_in[MAX_TENSORS], align_out[MAX_TENSORS];
static int n_dims, n_in, n_out, n_weight;
static struct buffer packed, scratch;
static int64_t batch_calls;

static void answer(int64_t status, int64_t a, int64_t b, int64_t c, int64_t d) {
  struct answer reply = {nonce, status, {a, b, c, d}};
  const char *p = (const char *)&reply;
  for (size_t left = sizeof reply; left;) {
    ssize_t n = write(answer_fd, p, left);
    if (n <= 0) _exit(3);
    p += n, left -= (size_t)n;
  }
}

static int receive(void *into, size_t bytes) {
  char *p = into;
  while (bytes) {
    ssize_t n = read(command_fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    p += n, bytes -= (size_t)n;
  }
  return 1;
}

static unsigned char canary_at(size_t i) { return (unsigned char)(0xA5u ^ (i * 29u)); }

/* One buffer between two unmapped regions. `left` puts its first byte at the start of the mapped part, otherwise its
 * last byte ends it (up to the alignment). Every other mapped byte holds a canary. */
static int place(struct buffer *b, size_t bytes, size_t align, int left, int kind, int index) {
  memset(b, 0, sizeof *b);
  b->kind = kind, b->index = index, b->bytes = bytes;
#ifdef SANITIZE
  (void)left;
  if (posix_memalign((void **)&b->p, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1)) return 0;
  b->map = b->p;
#else
  size_t body = (bytes + PAGE - 1) / PAGE * PAGE;
  if (!body) body = PAGE;
  b->map_bytes = body + 2 * GUARD;
  b->map = mmap(0, b->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (b->map == MAP_FAILED) { b->map = 0; return 0; }
  b->body = b->map + GUARD, b->body_bytes = body;
  if (mprotect(b->body, body, PROT_READ | PROT_WRITE)) return 0;
  b->p = left ? b->body : b->body + (body - bytes) / align * align;
  size_t lead = (size_t)(b->p - b->body), tail = lead + bytes;
  for (size_t i = 0; i < lead; i++) b->body[i] = (char)canary_at(i);
  for (size_t i = tail; i < body; i++) b->body[i] = (char)canary_at(i);
#endif
  return 1;
}

static int canary_ok(const struct buffer *b) {
  size_t lead = (size_t)(b->p - b->body);
  for (size_t i = 0; i < b->body_bytes; i++) {
    if (i == lead) i += b->bytes;
    if (i < b->body_bytes && (unsigned char)b->body[i] != canary_at(i)) return 0;
  }
  return 1;
}

static void read_only(struct buffer *b) {
  if (b->body_bytes) mprotect(b->body, b->body_bytes, PROT_READ);
}

static void drop(struct buffer *b) {
  if (!b->map) return;
#ifdef SANITIZE
  free(b->map);
#else
  munmap(b->map, b->map_bytes);
#endif
  memset(b, 0, sizeof *b);
}

/* Tells the judge where a fault hit, then ends. Only a help for repair: the verdict does not rest on it. */
static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)context;
  char *at = info->si_addr;
  int kind = -1, index = -1;
  int64_t offset = 0, bytes = 0;
  for (int i = 0; i < used + 2; i++) {
    const struct buffer *b = i < used ? &table[i] : i == used ? &packed : &scratch;
    if (b->map && at >= b->map && at < b->map + b->map_bytes)
      kind = b->kind, index = b->index, offset = at - b->p, bytes = (int64_t)b->bytes;
  }
  if (kind < 0 && in_map && at >= in_map && at < in_map + in_bytes)
    kind = KIND_SHARED_INPUT, offset = at - in_map, bytes = (int64_t)in_bytes;
  answer(ST_FAULT + sig, kind, index, offset, bytes);
  _exit(128 + sig);
}

/* What a caller may rely on after a call: rounding mode, denormals, exception masks, string direction. Exception flags
 * are left out: arithmetic sets them; so is the fixed-point rounding of RISC-V vectors, which no call has to keep. */
static uint64_t control_state(void) {
#if defined(__x86_64__)
  uint32_t mxcsr;
  uint16_t x87;
  uint64_t flags;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  __asm__ volatile("pushfq\n\tpopq %0" : "=r"(flags));
  return (uint64_t)(mxcsr & ~0x3fu) | (uint64_t)x87 << 32 | (flags & 0x400) << 40;
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#elif defined(__riscv) && __riscv_xlen == 64
  uint64_t rounding;
  __asm__ volatile("frrm %0" : "=r"(rounding));
  return rounding;
#else
#error "no control state for this architecture"
#endif
}

static int64_t inside(int64_t offset, int64_t bytes, size_t region) {
  return offset >= 0 && bytes >= 0 && (uint64_t)offset + (uint64_t)bytes <= region;
}

/* payload: n_dims dims.. n_in (bytes align).. n_out (bytes align).. n_weight (bytes offset).. left */
static int parse_setup(uint32_t count, int64_t *weight_at, int *left) {
  uint32_t i = 0;
#define TAKE(x) do { if (i >= count) return 0; (x) = payload[i++]; } while (0)
  TAKE(n_dims); if (n_dims < 0 || n_dims > MAX_DIMS) return 0;
  for (int j = 0; j < n_dims; j++) TAKE(dims[j]);
  TAKE(n_in); if (n_in < 0 || n_in > MAX_TENSORS) return 0;
  for (int j = 0; j < n_in; j++) { TAKE(size_in[j]); TAKE(align_in[j]); }
  TAKE(n_out); if (n_out < 0 || n_out > MAX_TENSORS) return 0;
  for (int j = 0; j < n_out; j++) { TAKE(size_out[j]); TAKE(align_out[j]); }
  TAKE(n_weight); if (n_weight < 0 || n_weight > MAX_TENSORS) return 0;
  for (int j = 0; j < n_weight; j++) { TAKE(size_weight[j]); TAKE(weight_at[j]); if (!inside(weight_at[j], size_weight[j], in_bytes)) return 0; }
  TAKE(*left);
#undef TAKE
  return i == count;
}

static void setup(uint32_t count, size_fn packed_size, prepare_fn prepare, size_fn scratch_size) {
  static int64_t weight_at[MAX_TENSORS];
  const void *weight[MAX_TENSORS];
  int left = 0;
  drop(&packed), drop(&scratch);
  if (!parse_setup(count, weight_at, &left)) { answer(ST_BAD_COMMAND, 0, 0, 0, 0); return; }
  size_t want_packed = packed_size(dims), want_scratch = scratch_size(dims);
  if (want_packed > LIMIT || want_scratch > LIMIT) { answer(ST_TOO_LARGE, (int64_t)want_packed, (int64_t)want_scratch, 0, 0); return; }
  used = 0;
  int ok = place(&packed, want_packed, 64, left, KIND_PACKED, 0) && place(&scratch, want_scratch, 64, left, KIND_SCRATCH, 0);
  for (int j = 0; ok && j < n_weight; j++) {
    ok = place(&table[used], (size_t)size_weight[j], 4, left, KIND_WEIGHT, j);
    if (ok) { memcpy(table[used].p, in_map + weight_at[j], (size_t)size_weight[j]); read_only(&table[used]); weight[j] = table[used].p; }
    used++;
  }
  if (!ok) { answer(ST_NO_MEMORY, (int64_t)want_packed, (int64_t)want_scratch, 0, 0); return; }
  memset(packed.p, 0xFF, want_packed), memset(scratch.p, 0xFF, want_scratch);
  uint64_t state = control_state();
  int rc = prepare(weight, dims, packed.p);
  int changed = control_state() != state;
  int clean = canary_ok(&packed);
  for (int j = 0; j < used; j++) clean = clean && canary_ok(&table[j]), drop(&table[j]);
  used = 0;
  read_only(&packed);
  answer(rc ? ST_RETURNED : changed ? ST_STATE : clean ? ST_OK : ST_CANARY, rc, (int64_t)want_packed, (int64_t)want_scratch, 0);
}

/* payload: left, offset of every input, offset of every output */
static void call(uint32_t count, kernel_fn kernel) {
  const void *in[MAX_TENSORS];
  void *out[MAX_TENSORS];
  int left = (int)payload[0], ok = count == (uint32_t)(1 + n_in + n_out);
  const int64_t *in_at = payload + 1, *out_at = payload + 1 + n_in;
  for (int j = 0; ok && j < n_in; j++) ok = inside(in_at[j], size_in[j], in_bytes);
  for (int j = 0; ok && j < n_out; j++) ok = inside(out_at[j], size_out[j], out_bytes);
  if (!ok) { answer(ST_BAD_COMMAND, 0, 0, 0, 0); return; }
  used = 0;
  for (int j = 0; ok && j < n_in; j++, used++) {
    ok = place(&table[used], (size_t)size_in[j], (size_t)align_in[j], left, KIND_INPUT, j);
    if (ok) { memcpy(table[used].p, in_map + in_at[j], (size_t)size_in[j]); read_only(&table[used]); in[j] = table[used].p; }
  }
  for (int j = 0; ok && j < n_out; j++, used++) {
    ok = place(&table[used], (size_t)size_out[j], (size_t)align_out[j], left, KIND_OUTPUT, j);
    if (ok) { memcpy(table[used].p, out_map + out_at[j], (size_t)size_out[j]); out[j] = table[used].p; }
  }
  if (!ok) { answer(ST_NO_MEMORY, 0, 0, 0, 0); return; }
  memset(scratch.p, 0xFF, scratch.bytes);
  uint64_t state = control_state();
  int rc = kernel(in, out, dims, packed.p, scratch.p), changed = control_state() != state;
  int clean = canary_ok(&scratch), bad = -1;
  for (int j = 0; j < used; j++) if (!canary_ok(&table[j])) clean = 0, bad = j;
  for (int j = 0; j < n_out; j++) memcpy(out_map + out_at[j], table[n_in + j].p, (size_t)size_out[j]);
  for (int j = 0; j < used; j++) drop(&table[j]);
  used = 0;
  answer(rc ? ST_RETURNED : changed ? ST_STATE : clean ? ST_OK : ST_CANARY, rc, bad, 0, 0);
}

/* payload: calls, then for every call the offsets of its inputs and outputs. Touches every page once, so that the timed
 * run does not pay for the first fault on memory the judge has just filled. */
static void load(uint32_t count) {
  int64_t each = n_in + n_out;
  batch_calls = payload[0];
  int ok = batch_calls >= 0 && batch_calls * each + 1 == (int64_t)count;
  for (int64_t c = 0; ok && c < batch_calls; c++) {
    int64_t *at = payload + 1 + c * each;
    for (int j = 0; ok && j < n_in; j++) {
      ok = inside(at[j], size_in[j], in_bytes);
      for (int64_t k = 0; ok && k < size_in[j]; k += (int64_t)PAGE) (void)*(volatile char *)(in_map + at[j] + k);
    }
    for (int j = 0; ok && j < n_out; j++) {
      ok = inside(at[n_in + j], size_out[j], out_bytes);
      for (int64_t k = 0; ok && k < size_out[j]; k += (int64_t)PAGE) { volatile char *p = out_map + at[n_in + j] + k; *p = *p; }
    }
  }
  if (!ok) batch_calls = 0;
  answer(ok ? ST_OK : ST_BAD_COMMAND, 0, 0, 0, 0);
}

/* payload: first call, calls. It must not overwrite the loaded calls, so it is read into a place of its own. */
static void go(const int64_t *range, uint32_t count, kernel_fn kernel) {
  const void *in[MAX_TENSORS];
  void *out[MAX_TENSORS];
  int64_t each = n_in + n_out, bad = 0;
  int64_t first = range[0], end = range[0] + range[1];
  if (count != 2 || first < 0 || end < first || end > batch_calls) { answer(ST_BAD_COMMAND, 0, 0, 0, 0); return; }
  uint64_t state = control_state();
  for (int64_t c = first; c < end; c++) {
    const int64_t *at = payload + 1 + c * each;
    for (int j = 0; j < n_in; j++) in[j] = in_map + at[j];
    for (int j = 0; j < n_out; j++) out[j] = out_map + at[n_in + j];
    bad += kernel(in, out, dims, packed.p, scratch.p) != 0;
  }
  answer(bad ? ST_RETURNED : control_state() != state ? ST_STATE : ST_OK, bad, range[1], 0, 0);
}

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#else
#error "no system call filter for this architecture"
#endif
#define LOW(n) (offsetof(struct seccomp_data, args) + 8 * (n))

static int install(struct sock_filter *filter, size_t length) {
  struct sock_fprog program = {(unsigned short)length, filter};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#ifdef SANITIZE
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0:exitcode=99:abort_on_error=0:handle_segv=1:allocator_may_return_null=1"; }
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "halt_on_error=1:exitcode=99:print_stacktrace=0"; }

/* The sanitizers need more of the system than a kernel does, so here is a list of what nobody may do: reach the network,
 * start or touch another process, open a file for writing, change a name. */
static int lock_down(void) {
  static const int denied[] = {
      __NR_socket, __NR_socketpair, __NR_connect, __NR_bind, __NR_listen, __NR_accept, __NR_accept4, __NR_sendto, __NR_sendmsg,
      __NR_clone, __NR_execve, __NR_execveat, __NR_kill, __NR_tkill, __NR_ptrace, __NR_process_vm_readv,
      __NR_process_vm_writev, __NR_unlinkat, __NR_renameat2, __NR_mkdirat, __NR_linkat, __NR_symlinkat, __NR_fchmodat,
      __NR_fchownat, __NR_mknodat, __NR_truncate, __NR_ftruncate, __NR_mount, __NR_umount2, __NR_bpf, __NR_perf_event_open,
      __NR_io_uring_setup, __NR_userfaultfd, __NR_memfd_create, __NR_keyctl, __NR_setns, __NR_unshare,
#ifdef __NR_clone3
      __NR_clone3,
#endif
#if defined(__x86_64__)
      __NR_creat, __NR_fork, __NR_vfork, __NR_unlink, __NR_rename, __NR_mkdir, __NR_rmdir, __NR_link, __NR_symlink,
      __NR_chmod, __NR_chown, __NR_mknod, __NR_renameat,
#endif
  };
  enum { COUNT = sizeof denied / sizeof *denied, FIXED = 12 };
  enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC };
  struct sock_filter filter[COUNT + 16] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, FIXED - 5 + COUNT + 1, 0),
#if defined(__x86_64__)
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_open, 0, 2),
#else
      BPF_JUMP(BPF_JMP | BPF_JA, 2, 0, 0),
#endif
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(1)),
      BPF_JUMP(BPF_JMP | BPF_JA, 2, 0, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(2)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, WRITING, FIXED - 11 + COUNT + 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  int at = FIXED;
  for (int i = 0; i < COUNT; i++, at++)
    filter[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denied[i], (unsigned char)(COUNT - i), 0);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  return install(filter, (size_t)at);
}
#else
/* From here on only: read the command pipe, write the answer pipe, map memory that cannot be executed, end. */
static int lock_down(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_read, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(0)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)command_fd, 13, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(0)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)answer_fd, 9, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(2)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 5, 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_munmap, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigreturn, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_restart_syscall, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  return install(filter, sizeof filter / sizeof *filter);
}

static void limit(int what, rlim_t value) {
  struct rlimit r = {value, value};
  setrlimit(what, &r);
}
#endif

/* The matrix unit's large register state is handed out on request only (Linux, x86/xstate); a kernel cannot ask for it
 * later. Where there is no such unit the request fails and nothing changes. */
static void ask_for_matrix_unit(void) {
#if defined(__x86_64__)
  enum { REQUEST = 0x1023, TILE_DATA = 18 };
  syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
#endif
}

int main(int argc, char **argv) {
  if (argc != 9) return 2;
  command_fd = atoi(argv[2]), answer_fd = atoi(argv[3]);
  int in_fd = atoi(argv[4]), out_fd = atoi(argv[5]), core = atoi(argv[6]);
  if (core >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  ask_for_matrix_unit();
  struct stat st;
  if (fstat(in_fd, &st)) return 2;
  in_bytes = (size_t)st.st_size;
  if (fstat(out_fd, &st)) return 2;
  out_bytes = (size_t)st.st_size;
  in_map = mmap(0, in_bytes, PROT_READ, MAP_SHARED, in_fd, 0);
  out_map = mmap(0, out_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, out_fd, 0);
  if (in_map == MAP_FAILED || out_map == MAP_FAILED) return 2;
#ifndef SANITIZE
  limit(RLIMIT_AS, (rlim_t)strtoull(argv[7], 0, 10));
  limit(RLIMIT_CPU, (rlim_t)strtoull(argv[8], 0, 10));
  limit(RLIMIT_FSIZE, 0), limit(RLIMIT_CORE, 0), limit(RLIMIT_STACK, 8 << 20);
  limit(RLIMIT_NPROC, 0), limit(RLIMIT_MSGQUEUE, 0);
  static char alternate[1 << 16];
  stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaltstack(&stack, 0);
  int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, 0);
#endif
  void *object = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  size_fn packed_size = object ? (size_fn)dlsym(object, "packed_bytes") : 0;
  prepare_fn prepare = object ? (prepare_fn)dlsym(object, "prepare") : 0;
  size_fn scratch_size = object ? (size_fn)dlsym(object, "scratch_bytes") : 0;
  kernel_fn kernel = object ? (kernel_fn)dlsym(object, "kernel") : 0;
  if (!packed_size || !prepare || !scratch_size || !kernel) {
    const char *why = object ? "packed_bytes, prepare, scratch_bytes or kernel is missing" : dlerror();
    fprintf(stderr, "%s\n", why ? why : "cannot open the object");
    answer(ST_NOT_LOADABLE, 0, 0, 0, 0);
    return 4;
  }
  if (!lock_down()) { perror("seccomp"); return 5; }
  answer(ST_OK, 0, 0, 0, 0); /* ready; the nonce is still 0 */
  struct header head;
  while (receive(&head, sizeof head)) {
    int64_t range[2] = {0, 0}, *into = head.op == OP_GO ? range : payload;
    uint32_t most = head.op == OP_GO ? 2 : MAX_PAYLOAD;
    if (head.count > most || !receive(into, head.count * sizeof *payload)) return 6;
    nonce = head.nonce;
    switch (head.op) {
      case OP_SETUP: setup(head.count, packed_size, prepare, scratch_size); break;
      case OP_CALL: call(head.count, kernel); break;
      case OP_LOAD: load(head.count); break;
      case OP_GO: go(range, head.count, kernel); break;
      case OP_EXIT: answer(ST_OK, 0, 0, 0, 0); _exit(0);
      default: answer(ST_BAD_COMMAND, 0, 0, 0, 0);
    }
  }
  return 0;
}
