#pragma once

/* The name of the VFS that holdfast_join_writes makes known to SQLite. */
#define HOLDFAST_JOINED_WRITES "joined-writes"

/* Makes known to SQLite a VFS that is the default one, except that it writes the frames of a transaction to the
 * write-ahead log together, and does not append to a log that somebody has cut short. SQLite writes each frame in two
 * calls, its header and its page, so that a message of 1 MB takes 490 of them.
 *
 * A connection that uses it must either be the only one or have `PRAGMA cache_spill = OFF`, so that only a commit writes
 * frames: frames are held until the one that ends the transaction, or until something else is done with the file. If the
 * transaction is taken back, that may be after another connection has written in their place.
 *
 * Returns a result code of SQLite. May be called again. */
int holdfast_join_writes(void);
