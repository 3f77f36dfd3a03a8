internal import MQTT
internal import Session

/// Writes consecutive changes of the same kind, about consecutive messages, with one statement. Servers answer in the
/// order of the messages, so most of what is sent or done comes in such ranges.
extension DurableStore {
    /// Applies the first of the changes and those after it that belong to its range.
    ///
    /// - Returns: the number of changes applied; `nil` if the first one is of a kind that has no ranges.
    func applyRange(
        at changes: ArraySlice<SessionChange>, to session: Int64, in database: Database
    ) throws(StoreError) -> Int? {
        switch changes.first {
        case .mqtt(.assign(let first, let packetID))?:
            let count = changes.prefixCount {
                guard case .mqtt(.assign(let sequence, let id)) = $0 else { return false }
                return sequence == first.advanced(by: $1) && Int(id.rawValue) == Int(packetID.rawValue) + $1
            }
            try assign(range(session, first, count), packetID, session, database)
            return count
        case .mqtt(.unassign(let first))?:
            let count = changes.prefixCount { $0 == .mqtt(.unassign(first.advanced(by: $1))) }
            let keys = try range(session, first, count)
            try database.run("DELETE FROM in_flight WHERE key BETWEEN ? AND ?", keys.first, keys.last)
            return count
        case .mqtt(.release(let first))?:
            let count = changes.prefixCount { $0 == .mqtt(.release(first.advanced(by: $1))) }
            let keys = try range(session, first, count)
            try database.run("UPDATE in_flight SET released = 1 WHERE key BETWEEN ? AND ?", keys.first, keys.last)
            return count
        case .mqtt(.remove(let first))?, .mqtt(.acknowledge(let first))?:
            let count = changes.prefixCount { $0.removedMessage == first.advanced(by: $1) }
            let keys = try range(session, first, count)
            try database.run("DELETE FROM message WHERE key BETWEEN ? AND ?", keys.first, keys.last)
            contents.messages -= database.changes
            try database.run("DELETE FROM in_flight WHERE key BETWEEN ? AND ?", keys.first, keys.last)
            try database.run("DELETE FROM quarantine WHERE key BETWEEN ? AND ?", keys.first, keys.last)
            return count
        case .mqtt(.removeCollected(let first, let name))?:
            let count = changes.prefixCount {
                $0 == .mqtt(.removeCollected(InboxSequence(rawValue: first.rawValue + Int64($1)), name))
            }
            guard let consumer = try contents.consumerID(name, of: session, in: database) else { return count }
            let last = InboxSequence(rawValue: first.rawValue + Int64(count) - 1)
            try database.run(
                "DELETE FROM inbox WHERE key BETWEEN ? AND ?", .integer(inboxKey(consumer, first).rawValue),
                .integer(inboxKey(consumer, last).rawValue))
            return count
        default:
            return nil
        }
    }

    /// Gives the messages of a range consecutive packet identifiers, from this one on. Messages that do not exist or
    /// are quarantined are skipped.
    private func assign(
        _ keys: (first: Database.Value, last: Database.Value), _ packetID: PacketID, _ session: Int64,
        _ database: Database
    ) throws(StoreError) {
        try database.run(
            """
            INSERT OR REPLACE INTO in_flight (key, packet_id, released)
            SELECT key, key - ?1 + ?3, 0 FROM message
            WHERE key BETWEEN ?1 AND ?2 AND key NOT IN (SELECT key FROM quarantine WHERE key BETWEEN ?1 AND ?2)
            """,
            keys.first, keys.last, .integer(packetID.rawValue))
        let identifiers = try database.rows(
            "SELECT key - ?1 + ?3 FROM message WHERE key BETWEEN ?1 AND ?2 AND qos = ?4 ORDER BY key", keys.first,
            keys.last, .integer(packetID.rawValue), .integer(QoS.exactlyOnce.rawValue)
        ) { UInt16(exactly: $0.integer(0)).flatMap(PacketID.init) }
        for id in identifiers.compactMap(\.self) { try reserve(id, of: session, in: database) }
    }

    private func range(
        _ session: Int64, _ first: MessageSequence, _ count: Int
    ) throws(StoreError) -> (first: Database.Value, last: Database.Value) {
        (
            .integer(try key(session, first).rawValue),
            .integer(try key(session, first.advanced(by: count - 1)).rawValue)
        )
    }
}

extension SessionChange {
    fileprivate var removedMessage: MessageSequence? {
        switch self {
        case .mqtt(.remove(let sequence)), .mqtt(.acknowledge(let sequence)): sequence
        default: nil
        }
    }
}

extension MessageSequence {
    fileprivate func advanced(by count: Int) -> MessageSequence { MessageSequence(rawValue: rawValue &+ Int64(count)) }
}

extension ArraySlice {
    /// The number of elements at the start that fulfil the condition, which is given the element and the number before
    /// it.
    fileprivate func prefixCount(while fulfils: (Element, Int) -> Bool) -> Int {
        var count = 0
        for element in self {
            guard fulfils(element, count) else { break }
            count += 1
        }
        return count
    }
}
