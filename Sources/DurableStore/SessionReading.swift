public import MQTT
internal import NIOCore
package import Session
internal import Vocabulary

/// Reads back what the store has of a session.
extension DurableStore {
    /// Every session that the store has, or had, anything of.
    public var sessionNames: [SessionName] { Array(contents.sessionIDs.keys) }

    /// Returns the state of a session; an empty one if the name is not known.
    package func session(_ name: SessionName) throws(StoreError) -> StoredSession {
        try reading { () throws(StoreError) in try storedSession(name) }
    }

    private func storedSession(_ name: SessionName) throws(StoreError) -> StoredSession {
        let database = try opened()
        var stored = StoredSession()
        guard let id = contents.sessionIDs[name] else { return stored }
        stored.mqtt = try protocolState(of: id)
        stored.wasAbsent = try database.integer("SELECT absent FROM session WHERE id = ?", .integer(id)) == 1
        stored.homes = try homes(of: id)
        stored.presences = Set(
            try database.rows("SELECT since FROM presence WHERE session = ?", .integer(id)) {
                $0.time(0)
            })
        stored.presenceTopics = Set(
            try database.rows("SELECT topic FROM presence_topic WHERE session = ?", .integer(id)) { $0.text(0) })
        try readPublications(of: id, into: &stored)
        try readDecisions(of: id, into: &stored)
        return stored
    }

    private func protocolState(of id: Int64) throws(StoreError) -> DurableSession {
        let database = try opened()
        var session = DurableSession()
        try database.query(
            """
            SELECT established, assigned_client_id, next_sequence, next_inbox_sequence, client_id,
                EXISTS (SELECT 1 FROM publish_key WHERE session = ?1)
            FROM session WHERE id = ?1
            """,
            .integer(id)
        ) { row throws(StoreError) in
            session.established = row.integer(0) != 0
            session.assignedClientID = row.optionalText(1)
            session.nextSequence = MessageSequence(rawValue: row.integer(2))
            session.nextInboxSequence = InboxSequence(rawValue: row.integer(3))
            session.clientID = row.optionalText(4)
            session.hasKeys = row.integer(5) != 0
            return false
        }
        session.inFlight = try messages(
            from: "in_flight CROSS JOIN message USING (key) LEFT JOIN quarantine USING (key)",
            MessageKey.range(of: id))
        var used: Set<PacketID> = []
        for stored in session.inFlight {
            switch stored.state {
            case .inFlight(let id), .released(let id):
                guard used.insert(id).inserted else { throw unreadable("two messages have one packet id") }
            case .queued, .quarantined: throw unreadable("a message is in flight and quarantined")
            }
        }
        session.inboundIDs = try packetIDs("SELECT packet_id FROM inbound WHERE session = ?", [.integer(id)])
        session.retiredIDs = try packetIDs("SELECT packet_id FROM retired WHERE session = ?", [.integer(id)])
        session.suspectIDs = try packetIDs("SELECT packet_id FROM suspect WHERE session = ?", [.integer(id)])
        session.rememberedSubscriptions = try subscriptions(of: id)
        try readConsumers(of: id, into: &session)
        try countQueue(of: id, into: &session)
        return session
    }

    func packetIDs(_ sql: String, _ values: [Database.Value]) throws(StoreError) -> Set<PacketID> {
        Set(try opened().rows(text: sql, with: values) { row throws(StoreError) in try packetID(row.integer(0)) })
    }

    private func subscriptions(of session: Int64) throws(StoreError) -> Set<TopicFilter> {
        try filters("SELECT filter FROM subscription WHERE session = ?", [.integer(session)])
    }

    func filters(_ sql: String, _ values: [Database.Value]) throws(StoreError) -> Set<TopicFilter> {
        var filters: Set<TopicFilter> = []
        try opened().query(text: sql, with: values) { row throws(StoreError) in
            let text = row.text(0)
            guard RowSense.isFilter(text) else {
                throw self.unreadable("the topic filter \"\(text.plain(atMost: 100))\" of a subscription is invalid")
            }
            // Earlier versions accepted other ones. They are not sent to the server again, because it may end the
            // connection.
            if let filter = try? TopicFilter(text) { filters.insert(filter) }
            return true
        }
        return filters
    }

