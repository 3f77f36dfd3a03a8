internal import MQTT
internal import SessionCore

/// How each change becomes rows. Everything here runs inside the transaction of a commit.
extension DurableStore {
    func apply(_ changes: [DurableChange], to session: SessionName, in database: Database) throws(StoreError) {
        let id = try makeSession(session, in: database)
        var last: MessageSequence?
        var lastCollected: InboxSequence?
        var rest = changes[...]
        while let change = rest.first {
            // What is removed or goes out is so in a row, mostly.
            if let count = try applyRow(at: rest, to: id, in: database) {
                rest = rest.dropFirst(count)
                continue
            }
            rest = rest.dropFirst()
            if let sequence = change.newSequence {
                if last == nil { last = try lastSequence(of: id, in: database) }
                guard let previous = last, sequence > previous else {
                    throw .inconsistent("message \(sequence) of \(session) comes after \(last ?? .zero)")
                }
                last = sequence
            }
            try apply(change, to: id, in: database)
            if case .collect(let collected, _, _) = change {
                lastCollected = max(lastCollected ?? .zero, collected.sequence)
            }
        }
        // For the same reason as below.
        if let lastCollected {
            try database.run(
                "UPDATE session SET next_inbox_sequence = max(next_inbox_sequence, ?) WHERE id = ?",
                .integer(lastCollected.next.rawValue), .integer(id))
        }
        // In the same transaction as the inserts: a sequence is used up for ever, also when its message is gone.
        if let last {
            try database.run(
                "UPDATE session SET next_sequence = ? WHERE id = ?", .integer(last.next.rawValue), .integer(id))
        }
    }

    /// The row of the session, which is made if there is none.
    func makeSession(_ session: SessionName, in database: Database) throws(StoreError) -> Int64 {
        if let id = sessionIDs[session] { return id }
        try database.run("INSERT INTO session (name) VALUES (?)", .text(session.description))
        guard
            let id = try database.integer("SELECT id FROM session WHERE name = ?", .text(session.description)),
            MessageKey.sessions.contains(id)
        else { throw .inconsistent("there is no room for another session than the 32767 that there were") }
        sessionIDs[session] = id
        return id
    }

    private func lastSequence(of session: Int64, in database: Database) throws(StoreError) -> MessageSequence {
        let next = try database.integer("SELECT next_sequence FROM session WHERE id = ?", .integer(session)) ?? 1
        return MessageSequence(rawValue: next - 1)
    }

