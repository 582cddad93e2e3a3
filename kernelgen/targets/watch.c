/* What the emulator tells about the program it emulates: exact instruction counts, and no system call it should not make.
 *
 * In:  qemu-user's plugin hooks; the numbers of the harness's two pipes as arguments `command=` and `answer=`.
 * Out: before every answer of the harness one line `count OWN ALL` on stderr: instructions executed since the answer before
 *      inside the candidate's object (OWN), and from its first to its last, C library calls included (ALL).
 * Never here: a time. Emulated time says nothing about a machine.
 *
 * qemu-user refuses the harness's own system call filter (it would bind the emulator). The harness asks for it all the same;
 * the request is seen here, and from then on the same list holds: anything else ends the process by SIGSYS.
 * The declarations below are qemu's plugin interface, version 1 unless the build says otherwise; they need no qemu headers.
 */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
typedef void (*translated_fn)(plugin_id id, struct qemu_plugin_tb *block);
typedef void (*executed_fn)(unsigned int cpu, void *data);
typedef void (*called_fn)(plugin_id id, unsigned int cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                          uint64_t e, uint64_t f, uint64_t g, uint64_t h);
typedef void (*returned_fn)(plugin_id id, unsigned int cpu, int64_t number, int64_t result);
enum { NO_REGISTERS = 0 };
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, translated_fn hook);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, executed_fn hook, int flags, void *data);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id id, called_fn hook);
void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id id, returned_fn hook);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);

#ifndef PLUGIN_API
#define PLUGIN_API 1
#endif
#define SEEN __attribute__((visibility("default")))
SEEN int qemu_plugin_version = PLUGIN_API;

/* Linux's generic table, which both aarch64 and riscv64 use. */
enum { RESTART = 128, READ = 63, WRITE = 64, EXIT_GROUP = 94, SIGRETURN = 139, PRCTL = 167, MUNMAP = 215, MMAP = 222, MPROTECT = 226 };
enum { SET_SECCOMP = 22, EXECUTABLE = 4, ANONYMOUS = 0x20, MAX_LIBRARIES = 16 };

struct range { uint64_t first, end; };
struct block { uint64_t address; uint64_t instructions; };

static int command_fd = -1, answer_fd = -1, locked, inside;
static struct range library[MAX_LIBRARIES]; /* files the guest itself mapped to run code from; the newest is the candidate */
static int libraries;
static uint64_t own, all, mapped_bytes;

static int which(uint64_t address) {
  for (int i = 0; i < libraries; i++)
    if (address >= library[i].first && address < library[i].end) return i;
  return -1;
}

/* Control enters the candidate by its object, may pass through the C library, and is back when it reaches the harness, which
 * the emulator loaded itself and which is therefore in no range. */
static void executed(unsigned int cpu, void *data) {
  (void)cpu;
  const struct block *block = data;
  if (!locked) return;
  const int place = which(block->address);
  if (place == libraries - 1) own += block->instructions, inside = 1;
  if (place < 0) inside = 0;
  if (inside) all += block->instructions;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
  (void)id;
  struct block *block = malloc(sizeof *block); /* lives as long as the emulated code */
  if (!block) abort();
  block->address = qemu_plugin_tb_vaddr(tb), block->instructions = qemu_plugin_tb_n_insns(tb);
  qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, block);
}

static void refuse(void) {
  signal(SIGSYS, SIG_DFL);
  raise(SIGSYS);
  _exit(128 + SIGSYS);
}

static int allowed(int64_t number, uint64_t a, uint64_t c) {
  switch (number) {
    case READ: return (int)a == command_fd;
    case WRITE: return (int)a == answer_fd;
    case MMAP: case MPROTECT: return !(c & EXECUTABLE);
    case MUNMAP: case EXIT_GROUP: case SIGRETURN: case RESTART: return 1;
    default: return 0;
  }
}

static void called(plugin_id id, unsigned int cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                   uint64_t f, uint64_t g, uint64_t h) {
  (void)id, (void)cpu, (void)e, (void)f, (void)g, (void)h;
  if (locked && !allowed(number, a, c)) refuse();
  mapped_bytes = number == MMAP && (c & EXECUTABLE) && !(d & ANONYMOUS) ? b : 0;
  if (number == PRCTL && a == SET_SECCOMP) locked = 1;
  if (locked && number == WRITE) {
    char line[80];
    const int length = snprintf(line, sizeof line, "count %llu %llu\n", (unsigned long long)own, (unsigned long long)all);
    if (write(STDERR_FILENO, line, (size_t)length) != length) abort();
    own = all = 0, inside = 0;
  }
}

static void returned(plugin_id id, unsigned int cpu, int64_t number, int64_t result) {
  (void)id, (void)cpu;
  if (number != MMAP || !mapped_bytes || result < 0) return;
  if (libraries == MAX_LIBRARIES) abort();
  library[libraries++] = (struct range){(uint64_t)result, (uint64_t)result + mapped_bytes};
}

SEEN int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++) {
    if (!strncmp(argv[i], "command=", 8)) command_fd = atoi(argv[i] + 8);
    if (!strncmp(argv[i], "answer=", 7)) answer_fd = atoi(argv[i] + 7);
  }
  if (command_fd < 0 || answer_fd < 0) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  qemu_plugin_register_vcpu_syscall_ret_cb(id, returned);
  return 0;
}