    /// Counts the queued messages: all messages, less those that are in flight or quarantined. A million can be queued,
    /// and looking each of them up in two other tables would take most of the time of a start.
    private func countQueue(of session: Int64, into durable: inout DurableSession) throws(StoreError) {
        let range = MessageKey.range(of: session)
        func total(_ sql: StaticString) throws(StoreError) -> (count: Int, bytes: Int) {
            let totals = try opened().rows(sql, .integer(range.lowerBound), .integer(range.upperBound)) {
                ($0.count(0), $0.count(1))
            }
            return totals.first ?? (0, 0)
        }
        // A damaged size is noticed when the message is read; until then it must only be one that can be added.
        let all = try total("SELECT count(*), sum(size & 0x7FFFFFFF) FROM message WHERE key BETWEEN ? AND ?")
        let inFlight = try total(
            """
            SELECT count(*), sum(message.size & 0x7FFFFFFF) FROM in_flight CROSS JOIN message USING (key)
            WHERE in_flight.key BETWEEN ? AND ?
            """)
        let quarantined = try total(
            """
            SELECT count(*), sum(message.size & 0x7FFFFFFF) FROM quarantine CROSS JOIN message USING (key)
            WHERE quarantine.key BETWEEN ? AND ? AND quarantine.key NOT IN (SELECT key FROM in_flight)
            """)
        (durable.quarantinedCount, durable.quarantinedBytes) = quarantined
        durable.queuedCount = all.count - inFlight.count - quarantined.count
        durable.queuedBytes = all.bytes - inFlight.bytes - quarantined.bytes
    }

    private func readPublications(of session: Int64, into stored: inout StoredSession) throws(StoreError) {
        let database = try opened()
        stored.publications = try database.rows(
            "SELECT topic, qos, properties, payload, since FROM publication WHERE session = ? ORDER BY id",
            .integer(session)
        ) { row throws(StoreError) in
            let topic = row.text(0)
            let properties = row.optionalBlob(2).map(StoredProperties.decode) ?? Publish.Properties()
            guard RowSense.isPublication(qos: row.integer(1)), let properties else {
                throw unreadable("the publication on \(topic.plain(atMost: 100)) is unreadable")
            }
            return Publication(
                topic: topic, payload: row.blob(3), qos: try qos(row.integer(1)), properties: properties,
                since: row.time(4))
        }
        stored.retainedTopics = Set(
            try database.rows("SELECT topic FROM retained WHERE session = ?", .integer(session)) { $0.text(0) })
    }

    /// Returns queued messages after a place in the order of acceptance, in that order.
    ///
    /// - Parameters:
    ///   - maxCount: the most messages to return.
    ///   - maxBytes: the most bytes to return (the sum of `size`), but always at least one message if there is any.
    public func load(
        _ session: SessionName, after sequence: MessageSequence, maxCount: Int, maxBytes: Int
    ) throws(StoreError) -> [StoredMessage] {
        try reading { () throws(StoreError) in
            try queued(session, after: sequence, maxCount: maxCount, maxBytes: maxBytes)
        }
    }

    private func queued(
        _ session: SessionName, after sequence: MessageSequence, maxCount: Int, maxBytes: Int
    ) throws(StoreError) -> [StoredMessage] {
        let database = try opened()
        guard maxCount > 0, let id = contents.sessionIDs[session],
            let after = MessageKey(session: id, sequence: max(sequence, .zero))
        else { return [] }
        var messages: [StoredMessage] = []
        var bytes = 0
        try database.query(
            text: """
                SELECT \(Self.columns) FROM message LEFT JOIN in_flight USING (key) LEFT JOIN quarantine USING (key)
                WHERE message.key > ? AND message.key <= ? AND in_flight.key IS NULL AND quarantine.key IS NULL
                ORDER BY message.key
                """,
            with: [.integer(after.rawValue), .integer(MessageKey.range(of: id).upperBound)]
        ) { row throws(StoreError) in
            // Reads the size first, so that a payload over the limit is not loaded.
            bytes += row.count(1)
            guard messages.isEmpty || bytes <= maxBytes else { return false }
            messages.append(try self.message(row))
            return messages.count < maxCount
        }
        return messages
    }