    private func apply(_ change: DurableChange, to session: Int64, in database: Database) throws(StoreError) {
        switch change {
        case .insert(let stored):
            try insert(stored, session, database)
        case .assign(let sequence, let packetID):
            try markInFlight(key(session, sequence), packetID, 1, released: false, database)
        case .unassign(let sequence):
            try database.run("DELETE FROM in_flight WHERE key = ?", .integer(key(session, sequence).rawValue))
        case .release(let sequence):
            try database.run(
                "UPDATE in_flight SET released = 1 WHERE key = ?", .integer(key(session, sequence).rawValue))
        case .remove(let sequence):
            try remove(key(session, sequence), 1, database)
        case .quarantine(let sequence, let code, let message):
            try quarantine(key(session, sequence), code, message, database)
        case .requeue(let sequence, let newSequence, let time):
            let (old, new) = (try key(session, sequence).rawValue, try key(session, newSequence).rawValue)
            // Only what is quarantined moves: a row in flight would be left without its message.
            try database.run(
                "UPDATE message SET key = ?, accepted_at = ? WHERE key = ? AND key IN (SELECT key FROM quarantine)",
                .integer(new), .integer(time.rawValue), .integer(old))
            try database.run("DELETE FROM quarantine WHERE key = ?", .integer(old))
        case .shiftTimes(let milliseconds, let range):
            let keys = MessageKey.range(of: session)
            try database.run(
                """
                UPDATE message SET accepted_at = accepted_at + ?1, expires_at = expires_at + ?1
                WHERE key BETWEEN ?2 AND ?3 AND accepted_at BETWEEN ?4 AND ?5
                """,
                .integer(milliseconds), .integer(keys.lowerBound), .integer(keys.upperBound),
                .integer(range.lowerBound.rawValue), .integer(range.upperBound.rawValue))
        case .insertInbound(let packetID):
            try database.run(
                "INSERT OR IGNORE INTO inbound (session, packet_id) VALUES (?, ?)", .integer(session),
                .integer(packetID.rawValue))
        case .removeInbound(let packetID):
            try database.run(
                "DELETE FROM inbound WHERE session = ? AND packet_id = ?", .integer(session),
                .integer(packetID.rawValue))
        case .removeAllInbound:
            try database.run("DELETE FROM inbound WHERE session = ?", .integer(session))
        case .retireIdentifier(let packetID):
            try database.run(
                "INSERT OR IGNORE INTO retired (session, packet_id) VALUES (?, ?)", .integer(session),
                .integer(packetID.rawValue))
        case .freeRetiredIdentifiers:
            try database.run("DELETE FROM retired WHERE session = ?", .integer(session))
        case .rememberSubscription(let filter):
            try database.run(
                "INSERT OR IGNORE INTO subscription (session, filter) VALUES (?, ?)", .integer(session),
                .text(filter.string))
        case .forgetSubscription(let filter):
            try database.run(
                "DELETE FROM subscription WHERE session = ? AND filter = ?", .integer(session), .text(filter.string))
        case .forgetAllSubscriptions:
            try database.run("DELETE FROM subscription WHERE session = ?", .integer(session))
        case .setAssignedClientID(let clientID):
            try database.run(
                "UPDATE session SET assigned_client_id = ? WHERE id = ?", .text(clientID), .integer(session))
        case .setEstablished(let established):
            try database.run(
                "UPDATE session SET established = ? WHERE id = ?", .integer(established ? 1 : 0), .integer(session))
        case .setHomes(let addresses):
            try database.run("DELETE FROM home WHERE session = ?", .integer(session))
            for (position, address) in addresses.enumerated() {
                try database.run(
                    "INSERT INTO home (session, position, address) VALUES (?, ?, ?)", .integer(session),
                    .integer(position), .text(address))
            }
        case .setPresences(let times):
            try database.run("DELETE FROM presence WHERE session = ?", .integer(session))
            for since in times {
                try database.run(
                    "INSERT INTO presence (session, since) VALUES (?, ?)", .integer(session), .integer(since.rawValue))
            }
        case .putPublication(let publication):
            // A new row, so that the rows stay in the order in which they were put.
            try database.run(
                """
                INSERT OR REPLACE INTO publication (session, topic, qos, properties, payload, since)
                VALUES (?, ?, ?, ?, ?, ?)
                """,
                .integer(session), .text(publication.topic), .integer(publication.qos.rawValue),
                StoredProperties.encode(publication.properties).map { .blob($0) } ?? .null,
                .blob(publication.payload), .integer(publication.since.rawValue))
        case .removePublication(let topic):
            try database.run(
                "DELETE FROM publication WHERE session = ? AND topic = ?", .integer(session), .text(topic))
        case .rememberRetained(let topic):
            try database.run(
                "INSERT OR IGNORE INTO retained (session, topic) VALUES (?, ?)", .integer(session), .text(topic))
        case .forgetRetained(let topic):
            try database.run("DELETE FROM retained WHERE session = ? AND topic = ?", .integer(session), .text(topic))
        case .collect(let collected, let consumers, let packetID):
            for name in consumers { try collect(collected, name, session, database) }
            if let packetID { try apply(.insertInbound(packetID), to: session, in: database) }
        case .removeCollected(let sequence, let name):
            guard let consumer = try consumerID(name, of: session, in: database) else { return }
            try database.run(
                "DELETE FROM inbox WHERE key = ?", .integer(inboxKey(consumer, sequence).rawValue))
        case .putConsumer(let name, let filter, let qos):
            try putConsumer(name, filter, qos, session, database)
        case .removeConsumer(let name):
            guard let consumer = try consumerID(name, of: session, in: database) else { return }
            let range = MessageKey.range(of: consumer)
            try database.run(
                "DELETE FROM inbox WHERE key BETWEEN ? AND ?", .integer(range.lowerBound),
                .integer(range.upperBound))
            try database.run("DELETE FROM consumer WHERE id = ?", .integer(consumer))
        case .setGiven(let name, let through):
            try database.run(
                "UPDATE consumer SET given_through = ? WHERE session = ? AND name = ?", .integer(through.rawValue),
                .integer(session), .text(name.description))
        }
    }

    /// Applies the changes at the beginning that are alike and about messages next to each other, in one go: servers
    /// acknowledge in the order of the messages, so that most removals are of a row of them.
    ///
    /// - Returns: how many changes that were; `nil` if the first one is of another kind.
    private func applyRow(
        at changes: ArraySlice<DurableChange>, to session: Int64, in database: Database
    ) throws(StoreError) -> Int? {
        switch changes.first {
        case .remove(let first)?:
            let count = changes.prefixCount { $0 == .remove(first.advanced(by: $1)) }
            try remove(key(session, first), count, database)
            return count
        case .assign(let first, let packetID)?:
            let count = changes.prefixCount { change, index in
                guard case .assign(first.advanced(by: index), let id) = change else { return false }
                return Int(id.rawValue) == Int(packetID.rawValue) + index
            }
            try markInFlight(key(session, first), packetID, count, released: false, database)
            return count
        default:
            return nil
        }
    }

