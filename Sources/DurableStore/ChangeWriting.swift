internal import MQTT
internal import Session

/// Turns each change into rows. Everything here runs inside the transaction of a commit.
extension DurableStore {
    func apply(_ changes: [SessionChange], to session: SessionName, in database: Database) throws(StoreError) {
        let id = try contents.makeSession(session, in: database)
        if contents.absentStates?.present.contains(session) == false { contents.absentStates = nil }
        var last: MessageSequence?
        var lastCollected: InboxSequence?
        var rest = changes[...]
        while let change = rest.first {
            if let count = try applyRange(at: rest, to: id, in: database) {
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
            if case .mqtt(.collect(let collected, _, _)) = change {
                lastCollected = max(lastCollected ?? .zero, collected.sequence)
            }
        }
        // In the same transaction, for the reason given below.
        if let lastCollected {
            try database.run(
                "UPDATE session SET next_inbox_sequence = max(next_inbox_sequence, ?) WHERE id = ?",
                .integer(lastCollected.next.rawValue), .integer(id))
            try reserve(
                """
                UPDATE session SET reserved_inbox_sequence = ?1 + ?2 WHERE id = ?3 AND reserved_inbox_sequence < ?1
                """,
                lastCollected.rawValue, of: id, in: database)
        }
        // In the same transaction as the inserts: a sequence is used up forever, even when its message is gone.
        if let last {
            try database.run(
                "UPDATE session SET next_sequence = ? WHERE id = ?", .integer(last.next.rawValue), .integer(id))
            try reserve(
                "UPDATE session SET reserved_sequence = ?1 + ?2 WHERE id = ?3 AND reserved_sequence < ?1",
                last.rawValue, of: id, in: database)
        }
    }

    /// Reserves numbers ahead, so that a number used now is not used again if a power loss takes this commit.
    private func reserve(
        _ statement: StaticString, _ number: Int64, of session: Int64, in database: Database
    ) throws(StoreError) {
        try database.run(statement, .integer(number), .integer(ReservedSequence.block), .integer(session))
        if database.changes > 0 { mustFlush = true }
    }

    /// Does the same for the packet identifier of a QoS 2 message.
    func reserve(_ id: PacketID, of session: Int64, in database: Database) throws(StoreError) {
        guard let window = contents.reserve(id, of: session) else { return }
        try database.run(
            "UPDATE session SET window_first = ?, window_count = ? WHERE id = ?", .integer(window.first),
            .integer(window.count), .integer(session))
        mustFlush = true
    }

    private func lastSequence(of session: Int64, in database: Database) throws(StoreError) -> MessageSequence {
        let next = try database.integer("SELECT next_sequence FROM session WHERE id = ?", .integer(session)) ?? 1
        return MessageSequence(rawValue: next - 1)
    }

    private func apply(_ change: SessionChange, to session: Int64, in database: Database) throws(StoreError) {
        switch change {
        case .mqtt(let change):
            try apply(change, to: session, in: database)
        case .setHomes(let homes):
            try setHomes(homes, session, database)
        case .setPresences(let times):
            try database.run("DELETE FROM presence WHERE session = ?", .integer(session))
            for since in times {
                try database.run(
                    "INSERT INTO presence (session, since) VALUES (?, ?)", .integer(session), .integer(since.rawValue))
            }
        case .setPresenceTopics(let topics):
            try database.run("DELETE FROM presence_topic WHERE session = ?", .integer(session))
            for topic in topics {
                try database.run(
                    "INSERT INTO presence_topic (session, topic) VALUES (?, ?)", .integer(session), .text(topic))
            }
        case .putPublication(let publication):
            // The replacement is a new row, so the rows stay in the order in which they were put.
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
        case .setVerdict(let verdict):
            try setVerdict(verdict, session, database)
        case .setChosenRoom(let chosen):
            try setChosenRoom(chosen, session, database)
        }
    }

    private func apply(_ change: DurableChange, to session: Int64, in database: Database) throws(StoreError) {
        switch change {
        case .insert(let stored):
            try insert(stored, session, database)
        case .assign, .unassign, .release, .remove, .acknowledge, .removeCollected:
            preconditionFailure("changes that have ranges are applied by range")
        case .rememberKey(let key, let sequence, at: let time):
            try rememberKey(key, sequence, time, session, database)
        case .concludeKey(let sequence, let outcome, at: let time):
            try concludeKey(sequence, outcome, time, session, database)
        case .quarantine(let sequence, let code, let message):
            try quarantine(key(session, sequence), code, message, database)
        case .requeue(let sequence, let newSequence, let time):
            let (old, new) = (try key(session, sequence).rawValue, try key(session, newSequence).rawValue)
            // Only quarantined messages move: a row in `in_flight` would be left without its message.
            try database.run(
                "UPDATE message SET key = ?, accepted_at = ? WHERE key = ? AND key IN (SELECT key FROM quarantine)",
                .integer(new), .integer(time.rawValue), .integer(old))
            try database.run("DELETE FROM quarantine WHERE key = ?", .integer(old))
            try database.run(
                "UPDATE publish_key SET sequence = ? WHERE session = ? AND sequence = ?",
                .integer(newSequence.rawValue), .integer(session), .integer(sequence.rawValue))
        case .shiftTimes(let milliseconds, let range):
            let keys = MessageKey.range(of: session)
            try database.run(
                """
                UPDATE message SET accepted_at = accepted_at + ?1, expires_at = expires_at + ?1
                WHERE key BETWEEN ?2 AND ?3 AND accepted_at BETWEEN ?4 AND ?5
                """,
                .integer(milliseconds), .integer(keys.lowerBound), .integer(keys.upperBound),
                .integer(range.lowerBound.rawValue), .integer(range.upperBound.rawValue))
            try shiftInbox(by: milliseconds, receivedWithin: range, session, database)
            try shiftKeys(by: milliseconds, publishedWithin: range, session, database)
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
        case .suspectIdentifier(let packetID):
            try database.run(
                "INSERT OR IGNORE INTO suspect (session, packet_id) VALUES (?, ?)", .integer(session),
                .integer(packetID.rawValue))
        case .clearSuspect(let packetID):
            try database.run(
                "DELETE FROM suspect WHERE session = ? AND packet_id = ?", .integer(session),
                .integer(packetID.rawValue))
        case .freeRetiredIdentifiers:
            try database.run("DELETE FROM retired WHERE session = ?", .integer(session))
            try database.run("DELETE FROM suspect WHERE session = ?", .integer(session))
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
        case .setClientID(let clientID):
            try database.run("UPDATE session SET client_id = ? WHERE id = ?", .text(clientID), .integer(session))
            try contents.takeSessionAtServer(session, in: database)
        case .setEstablished(let established):
            try database.run(
                "UPDATE session SET established = ? WHERE id = ?", .integer(established ? 1 : 0), .integer(session))
            if established { try contents.takeSessionAtServer(session, in: database) }
        case .collect(let collected, let consumers, let packetID):
            try collect(collected, consumers, session, database)
            if let packetID { try apply(.insertInbound(packetID), to: session, in: database) }
        case .dropCollected(let name, through: let through, let count):
            try dropCollected(name, through, count, session, database)
        case .toldMissed(let name, let count):
            try database.run(
                "UPDATE consumer SET missed = max(0, missed - ?) WHERE session = ? AND name = ?", .integer(count),
                .integer(session), .text(name.description))
        case .putConsumer(let name, let filter, let qos):
            try putConsumer(name, filter, qos, session, database)
        case .removeConsumer(let name):
            guard let consumer = try contents.consumerID(name, of: session, in: database) else { return }
            let range = MessageKey.range(of: consumer)
            try database.run(
                "DELETE FROM inbox WHERE key BETWEEN ? AND ?", .integer(range.lowerBound),
                .integer(range.upperBound))
            try database.run("DELETE FROM consumer WHERE id = ?", .integer(consumer))
            contents.forgetConsumer(name, of: session)
        case .setGiven(let name, let through):
            try database.run(
                "UPDATE consumer SET given_through = ? WHERE session = ? AND name = ?", .integer(through.rawValue),
                .integer(session), .text(name.description))
        }
    }

    func key(_ session: Int64, _ sequence: MessageSequence) throws(StoreError) -> MessageKey {
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
        contents.messages += 1
        switch stored.state {
        case .queued: break
        case .inFlight(let packetID):
            try insertInFlight(key, packetID, released: false, database)
            if message.qos == .exactlyOnce { try reserve(packetID, of: session, in: database) }
        case .released(let packetID): try insertInFlight(key, packetID, released: true, database)
        case .quarantined(let code, let message): try quarantine(key, code, message, database)
        }
    }

    /// Inserts the row without looking for the message, whose own row was just made.
    private func insertInFlight(
        _ key: MessageKey, _ packetID: PacketID, released: Bool, _ database: Database
    ) throws(StoreError) {
        try database.run(
            "INSERT OR REPLACE INTO in_flight (key, packet_id, released) VALUES (?, ?, ?)", .integer(key.rawValue),
            .integer(packetID.rawValue), .integer(released ? 1 : 0))
    }

    /// - Parameter code: the server's; 0 stands for none, since that is success and refuses nothing.
    private func quarantine(
        _ key: MessageKey, _ code: ReasonCode?, _ message: String, _ database: Database
    ) throws(StoreError) {
        try database.run(
            """
            INSERT OR REPLACE INTO quarantine (key, reason_code, message)
            SELECT key, ?, ? FROM message WHERE key = ?
            """,
            .integer(code?.rawValue ?? 0), .text(message), .integer(key.rawValue))
        try database.run("DELETE FROM in_flight WHERE key = ?", .integer(key.rawValue))
    }
}

extension SessionChange {
    /// The sequence that the change uses up.
    fileprivate var newSequence: MessageSequence? {
        switch self {
        case .mqtt(.insert(let stored)): stored.sequence
        case .mqtt(.requeue(_, as: let sequence, at: _)): sequence
        default: nil
        }
    }
}
