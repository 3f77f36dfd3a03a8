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

/// What the store has of sessions that do not exist any more. It stays until a session of that name exists again, or one
/// that was called so before.
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

    private func absentState(
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

    /// Returns the sessions that are about to continue another one, with its name: those whose earlier names are other
    /// ones than when they were last started.
    package func claims(of sessions: [SessionName: PresentSession]) -> [SessionName: SessionName] {
        var claims: [SessionName: SessionName] = [:]
        for (name, session) in sessions { claims[name] = claim(of: name, session) }
        return claims
    }

    /// The latest of its earlier names under which there is something.
    private func claim(of name: SessionName, _ session: PresentSession?) -> SessionName? {
        guard let names = session?.formerNames, names != contents.formerNames[name, default: []] else { return nil }
        return names.last { contents.sessionIDs[$0] != nil }
    }

    /// Gives a session that is about to be started all that the store has of one that was called so before, and its
    /// history, in one transaction. That is done once: until its earlier names are others.
    ///
    /// What was stored of the session itself is forgotten, unless it has messages, consumers or publications.
    ///
    /// - Parameter present: the sessions that there are, as in ``setPresent(_:)``. What belongs to one of them stays.
    package func takeOver(
        by new: SessionName, present: [SessionName: PresentSession]
    ) throws(StoreError) -> TakeOver {
        let database = try opened()
        contents.present = present
        let names = present[new]?.formerNames ?? []
        guard names != contents.formerNames[new, default: []] else { return .nothing }
        let old = claim(of: new, present[new])
        if let old, present[old] != nil { return .nothing }
        let isFree = try contents.ownsNothing(new, in: database)
        // No message is added: a full disk must not keep the session from starting.
        try withRoom(orSpare: true) { () throws(StoreError) in
            var changed = contents
            try transaction(in: database, isFlushed: true) { () throws(StoreError) in
                if let old, isFree { try changed.rename(old, to: new, in: database) }
                try changed.note(names, asFormerNamesOf: new, in: database)
            }
            contents = changed
        }
        mustFlush = true
        return old.map { isFree ? .done($0) : .refused($0) } ?? .nothing
    }

    /// The sessions that there are from now on. What the store has of others stays, until it needs the room for a name.
    package func setPresent(_ sessions: [SessionName: PresentSession]) {
        contents.present = sessions
        // One that returns later, or has its key again, is as a new one.
        let ended = contents.formerNames.keys.filter { sessions[$0].map { $0.formerNames == [] } ?? true }
        guard !ended.isEmpty, let database = try? opened() else { return }
        try? withRoom(orSpare: true) { () throws(StoreError) in
            var changed = contents
            try transaction(in: database, isFlushed: false) { () throws(StoreError) in
                for name in ended { try changed.note([], asFormerNamesOf: name, in: database) }
            }
            contents = changed
        }
    }
}

/// What the store has to know of a session that is configured.
package struct PresentSession: Hashable, Sendable {
    /// Its servers; none if they are not known.
    package var endpoints: [Endpoint]
    /// The names that it had before, the latest last; `nil` if they are not known.
    package var formerNames: [SessionName]?

    package init(endpoints: [Endpoint] = [], formerNames: [SessionName]? = nil) {
        self.endpoints = endpoints
        self.formerNames = formerNames
    }
}

/// What became of what the store had under an earlier name of a session.
package enum TakeOver: Hashable, Sendable {
    /// There is nothing.
    case nothing
    /// It belongs to the session now.
    case done(SessionName)
    /// It stays where it is, because the session has messages, consumers or publications of its own.
    case refused(SessionName)
}
