public import MQTT
internal import NIOCore
internal import Vocabulary

/// The inbox: messages that durable consumers have not taken yet.
extension DurableStore {
    /// Returns messages that wait for a consumer, after a place in their order, in that order.
    ///
    /// - Parameters:
    ///   - maxCount: the most messages to return.
    ///   - maxBytes: the most bytes to return (the sum of `size`), but always at least one message if there is any.
    public func collected(
        _ session: SessionName, for consumer: ConsumerName, after sequence: InboxSequence, maxCount: Int, maxBytes: Int
    ) throws(StoreError) -> [CollectedMessage] {
        try reading { () throws(StoreError) in
            try waiting(session, for: consumer, after: sequence, maxCount: maxCount, maxBytes: maxBytes)
        }
    }

    private func waiting(
        _ session: SessionName, for consumer: ConsumerName, after sequence: InboxSequence, maxCount: Int, maxBytes: Int
    ) throws(StoreError) -> [CollectedMessage] {
        let database = try opened()
        guard maxCount > 0, let id = contents.sessionIDs[session],
            let row = try contents.consumerID(consumer, of: id, in: database)
        else { return [] }
        let after = try inboxKey(row, max(sequence, .zero))
        let isAdopted = consumer.description == Self.adoptedName(of: row)
        var messages: [CollectedMessage] = []
        var bytes = 0
        try database.query(
            """
            SELECT inbox.key, inbox.size, qos, retain, duplicate, coalesce(content.topic, inbox.topic),
                iif(content_key IS NULL, inbox.properties, content.properties),
                coalesce(content.payload, inbox.payload), received_at, content_key, content.key
            FROM inbox LEFT JOIN content ON content.key = content_key
            WHERE inbox.key > ? AND inbox.key <= ? ORDER BY inbox.key
            """,
            .integer(after.rawValue), .integer(MessageKey.range(of: row).upperBound)
        ) { row throws(StoreError) in
            // Reads the size first, so that a payload over the limit is not loaded.
            bytes += row.count(1)
            guard messages.isEmpty || bytes <= maxBytes else { return false }
            let sequence = InboxSequence(rawValue: MessageKey(rawValue: row.integer(0)).sequence.rawValue)
            if let content = row.optionalInteger(9) {
                let key = MessageKey(rawValue: content)
                let isItsOwn =
                    try isAdopted ? key.sequence.rawValue == sequence.rawValue : key == self.inboxKey(id, sequence)
                guard isItsOwn, row.optionalInteger(10) == content else {
                    throw self.unreadable("the content of a message is missing")
                }
            }
            let message = CollectedMessage(
                sequence: sequence,
                message: .init(
                    topic: row.text(5), payload: row.blob(7), qos: try self.qos(row.integer(2)),
                    retain: row.integer(3) != 0, duplicate: row.integer(4) != 0,
                    properties: try self.contentProperties(row.optionalBlob(6))),
                receivedAt: row.time(8))
            try self.checkSize(row.integer(1), message.size)
            messages.append(message)
            return messages.count < maxCount
        }
        return messages
    }

    /// Adds the durable consumers of a session to its state.
    func readConsumers(of session: Int64, into durable: inout DurableSession) throws(StoreError) {
        let database = try opened()
        let rows = try database.rows(
            "SELECT id, name, filter, qos, given_through, missed FROM consumer WHERE session = ? ORDER BY name",
            .integer(session)
        ) { row throws(StoreError) in
            let text = row.text(1)
            guard RowSense.isConsumer(name: text, qos: row.integer(3)), let name = ConsumerName(text) else {
                throw unreadable("the consumer \"\(text.plain(atMost: 100))\" is invalid")
            }
            let consumer = DurableConsumer(
                name: name, filter: row.text(2), qos: try qos(row.integer(3)),
                givenThrough: .init(rawValue: row.integer(4)), missed: row.count(5))
            return (id: row.integer(0), consumer: consumer)
        }
        for (id, var consumer) in rows {
            consumer.runs = try runs(of: id, in: database)
            durable.consumers.append(consumer)
        }
    }

    /// The most runs in which a consumer's messages are counted. Messages are dropped a whole run at a time.
    private static let runs: Int64 = 512

