#pragma once
#include <sqlite3.h>

/* Swift calls no function with a variable number of arguments. Makes closing leave the log as it is. */
static inline int holdfast_keep_log(sqlite3 *database) {
    return sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)0);
}

/* The C library declares this for programs with _GNU_SOURCE only. */
int sync_file_range(int descriptor, long long offset, long long count, unsigned int flags);
#define SYNC_FILE_RANGE_WRITE 2
