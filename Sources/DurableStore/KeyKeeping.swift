public import MQTT

/// The keys that messages were published with.
extension DurableStore {
    /// The most keys that are remembered, of all sessions together and whatever their age.
    static let maximumKeys: Int64 = 1_000_000
    /// Among how many keys those that have expired are forgotten with each new one: more than one, so that their number
    /// falls.
    private static let forgottenAtOnce = 16

    /// Returns the message that was published with a key, if it is in the outbox, or left it within the key's lifetime;
    /// otherwise `nil`.
    public func keyed(
        _ session: SessionName, _ key: PublishKey, now: Timestamp
    ) throws(StoreError) -> KeyedMessage? {
        let database = try opened()
        guard let id = contents.sessionIDs[session] else { return nil }
        var found: (sequence: MessageSequence, outcome: Int64?, at: Timestamp)?
        try database.query(
            "SELECT sequence, outcome, time FROM publish_key WHERE session = ? AND key = ?", .integer(id),
            .text(key.description)
        ) { row throws(StoreError) in
            found = (.init(rawValue: row.integer(0)), row.optionalInteger(1), row.time(2))
            return false
        }
        guard let found else { return nil }
        let hasExpired = found.at.rawValue <= now.rawValue - PublishKey.lifetime
        if hasExpired, found.outcome != nil { return nil }
        if let outcome = found.outcome {
            let state = PublishOutcome(stored: outcome).map { KeyedMessage.State.done($0) } ?? .lost
            return KeyedMessage(sequence: found.sequence, state: state, at: found.at)
        }
        guard let stored = try summaries(session, of: [found.sequence]).first else {
            return hasExpired ? nil : KeyedMessage(sequence: found.sequence, state: .lost, at: found.at)
        }
        guard case .quarantined(let code, let sentence) = stored.state else {
            return KeyedMessage(sequence: found.sequence, state: .waiting, at: found.at)
        }
        return KeyedMessage(sequence: found.sequence, state: .quarantined(code, sentence), at: found.at)
    }

    func rememberKey(
        _ key: PublishKey, _ sequence: MessageSequence, _ time: Timestamp, _ session: Int64, _ database: Database
    ) throws(StoreError) {
        try database.run(
            "INSERT OR REPLACE INTO publish_key (session, key, sequence, time) VALUES (?, ?, ?, ?)", .integer(session),
            .text(key.description), .integer(sequence.rawValue), .integer(time.rawValue))
        // Only the session's own keys: another session may not have heard yet that the clock was set, and its keys may
        // not be as old as they look. The lowest sequences are the oldest, except for messages that a person had
        // retried, which come later. A key does not expire while its message is in the outbox.
        try database.run(
            """
            DELETE FROM publish_key WHERE time <= ? AND id IN (
                SELECT id FROM publish_key WHERE session = ? AND sequence >= ? ORDER BY sequence LIMIT ?)
            AND (outcome IS NOT NULL OR NOT EXISTS (
                SELECT 1 FROM message WHERE message.key = publish_key.session << 48 | publish_key.sequence))
            """,
            .integer(time.rawValue - PublishKey.lifetime), .integer(session), .integer(Self.firstSearched(sequence)),
            .integer(Self.forgottenAtOnce))
        try database.run(
            "DELETE FROM publish_key WHERE id <= (SELECT max(id) FROM publish_key) - ?", .integer(Self.maximumKeys))
    }

    /// Where the search for expired keys begins: at the oldest, and every second time anywhere, so that those of messages
    /// that stay in the outbox do not hide the others.
    private static func firstSearched(_ new: MessageSequence) -> Int64 {
        let number = UInt64(max(1, new.rawValue))
        return number.isMultiple(of: 2) ? 0 : Int64(number &* 0x9E37_79B9_7F4A_7C15 % number)
    }

    func shiftKeys(
        by milliseconds: Int64, publishedWithin range: ClosedRange<Timestamp>, _ session: Int64, _ database: Database
    ) throws(StoreError) {
        try database.run(
            "UPDATE publish_key SET time = time + ? WHERE session = ? AND time BETWEEN ? AND ?", .integer(milliseconds),
            .integer(session), .integer(range.lowerBound.rawValue), .integer(range.upperBound.rawValue))
    }

    /// The key's lifetime begins here: a program that waits for the delivery by repeating its call, however long that
    /// takes, must still find the message when it is delivered.
    func concludeKey(
        _ sequence: MessageSequence, _ outcome: PublishOutcome, _ time: Timestamp, _ session: Int64,
        _ database: Database
    ) throws(StoreError) {
        try database.run(
            "UPDATE publish_key SET outcome = ?, time = max(time, ?) WHERE session = ? AND sequence = ?",
            .integer(outcome.stored), .integer(time.rawValue), .integer(session), .integer(sequence.rawValue))
    }
}

extension PublishOutcome {
    private static let reasons: [MQTTClientMachine.DropReason] = [.expired, .tooOld, .outboxFull, .discarded]

    fileprivate var stored: Int64 {
        switch self {
        case .delivered(let code): Int64(code.rawValue)
        case .dropped(let reason): 256 + Int64(Self.reasons.firstIndex(of: reason) ?? Self.reasons.count - 1)
        }
    }

    fileprivate init?(stored number: Int64) {
        if let code = UInt8(exactly: number) {
            self = .delivered(ReasonCode(rawValue: code))
        } else if (256..<256 + Int64(Self.reasons.count)).contains(number) {
            self = .dropped(Self.reasons[Int(number - 256)])
        } else {
            return nil
        }
    }
}
