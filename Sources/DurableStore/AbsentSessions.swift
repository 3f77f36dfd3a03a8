public import Vocabulary

/// The outbox of a session that does not exist any more.
public struct AbsentOutbox: Hashable, Sendable {
    public var session: SessionName
    /// At least 1.
    public var messages: Int
    /// As ``StoredMessageSummary/size``, of all of them.
    public var bytes: Int64
    /// When the oldest of them was accepted.
    public var oldest: Timestamp
}

/// What the store has of sessions that do not exist any more. It stays until a session of that name exists again.
extension DurableStore {
    /// Returns the messages that were accepted for sessions other than these and not delivered, in the order of the
    /// names.
    package func absentOutboxes(besides present: Set<SessionName>) throws(StoreError) -> [AbsentOutbox] {
        let database = try opened()
        if let known = contents.absentOutboxes, known.present == present { return known.found }
        var found: [AbsentOutbox] = []
        for (name, id) in contents.sessionIDs where !present.contains(name) {
            let range = MessageKey.range(of: id)
            try database.query(
                "SELECT count(*), sum(size & 0x7FFFFFFF), min(accepted_at) FROM message WHERE key BETWEEN ? AND ?",
                .integer(range.lowerBound), .integer(range.upperBound)
            ) { row in
                let messages = Int(row.integer(0))
                if messages > 0 {
                    found.append(
                        AbsentOutbox(
                            session: name, messages: messages, bytes: row.integer(1),
                            oldest: row.time(2)))
                }
                return false
            }
        }
        found.sort { $0.session < $1.session }
        contents.absentOutboxes = (present, found)
        return found
    }

    /// Whether the store has nothing of a session that must not be lost: no messages, consumers, publications or keys.
    package func ownsNothing(_ session: SessionName) throws(StoreError) -> Bool {
        try contents.ownsNothing(session, in: opened())
    }

    /// Gives all that the store has of a session, and its history, to another name, in one transaction.
    ///
    /// - Throws: ``StoreError/inconsistent(_:)`` if the other name owns something.
    package func rename(_ old: SessionName, to new: SessionName) throws(StoreError) {
        let database = try opened()
        guard try contents.ownsNothing(new, in: database) else {
            throw .inconsistent("there already are messages, consumers or publications of \(new)")
        }
        var renamed = contents
        try transaction(in: database, isFlushed: true) { () throws(StoreError) in
            try renamed.rename(old, to: new, in: database)
        }
        contents = renamed
        mustFlush = true
    }
}
