public import MQTT

/// The outbox as people see it when they decide about its messages.
extension DurableStore {
    /// Which messages of an outbox to return.
    public enum MessageFilter: Hashable, Sendable, CaseIterable {
        case all, queued, inFlight, quarantined
    }

    /// Returns the messages of a session without their contents, in order of acceptance.
    ///
    /// - Parameters:
    ///   - sequence: only messages after this one are returned.
    ///   - limit: the most messages to return.
    public func summaries(
        _ session: SessionName, _ filter: MessageFilter = .all, after sequence: MessageSequence = .zero, limit: Int
    ) throws(StoreError) -> [StoredMessageSummary] {
        try reading { () throws(StoreError) in try listed(session, filter, after: sequence, limit: limit) }
    }

    private func listed(
        _ session: SessionName, _ filter: MessageFilter, after sequence: MessageSequence, limit: Int
    ) throws(StoreError) -> [StoredMessageSummary] {
        let database = try opened()
        guard let id = contents.sessionIDs[session],
            let after = MessageKey(session: id, sequence: max(sequence, .zero))
        else {
            return []
        }
        // CROSS JOIN keeps the order of the tables: the small one leads.
        let tables =
            switch filter {
            case .all, .queued: "message LEFT JOIN in_flight USING (key) LEFT JOIN quarantine USING (key)"
            case .inFlight: "in_flight CROSS JOIN message USING (key) LEFT JOIN quarantine USING (key)"
            case .quarantined: "quarantine CROSS JOIN message USING (key) LEFT JOIN in_flight USING (key)"
            }
        let condition = filter == .queued ? "AND in_flight.key IS NULL AND quarantine.key IS NULL" : ""
        return try database.rows(
            text: """
                SELECT \(Self.summaryColumns) FROM \(tables) WHERE message.key > ? AND message.key <= ? \(condition)
                ORDER BY message.key LIMIT ?
                """,
            with: [
                .integer(after.rawValue), .integer(MessageKey.range(of: id).upperBound), .integer(Int64(max(0, limit))),
            ],
            read: summary)
    }

    /// Returns these messages without their contents, in this order. Messages that are gone are omitted.
    public func summaries(
        _ session: SessionName, of sequences: [MessageSequence]
    ) throws(StoreError) -> [StoredMessageSummary] {
        try reading { () throws(StoreError) in try listed(session, sequences) }
    }

    private func listed(
        _ session: SessionName, _ sequences: [MessageSequence]
    ) throws(StoreError) -> [StoredMessageSummary] {
        let database = try opened()
        guard let id = contents.sessionIDs[session] else { return [] }
        var found: [StoredMessageSummary] = []
        for key in sequences.compactMap({ MessageKey(session: id, sequence: $0) }) {
            found += try database.rows(
                text: """
                    SELECT \(Self.summaryColumns)
                    FROM message LEFT JOIN in_flight USING (key) LEFT JOIN quarantine USING (key) WHERE message.key = ?
                    """,
                with: [.integer(key.rawValue)], read: summary)
        }
        return found
    }

    private static let summaryColumns = """
        message.key, message.topic, message.qos, message.retain, message.size, message.accepted_at,
        message.expires_at, in_flight.packet_id, in_flight.released, quarantine.reason_code, quarantine.message
        """

    private func summary(_ row: Row) throws(StoreError) -> StoredMessageSummary {
        StoredMessageSummary(
            sequence: MessageKey(rawValue: row.integer(0)).sequence, topic: row.text(1), qos: try qos(row.integer(2)),
            retain: row.integer(3) != 0, size: Int(row.integer(4) & 0x7FFF_FFFF), acceptedAt: row.time(5),
            expiresAt: row.optionalTime(6), state: try state(row, from: 7))
    }
}
