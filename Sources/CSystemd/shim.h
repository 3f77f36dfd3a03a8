#pragma once
#include <fcntl.h>
#include <linux/stat.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <systemd/sd-id128.h>
#include <systemd/sd-journal.h>

/// When a file was made, in nanoseconds since 1970: statx(2), which glibc has for GNU sources only. 0 if that is not known.
static inline int64_t holdfast_birth_time(const char *path) {
    struct statx status;
    memset(&status, 0, sizeof status);
    if (syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BTIME, &status) != 0) return 0;
    if (!(status.stx_mask & STATX_BTIME)) return 0;
    return status.stx_btime.tv_sec * 1000000000 + status.stx_btime.tv_nsec;
}
