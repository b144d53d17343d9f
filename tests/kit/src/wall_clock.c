/* A wall clock that a test steps: put before the C library of one program by LD_PRELOAD. The file
 * that WALL_CLOCK_SHIFT names holds seconds, which are added to what the kernel says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int shift = -1;
  int done = (int)syscall(SYS_clock_gettime, clock, now);
  if (done != 0 || clock != CLOCK_REALTIME) return done;
  if (shift < 0 && getenv("WALL_CLOCK_SHIFT")) {
    shift = open(getenv("WALL_CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
  }
  char text[32] = {0};
  if (shift >= 0 && pread(shift, text, sizeof text - 1, 0) > 0) now->tv_sec += atol(text);
  return 0;
}