    /// Removes as many messages, from this key on.
    private func remove(_ key: MessageKey, _ count: Int, _ database: Database) throws(StoreError) {
        let (first, last) = (Database.Value.int64(key.rawValue), Database.Value.int64(key.rawValue + Int64(count) - 1))
        try database.run("DELETE FROM message WHERE key BETWEEN ? AND ?", first, last)
        messages -= database.changes
        try database.run("DELETE FROM in_flight WHERE key BETWEEN ? AND ?", first, last)
        try database.run("DELETE FROM quarantine WHERE key BETWEEN ? AND ?", first, last)
    }

    private func key(_ session: Int64, _ sequence: MessageSequence) throws(StoreError) -> MessageKey {
        guard let key = MessageKey(session: session, sequence: sequence) else {
            throw .inconsistent("\(sequence) is no place in a session's order")
        }
        return key
    }

    private func insert(_ stored: StoredMessage, _ session: Int64, _ database: Database) throws(StoreError) {
        let key = try key(session, stored.sequence)
        let message = stored.message
        try database.run(
            """
            INSERT INTO message (key, accepted_at, expires_at, size, qos, retain, topic, properties, payload)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            .integer(key.rawValue), .integer(message.acceptedAt.rawValue), .optional(message.expiresAt?.rawValue),
            .integer(message.size), .integer(message.qos.rawValue), .integer(message.retain ? 1 : 0),
            .text(message.topic), StoredProperties.encode(message.properties).map { .blob($0) } ?? .null,
            .blob(message.payload))
        messages += 1
        switch stored.state {
        case .queued: break
        case .inFlight(let packetID): try insertInFlight(key, packetID, released: false, database)
        case .released(let packetID): try insertInFlight(key, packetID, released: true, database)
        case .quarantined(let code, let message): try quarantine(key, code, message, database)
        }
    }

    /// Of a message whose row was just made.
    private func insertInFlight(
        _ key: MessageKey, _ packetID: PacketID, released: Bool, _ database: Database
    ) throws(StoreError) {
        try database.run(
            "INSERT OR REPLACE INTO in_flight (key, packet_id, released) VALUES (?, ?, ?)", .integer(key.rawValue),
            .integer(packetID.rawValue), .integer(released ? 1 : 0))
    }

    /// As many messages, from this key on, get identifiers, from this one on. Only a message that is there, and that nobody
    /// has to decide about, goes anywhere.
    private func markInFlight(
        _ key: MessageKey, _ packetID: PacketID, _ count: Int, released: Bool, _ database: Database
    ) throws(StoreError) {
        try database.run(
            """
            INSERT OR REPLACE INTO in_flight (key, packet_id, released)
            SELECT key, key - ?1 + ?2, ?3 FROM message
            WHERE key BETWEEN ?1 AND ?4 AND key NOT IN (SELECT key FROM quarantine WHERE key BETWEEN ?1 AND ?4)
            """,
            .integer(key.rawValue), .integer(packetID.rawValue), .integer(released ? 1 : 0),
            .integer(key.rawValue + Int64(count) - 1))
    }

    private func quarantine(
        _ key: MessageKey, _ code: MQTT.ReasonCode, _ message: String, _ database: Database
    ) throws(StoreError) {
        try database.run(
            """
            INSERT OR REPLACE INTO quarantine (key, reason_code, message)
            SELECT key, ?, ? FROM message WHERE key = ?
            """,
            .integer(code.rawValue), .text(message), .integer(key.rawValue))
        try database.run("DELETE FROM in_flight WHERE key = ?", .integer(key.rawValue))
    }
}

extension MessageSequence {
    fileprivate func advanced(by count: Int) -> MessageSequence { MessageSequence(rawValue: rawValue &+ Int64(count)) }
}

extension ArraySlice {
    /// How many elements at the beginning fulfil the condition, which is given the element and how many are before it.
    fileprivate func prefixCount(while fulfils: (Element, Int) -> Bool) -> Int {
        var count = 0
        for element in self {
            guard fulfils(element, count) else { break }
            count += 1
        }
        return count
    }
}

extension DurableChange {
    /// The sequence that the change uses up.
    fileprivate var newSequence: MessageSequence? {
        switch self {
        case .insert(let stored): stored.sequence
        case .requeue(_, as: let sequence, at: _): sequence
        default: nil
        }
    }
}
