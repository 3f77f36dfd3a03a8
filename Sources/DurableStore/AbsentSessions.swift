public import Vocabulary

/// What is stored of a session that does not exist any more.
public struct AbsentState: Hashable, Sendable {
    public var session: SessionName
    /// Messages in the outbox.
    public var messages = 0
    /// As ``StoredMessageSummary/size``, of all of them.
    public var bytes: Int64 = 0
    /// When the oldest of them was accepted.
    public var oldest: Timestamp?
    /// Durable consumers.
    public var consumers = 0
    /// Messages that these have not taken.
    public var received = 0
    public var publications = 0

    var isEmpty: Bool { messages == 0 && consumers == 0 && publications == 0 }
}

/// What the store has of sessions that do not exist any more. It stays until a session of that name exists
/// again.
extension DurableStore {
    /// Returns what there is of sessions other than these, in the order of the names.
    package func absentStates(besides present: Set<SessionName>) throws(StoreError) -> [AbsentState] {
        let database = try opened()
        if let known = contents.absentStates, known.present == present { return known.found }
        var found: [AbsentState] = []
        for (name, id) in contents.sessionIDs where !present.contains(name) {
            let state = try absentState(name, id, in: database)
            if !state.isEmpty { found.append(state) }
        }
        found.sort { $0.session < $1.session }
        contents.absentStates = (present, found)
        return found
    }

    func absentState(
        _ name: SessionName, _ id: Int64, in database: Database
    ) throws(StoreError) -> AbsentState {
        var state = AbsentState(session: name)
        let range = MessageKey.range(of: id)
        try database.query(
            "SELECT count(*), sum(size & 0x7FFFFFFF), min(accepted_at) FROM message WHERE key BETWEEN ? AND ?",
            .integer(range.lowerBound), .integer(range.upperBound)
        ) { row in
            (state.messages, state.bytes) = (row.count(0), row.integer(1))
            if state.messages > 0 { state.oldest = row.time(2) }
            return false
        }
        let consumers = try database.rows("SELECT id FROM consumer WHERE session = ?", .integer(id)) { $0.integer(0) }
        state.consumers = consumers.count
        for consumer in consumers {
            let range = MessageKey.range(of: consumer)
            state.received += Int(
                try database.integer(
                    "SELECT count(*) FROM inbox WHERE key BETWEEN ? AND ?", .integer(range.lowerBound),
                    .integer(range.upperBound)) ?? 0)
        }
        state.publications = Int(
            try database.integer("SELECT count(*) FROM publication WHERE session = ?", .integer(id)) ?? 0)
        return state
    }
}
