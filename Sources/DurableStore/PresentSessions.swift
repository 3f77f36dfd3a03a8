package import Vocabulary

// What is on disk of a session was accepted for its servers. The row of each session has these, and whether the session was
// seen without a file since it last had one: a file of the same name that names other servers then may be another
// session's, and must not take what is there to those. A file that is changed while there is one moves its session, with
// everything that it has.

/// What is on disk of a session that was removed, under the name of one that has other servers.
package struct ForeignState: Hashable, Sendable {
    /// Those that it was accepted for.
    package var servers: [Endpoint]
    package var state: AbsentState
}

extension DurableStore {
    private struct SessionRow {
        var id: Int64
        var name: SessionName
        /// The endpoints, separated by blanks; empty if they are not known.
        var servers: String
        var isAbsent: Bool

        func isAt(_ endpoints: [Endpoint]) -> Bool {
            let own = self.endpoints
            return own.isEmpty || own.contains { one in endpoints.contains { $0.isSameServer(as: one) } }
        }

        var endpoints: [Endpoint] { servers.split(separator: " ").compactMap { try? Endpoint(String($0)) } }
    }

    private func sessionRows(in database: Database) throws(StoreError) -> [SessionRow] {
        try database.rows("SELECT id, name, servers, absent FROM session NOT INDEXED") { row in
            SessionName(row.text(1)).map {
                SessionRow(id: row.integer(0), name: $0, servers: row.text(2), isAbsent: row.integer(3) != 0)
            }
        }.compactMap(\.self)
    }

    /// The sessions that there are from now on, with their servers, if these are known. What the store has of others stays,
    /// until it needs the room for a name.
    package func setPresent(_ sessions: [SessionName: [Endpoint]]) throws(StoreError) {
        contents.present = sessions
        let database = try opened()
        let foreign = try foreignStates(among: sessions)
        var changed: [(row: SessionRow, servers: [Endpoint]?)] = []
        for row in try sessionRows(in: database) {
            if let servers = sessions[row.name] {
                // A file with errors says nothing.
                guard !servers.isEmpty, foreign[row.name] == nil else { continue }
                if row.isAbsent || row.servers != servers.text { changed.append((row, servers)) }
            } else if !row.isAbsent, !row.servers.isEmpty {
                changed.append((row, nil))
            }
        }
        guard !changed.isEmpty else { return }
        // No message is added: a full disk must not be the reason that one is sent elsewhere.
        try withRoom(orSpare: true) { () throws(StoreError) in
            try transaction(in: database, isFlushed: true) { () throws(StoreError) in
                for (row, servers) in changed {
                    try database.run(
                        "UPDATE session SET servers = ?, absent = ? WHERE id = ?",
                        .text(servers?.text ?? row.servers), .integer(servers == nil ? 1 : 0), .integer(row.id))
                    guard let servers, row.isAbsent, !row.isAt(servers) else { continue }
                    // A key of the other session's messages must not make this one's count as repeated.
                    try database.run("DELETE FROM publish_key WHERE session = ?", .integer(row.id))
                    // These servers never had what would be cleared there: a topic may be somebody else's.
                    try database.run("DELETE FROM retained WHERE session = ?", .integer(row.id))
                    try database.run("DELETE FROM presence_topic WHERE session = ?", .integer(row.id))
                }
            }
        }
        mustFlush = true
    }

    /// Returns what was left of sessions that were removed, for those of these sessions that have their names, and none of
    /// their servers. Durable consumers alone are no reason to keep them apart.
    package func foreignStates(
        among sessions: [SessionName: [Endpoint]]
    ) throws(StoreError) -> [SessionName: ForeignState] {
        let database = try opened()
        var found: [SessionName: ForeignState] = [:]
        for row in try sessionRows(in: database) where row.isAbsent {
            guard let servers = sessions[row.name], !servers.isEmpty, !row.isAt(servers) else { continue }
            let state = try absentState(row.name, row.id, in: database)
            guard state.messages + state.received + state.publications > 0 else { continue }
            found[row.name] = ForeignState(servers: row.endpoints, state: state)
        }
        return found
    }
}

extension [Endpoint] {
    /// As in the row of a session.
    var text: String { map(\.description).joined(separator: " ") }
}