    private func runs(of consumer: Int64, in database: Database) throws(StoreError) -> [InboxRun] {
        let range = MessageKey.range(of: consumer)
        let bounds = [Database.Value.integer(range.lowerBound), .integer(range.upperBound)]
        guard
            let first = try database.integer(
                "SELECT min(key) FROM inbox WHERE key BETWEEN ? AND ?", bounds[0], bounds[1]),
            let last = try database.integer(
                "SELECT max(key) FROM inbox WHERE key BETWEEN ? AND ?", bounds[0], bounds[1])
        else { return [] }
        guard range.contains(first), range.contains(last) else { return [] }
        return try database.rows(
            """
            SELECT max(key), count(*), sum(size & 0x7FFFFFFF) FROM inbox WHERE key BETWEEN ?1 AND ?2
            GROUP BY (key - ?1) / ?3 ORDER BY 1
            """,
            .integer(first), .integer(last), .integer((last - first) / Self.runs + 1)
        ) { row in
            InboxRun(
                through: InboxSequence(rawValue: MessageKey(rawValue: row.integer(0)).sequence.rawValue),
                messages: row.count(1), bytes: row.count(2))
        }
    }

    func dropCollected(
        _ name: ConsumerName, _ through: InboxSequence, _ count: Int, _ session: Int64, _ database: Database
    ) throws(StoreError) {
        guard let consumer = try contents.consumerID(name, of: session, in: database) else { return }
        try database.run(
            "DELETE FROM inbox WHERE key BETWEEN ? AND ?", .integer(MessageKey.range(of: consumer).lowerBound),
            .integer(inboxKey(consumer, through).rawValue))
        try database.run("UPDATE consumer SET missed = missed + ? WHERE id = ?", .integer(count), .integer(consumer))
    }

    func shiftInbox(
        by milliseconds: Int64, receivedWithin range: ClosedRange<Timestamp>, _ session: Int64, _ database: Database
    ) throws(StoreError) {
        let consumers = try database.rows("SELECT id FROM consumer WHERE session = ?", .integer(session)) {
            $0.integer(0)
        }
        for consumer in consumers {
            let keys = MessageKey.range(of: consumer)
            try database.run(
                """
                UPDATE inbox SET received_at = received_at + ?
                WHERE key BETWEEN ? AND ? AND received_at BETWEEN ? AND ?
                """,
                .integer(milliseconds), .integer(keys.lowerBound), .integer(keys.upperBound),
                .integer(range.lowerBound.rawValue), .integer(range.upperBound.rawValue))
        }
    }

    func inboxKey(_ consumer: Int64, _ sequence: InboxSequence) throws(StoreError) -> MessageKey {
        guard let key = MessageKey(session: consumer, sequence: MessageSequence(rawValue: sequence.rawValue)) else {
            throw .inconsistent("\(sequence) is no place in the order of an inbox")
        }
        return key
    }

    func putConsumer(
        _ name: ConsumerName, _ filter: String, _ qos: QoS, _ session: Int64, _ database: Database
    ) throws(StoreError) {
        try database.run(
            "UPDATE consumer SET filter = ?, qos = ? WHERE session = ? AND name = ?", .text(filter),
            .integer(qos.rawValue), .integer(session), .text(name.description))
        guard database.changes == 0 else { return }
        // The lowest number that is free, and that no message of a consumer that was lost has; there are few consumers.
        let free = try database.integer(
            """
            WITH RECURSIVE number (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM number WHERE id <= ?)
            SELECT id FROM number WHERE id NOT IN (SELECT id FROM consumer) AND NOT EXISTS (
                SELECT 1 FROM inbox WHERE key BETWEEN number.id << 48 AND (number.id << 48) | 0xFFFFFFFFFFFF)
            LIMIT 1
            """,
            .integer(MessageKey.sessions.upperBound))
        guard let free, MessageKey.sessions.contains(free) else {
            throw .inconsistent("there is no room for another consumer than the 32767 that there are")
        }
        try database.run(
            "INSERT INTO consumer (id, session, name, filter, qos) VALUES (?, ?, ?, ?, ?)", .integer(free),
            .integer(session), .text(name.description), .text(filter), .integer(qos.rawValue))
    }

