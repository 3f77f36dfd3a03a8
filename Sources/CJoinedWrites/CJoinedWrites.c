#include "CJoinedWrites.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* The log's file, with what is still to be written to it.
 *
 * Bytes are held only from one write to the next that continues it. Anything else that is done with the file writes
 * them first, and so does the write that completes a transaction: SQLite announces the transaction to other connections
 * only after that write has succeeded. If writing fails, what is held is forgotten, and SQLite takes the transaction
 * back, as after any write that fails. */
struct log {
    sqlite3_file file;
    sqlite3_file *system;
    unsigned char *held;
    int count;
    sqlite3_int64 offset;
    /* Whether the last write was the header of a frame that ends a transaction. */
    int ends_transaction;
};

enum {
    /* SQLite's own VFS writes less than 128 KiB at once. */
    room = 64 << 10,
    /* From SQLite's file format, section 4.1: the header of a frame; bytes 4 to 7 of it are zero, unless the frame ends
     * a transaction. Pages have at least 512 bytes. */
    frame_header = 24,
};

static sqlite3_vfs *system_vfs;

/* SQLite appends to the log, or writes it again from its start. If what is in front of these bytes is gone, somebody has
 * cut the file short: SQLite would leave a hole there, and the transaction could never be read. */
static int append(struct log *log, const void *bytes, int count, sqlite3_int64 offset) {
    if (offset > 0) {
        sqlite3_int64 size;
        int result = log->system->pMethods->xFileSize(log->system, &size);
        if (result != SQLITE_OK) return result;
        if (size < offset) return SQLITE_CORRUPT;
    }
    return log->system->pMethods->xWrite(log->system, bytes, count, offset);
}

static int write_held(struct log *log) {
    int count = log->count;
    log->count = 0;
    return count ? append(log, log->held, count, log->offset) : SQLITE_OK;
}

static int log_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset) {
    struct log *log = (struct log *)file;
    const unsigned char *header = bytes;
    int completes = log->ends_transaction;
    if (log->count && (offset != log->offset + log->count || count > room - log->count)) {
        int result = write_held(log);
        if (result != SQLITE_OK) return result;
    }
    log->ends_transaction = count == frame_header && (header[4] | header[5] | header[6] | header[7]);
    if (!log->held) log->held = malloc(room);
    if (!log->held || count > room) return append(log, bytes, count, offset);
    if (!log->count) log->offset = offset;
    memcpy(log->held + log->count, bytes, count);
    log->count += count;
    return completes ? write_held(log) : SQLITE_OK;
}

static int log_close(sqlite3_file *file) {
    struct log *log = (struct log *)file;
    int result = write_held(log);
    free(log->held);
    int closed = log->system->pMethods->xClose(log->system);
    return result != SQLITE_OK ? result : closed;
}

/* The rest is the system's, after what is held was written. */

#define FORWARD(name, parameters, method, ...)                    \
    static int name parameters {                                  \
        struct log *log = (struct log *)file;                     \
        int result = write_held(log);                             \
        if (result != SQLITE_OK) return result;                   \
        return log->system->pMethods->method(log->system, ##__VA_ARGS__); \
    }

FORWARD(log_read, (sqlite3_file *file, void *bytes, int count, sqlite3_int64 offset), xRead, bytes, count, offset)
FORWARD(log_truncate, (sqlite3_file *file, sqlite3_int64 size), xTruncate, size)
FORWARD(log_sync, (sqlite3_file *file, int flags), xSync, flags)
FORWARD(log_size, (sqlite3_file *file, sqlite3_int64 *size), xFileSize, size)
FORWARD(log_lock, (sqlite3_file *file, int level), xLock, level)
FORWARD(log_unlock, (sqlite3_file *file, int level), xUnlock, level)
FORWARD(log_check_lock, (sqlite3_file *file, int *is_locked), xCheckReservedLock, is_locked)
FORWARD(log_control, (sqlite3_file *file, int operation, void *argument), xFileControl, operation, argument)

static int log_sector(sqlite3_file *file) {
    struct log *log = (struct log *)file;
    return log->system->pMethods->xSectorSize(log->system);
}

static int log_characteristics(sqlite3_file *file) {
    struct log *log = (struct log *)file;
    return log->system->pMethods->xDeviceCharacteristics(log->system);
}

/* Version 1: the log is neither shared memory nor mapped. */
static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_characteristics,
};

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *result_flags) {
    (void)vfs;
    if (!(flags & SQLITE_OPEN_WAL)) return system_vfs->xOpen(system_vfs, name, file, flags, result_flags);
    struct log *log = (struct log *)file;
    memset(log, 0, sizeof *log);
    log->system = (sqlite3_file *)(log + 1);
    int result = system_vfs->xOpen(system_vfs, name, log->system, flags, result_flags);
    if (result == SQLITE_OK) log->file.pMethods = &log_methods;
    return result;
}

int holdfast_join_writes(void) {
    static sqlite3_vfs vfs;
    if (system_vfs) return SQLITE_OK;
    system_vfs = sqlite3_vfs_find(NULL);
    if (!system_vfs) return SQLITE_ERROR;
    vfs = *system_vfs;
    vfs.zName = HOLDFAST_JOINED_WRITES;
    vfs.pNext = NULL;
    vfs.szOsFile = sizeof(struct log) + system_vfs->szOsFile;
    vfs.xOpen = open_file;
    return sqlite3_vfs_register(&vfs, 0);
}