    /// Returns one message, whatever its state; `nil` if it is gone.
    public func message(_ session: SessionName, _ sequence: MessageSequence) throws(StoreError) -> StoredMessage? {
        try reading { () throws(StoreError) in
            _ = try opened()
            guard let id = contents.sessionIDs[session], let key = MessageKey(session: id, sequence: sequence) else {
                return nil
            }
            return try messages(
                from: "message LEFT JOIN in_flight USING (key) LEFT JOIN quarantine USING (key)",
                key.rawValue...key.rawValue
            ).first
        }
    }

    static let columns = """
        message.key, message.size, message.expires_at, message.qos, message.retain, message.topic,
        message.properties, message.payload, in_flight.packet_id, in_flight.released, quarantine.reason_code,
        quarantine.message, message.accepted_at
        """

    /// Returns the messages of a range of keys. CROSS JOIN keeps the order of the tables: the small one leads.
    func messages(from tables: String, _ range: ClosedRange<Int64>) throws(StoreError) -> [StoredMessage] {
        try opened().rows(
            text: "SELECT \(Self.columns) FROM \(tables) WHERE key BETWEEN ? AND ? ORDER BY key",
            with: [.integer(range.lowerBound), .integer(range.upperBound)], read: message)
    }

    /// Reads a row of ``columns``.
    func message(_ row: Row) throws(StoreError) -> StoredMessage {
        var message = OutboundMessage(
            topic: row.text(5), payload: row.blob(7), qos: try qos(row.integer(3)), retain: row.integer(4) != 0,
            properties: try contentProperties(row.optionalBlob(6)), expiresAt: row.optionalTime(2))
        message.acceptedAt = row.time(12)
        try checkSize(row.integer(1), message.size)
        return StoredMessage(
            sequence: MessageKey(rawValue: row.integer(0)).sequence, message: message,
            state: try state(row, from: 8))
    }

    func qos(_ number: Int64) throws(StoreError) -> QoS {
        guard let qos = UInt8(exactly: number).flatMap(QoS.init) else { throw unreadable("a QoS is invalid") }
        return qos
    }

    /// - Parameter column: the first of four: packet identifier, released, reason code and the reason's sentence.
    func state(_ row: Row, from column: Int32) throws(StoreError) -> StoredMessage.State {
        if let code = row.optionalInteger(column + 2) {
            guard let code = UInt8(exactly: code) else { throw unreadable("a reason code is invalid") }
            return .quarantined(code == 0 ? nil : ReasonCode(rawValue: code), row.text(column + 3))
        }
        guard let number = row.optionalInteger(column) else { return .queued }
        let packetID = try packetID(number)
        return row.integer(column + 1) == 0 ? .inFlight(packetID) : .released(packetID)
    }

    func packetID(_ number: Int64) throws(StoreError) -> PacketID {
        guard let id = UInt16(exactly: number).flatMap(PacketID.init) else {
            throw unreadable("a packet id is invalid")
        }
        return id
    }

    // MARK: Rows that make no sense

    /// The properties of a message.
    func contentProperties(_ bytes: ByteBuffer?) throws(StoreError) -> Publish.Properties {
        guard let bytes else { return Publish.Properties() }
        guard let decoded = StoredProperties.decode(bytes) else {
            throw unreadable("the properties of a message are unreadable")
        }
        return decoded
    }

    /// What is counted of a message when it comes must be what is counted when it goes.
    func checkSize(_ stored: Int64, _ size: Int) throws(StoreError) {
        guard stored == Int64(size) else { throw unreadable("the size of a message is wrong") }
    }

    /// Reads, and once more if something makes no sense: by then a new database without that is in use.
    func reading<Value>(_ body: () throws(StoreError) -> Value) throws(StoreError) -> Value {
        do throws(StoreError) {
            return try body()
        } catch .corrupt {
            return try body()
        }
    }

    /// The error for a row that ``RowSense`` does not copy either.
    func unreadable(_ cause: String) -> StoreError {
        let now = ContinuousClock.now
        // Should it be in the new database as well, there must not be copy after copy.
        guard lastUnreadable.map({ now - $0 > .seconds(3600) }) ?? true else {
            return .damaged(path: "\(directory.path)/\(Self.fileName)", cause: cause)
        }
        lastUnreadable = now
        database?.damage = cause
        return .corrupt(path: "\(directory.path)/\(Self.fileName)", cause: cause)
    }
}
