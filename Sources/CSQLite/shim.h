#pragma once
#include <sqlite3.h>

/* The C library declares this for programs with _GNU_SOURCE only. */
int sync_file_range(int descriptor, long long offset, long long count, unsigned int flags);
#define SYNC_FILE_RANGE_WRITE 2
