public import MQTT

/// The size and the counters of the store, for `daemon.status`.
public struct StoreStatistics: Hashable, Sendable {
    /// The database file.
    public var path: String
    /// The version of the file's layout.
    public var schemaVersion: Int
    /// The size of the database file, in bytes.
    public var fileBytes: Int
    /// The size of the write-ahead log, in bytes.
    public var logBytes: Int
    /// The bytes that the file system has left for the daemon; `nil` if it does not say.
    public var freeBytes: UInt64?
    /// The commits since the store was opened.
    public var commits: Commits
    /// Messages of all sessions, queued, in flight and quarantined.
    public var messages: Int

    /// The commits since the store was opened.
    public struct Commits: Hashable, Sendable {
        /// Transactions that succeeded.
        public var count: UInt64 = 0
        /// Transactions that failed.
        public var failed: UInt64 = 0
        /// How many waited for the disk.
        public var flushes: UInt64 = 0
    }
}

/// What was found when the store was opened.
public struct OpenReport: Hashable, Sendable {
    /// There was no database before: a first start, or it was moved aside.
    public var isNew: Bool
    /// The database that was damaged and is kept under another name, if there was one.
    public var movedAside: MovedAside?
    /// The copy that was made before the file was brought to a newer schema.
    public var backup: String?
    /// What had lost its session.
    public var adopted = Adopted()
    /// The last sign of life of the daemon that had the directory before; `nil` if there was none.
    public var lastAlive: Timestamp?

    /// A database that was damaged or removed, and was replaced by a new one with what could be recovered.
    public struct MovedAside: Hashable, Sendable {
        /// Where the old one is now; `nil` if nothing of it was left.
        public var path: String?
        /// What was wrong with it.
        public var cause: String
        /// Messages of outboxes and inboxes that the new one has.
        public var messages = 0
        /// Whether everything could be read.
        public var isComplete = false
        /// Whether the new one equals the old one, so that sessions can go on with what they know.
        public var isSeamless = false
        /// What had lost its session, if that was found while the daemon runs.
        public var adopted = Adopted()
    }

    /// What is left of sessions and consumers whose own rows are lost.
    public struct Adopted: Hashable, Sendable {
        /// The names that what is left of sessions was given.
        public var sessions: [String] = []
        /// Received messages of consumers that are not known any more.
        public var received = 0
        /// The session that has these now; `nil` if there is no room for another one.
        public var receiver: String?
    }
}

extension OpenReport.MovedAside {
    /// What happened and its consequences, for people.
    public var sentence: String {
        "the durable state was damaged (\(cause))" + (path.map { " and is kept as \($0)" } ?? "") + "; "
            + (isComplete
                ? "everything in it was recovered"
                : "\(messages) messages were recovered; others that were accepted and not delivered may be lost"
                    + (path == nil ? "" : ", and sqlite3 .recover may find them there"))
    }
}

extension OpenReport.Adopted {
    /// What was found, for people, one sentence each.
    public var sentences: [String] {
        var sentences = sessions.map {
            "the name of a session is lost: what is left of it is kept as \($0), and a file \($0).toml takes it up"
        }
        if received > 0 {
            let messages = received == 1 ? "message" : "messages"
            let what = "\(received) received \(messages) of durable consumers that are lost"
            sentences.append(
                receiver.map {
                    "\(what): consumers of \($0) have what is left, and a file \($0).toml takes it up"
                } ?? "\(what): what is left is in the tables inbox and content, where only sqlite3 can read it")
        }
        return sentences
    }
}
