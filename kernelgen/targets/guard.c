/* Starts one program and ends it, with everything it has started, when the process that asked for it is gone.
 *
 * In:  who asked, which user to become, a command. Out: the program's exit code, 128 + N for signal N.
 * Never here: what the program does. This process stays what its caller is; only the program changes its user.
 *
 * Usage: guard PARENT USER|-1 INFO_FD|-1 PROGRAM [ARGUMENT...], as the leader of a session of its own.
 * SIGTERM ends the program as well. On INFO_FD the program's process id is written as bubblewrap writes it.
 *
 * A parent that dies signals nobody by itself, and a program can ask for such a signal (PR_SET_PDEATHSIG) only for
 * itself and only once it runs: what it forked in between stays. Here the parent is watched from outside, and orphans
 * come to this process (PR_SET_CHILD_SUBREAPER), so there is no moment at which nobody would end them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { NOT_STARTED = 127, PARENT_GONE = 137, LOOK_MS = 50, MOST_FILES = 4096 };

/* Ends the program's group and whoever came to us since, and collects them all; returns the program's status. */
static int end_all(pid_t child) {
  char path[64];
  int status = 0, found = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  for (;;) {
    FILE *list = fopen(path, "r");
    int number, got;
    if (list) {
      while (fscanf(list, "%d", &number) == 1) kill(number, SIGKILL);
      fclose(list);
    }
    /* Without the list an orphan that left the group cannot be found, and must not be waited for. */
    pid_t done = waitpid(list ? -1 : child, &got, 0);
    if (done == child) status = got, found = 1;
    if (done < 0 && errno != EINTR) return status;
    if (!list && found) return status;
  }
}

static void become(long user) {
  if (user < 0) return;
  gid_t group = (gid_t)user;
  if (setgroups(0, 0) || setresgid(group, group, group) || setresuid((uid_t)user, (uid_t)user, (uid_t)user)) {
    fprintf(stderr, "guard: cannot become user %ld: %s\n", user, strerror(errno));
    _exit(NOT_STARTED);
  }
}

static void run(pid_t guard, long user, int info, const sigset_t *mask, char **command) {
  setpgid(0, 0);
  if (info >= 0) close(info);
  become(user);
  /* After the change of user, which would clear it. It holds where somebody kills this guard alone. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard) _exit(PARENT_GONE);
  sigprocmask(SIG_SETMASK, mask, 0);
  execvp(command[0], command);
  fprintf(stderr, "guard: %s: %s\n", command[0], strerror(errno));
  _exit(NOT_STARTED);
}

static void close_all(void) {
  if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0) return;
  for (int number = 0; number < MOST_FILES; number++) close(number);
}

int main(int argc, char **argv) {
  if (argc < 5 || getpgrp() != getpid()) {
    fputs("guard: wanted PARENT USER INFO_FD PROGRAM, in a session of its own\n", stderr);
    return NOT_STARTED;
  }
  const pid_t parent = (pid_t)atol(argv[1]), self = getpid();
  const int info = atoi(argv[3]);
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, &before);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (getppid() != parent) return PARENT_GONE;
  const pid_t child = fork();
  if (child < 0) {
    fprintf(stderr, "guard: no process for %s: %s\n", argv[4], strerror(errno));
    return NOT_STARTED;
  }
  if (child == 0) run(self, atol(argv[2]), info, &before, argv + 4);
  setpgid(child, child); /* whoever is first, so that the group can be ended from here on */
  if (info >= 0) dprintf(info, "{\"child-pid\": %d}\n", (int)child);
  close_all(); /* the other ends must see the program's end, and not this process */

  struct pollfd wakes[] = {
      {(int)syscall(SYS_pidfd_open, parent, 0), POLLIN, 0},
      {(int)syscall(SYS_pidfd_open, child, 0), POLLIN, 0},
      {signalfd(-1, &term, SFD_CLOEXEC), POLLIN, 0},
  };
  const int limit = wakes[0].fd < 0 || wakes[1].fd < 0 || wakes[2].fd < 0 ? LOOK_MS : -1;
  for (;;) {
    siginfo_t ended = {0};
    sigset_t pending;
    sigpending(&pending);
    /* The program is left a zombie until its group has been ended: so long nobody else can have its number. */
    if (getppid() != parent || sigismember(&pending, SIGTERM) ||
        (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child))
      break;
    poll(wakes, 3, limit);
  }
  const int status = end_all(child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