    /// Adds the message for those of the consumers that have not been removed since.
    func collect(
        _ collected: CollectedMessage, _ names: [ConsumerName], _ session: Int64, _ database: Database
    ) throws(StoreError) {
        var consumers: [Int64] = []
        for name in names {
            if let consumer = try contents.consumerID(name, of: session, in: database) { consumers.append(consumer) }
        }
        let message = collected.message
        let properties = StoredProperties.encode(message.properties).map { Database.Value.blob($0) } ?? .null
        var content = (topic: message.topic, properties: properties, payload: message.payload, key: Database.Value.null)
        if collected.isShared(by: consumers.count) {
            let key = try inboxKey(session, collected.sequence)
            try database.run(
                "INSERT INTO content (key, size, topic, properties, payload) VALUES (?, ?, ?, ?, ?)",
                .integer(key.rawValue), .integer(collected.size), .text(content.topic), content.properties,
                .blob(content.payload))
            content = ("", .null, ByteBuffer(), .integer(key.rawValue))
        }
        for consumer in consumers {
            try database.run(
                """
                INSERT INTO inbox
                    (key, received_at, size, qos, retain, duplicate, topic, properties, payload, content_key)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                .integer(inboxKey(consumer, collected.sequence).rawValue), .integer(collected.receivedAt.rawValue),
                .integer(collected.size), .integer(message.qos.rawValue), .integer(message.retain ? 1 : 0),
                .integer(message.duplicate ? 1 : 0), .text(content.topic), content.properties,
                .blob(content.payload), content.key)
        }
    }

    /// Whether a row of the inbox that refers to a content has its own: one with its sequence, and the session of its
    /// consumer. Consumers that were adopted have contents of a session that is not known any more, so their sizes are
    /// compared.
    static let hasItsContent = """
        EXISTS (
            SELECT 1 FROM content LEFT JOIN consumer ON consumer.id = inbox.key >> 48
            WHERE content.key = inbox.content_key
                AND (content.key & 0xFFFFFFFFFFFF) = (inbox.key & 0xFFFFFFFFFFFF)
                AND CASE WHEN consumer.name <> 'recovered-' || consumer.id THEN content.key >> 48 = consumer.session
                    ELSE content.size = inbox.size END)
        """

    /// Finds a row of the inbox whose content is missing or another message's, and an index that does not have exactly
    /// the rows of the table, which SQLite does not compare when it checks a file: contents would go too early.
    ///
    /// A content that no row refers to is not looked for. It comes and goes in the same transactions as its rows, and a
    /// damaged file can only make it take room in vain.
    static func checkContents(in database: Database) throws(StoreError) {
        var (differences, missing): (Int64, Int64) = (0, 0)
        // The table is read once: it may be large.
        try database.query(
            text: """
                SELECT abs(count(*) - (
                        SELECT count(*) FROM inbox INDEXED BY inbox_content_key WHERE content_key IS NOT NULL))
                    + count(*) FILTER (WHERE NOT EXISTS (
                        SELECT 1 FROM inbox AS other INDEXED BY inbox_content_key
                        WHERE other.content_key = inbox.content_key AND other.key = inbox.key)),
                    count(*) FILTER (WHERE NOT \(hasItsContent))
                FROM inbox NOT INDEXED WHERE content_key IS NOT NULL
                """,
            with: []
        ) { row in
            (differences, missing) = (row.integer(0), row.integer(1))
            return false
        }
        guard missing == 0 else { throw .corrupt(path: database.path, cause: "the content of a message is missing") }
        guard differences == 0 else {
            throw .corrupt(path: database.path, cause: "the index of the contents of messages is not that of its table")
        }
    }
}

extension CollectedMessage {
    /// Whether so many consumers have its content in common. Rows that refer to a small one would cost more than they
    /// save: two consumers gain nothing below 700 bytes, four below 300.
    private static let leastShared = 512

    func isShared(by consumers: Int) -> Bool { consumers > 1 && size >= Self.leastShared }

    /// An estimate of the bytes that it takes on the disk.
    func roomNeeded(by consumers: Int) -> Int { isShared(by: consumers) ? size + 64 * consumers : size * consumers }
}
