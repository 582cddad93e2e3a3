/* The judge's harness, built for a processor that is emulated here.
 *
 * It is the same text with the same guard pages, poison and pipes. One thing differs: qemu-user refuses to install a system
 * call filter on behalf of the program it emulates, because the filter would bind the emulator itself. The request is made
 * all the same and its refusal ignored: the emulator's plugin (watch.c) sees it and holds the same list from then on.
 * Built with -DHARNESS="path of the text".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

/* Asks, and says yes whatever the emulator answers. */
static int ask(int option, unsigned long a, const void *b) {
  (void)prctl(option, a, b, 0, 0);
  return 0;
}
#define FIRST_THREE(option, a, b, ...) ask(option, (unsigned long)(a), (const void *)(b))
#define prctl(...) FIRST_THREE(__VA_ARGS__, 0)

#include HARNESS
