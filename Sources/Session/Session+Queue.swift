package import ControlAPI
package import MQTT

// What people decide about the messages of the outbox. The driver reads the messages from the store; what each decision
// comes to is decided here.

extension Session {
    /// The messages that one call decides about.
    package struct MessageChoice: Sendable {
        /// How many there may be.
        package static let maximum = 1000

        package private(set) var messages: [StoredMessageSummary]
        package private(set) var skipped: [SkippedMessage] = []
        /// Whether there are more than one call may decide about.
        package let more: Bool

        /// - Parameters:
        ///   - found: the selected messages in the store; one more than ``maximum`` if there are more.
        ///   - isRetry: whether only quarantined messages are wanted.
        package init(_ selection: MessageSelection, found: [StoredMessageSummary], isRetry: Bool) {
            messages = Array(found.prefix(Self.maximum))
            more = found.count > Self.maximum
            if case .ids(let ids) = selection {
                let unknown = Set(ids).subtracting(found.map(\.sequence.rawValue))
                skipped = unknown.sorted().map { .unknown($0) }
            }
            guard isRetry else { return }
            skipped += messages.filter { !$0.isQuarantined }.map { .notQuarantined($0.sequence) }
            messages.removeAll { !$0.isQuarantined }
        }
    }

    /// What a decision about a message has come to.
    package enum Decision: Sendable {
        /// With its sequence from now on.
        case done(MessageSequence)
        case skipped(SkippedMessage)
    }

    /// Takes a message out of the quarantine and accepts it as a new one.
    package mutating func retry(_ stored: StoredMessage) -> Decision {
        var answers: [MQTTClientMachine.Action] = []
        defer { answered(answers) }
        return mqtt.retry(stored, of: settings.name, at: wallClock, into: &answers)
    }

    package mutating func drop(_ stored: StoredMessageSummary) -> Decision {
        var answers: [MQTTClientMachine.Action] = []
        defer { answered(answers) }
        return mqtt.drop(stored, at: wallClock, into: &answers)
    }

    /// Carries out the protocol machine's actions at once, because commits must keep its order.
    private mutating func answered(_ actions: [MQTTClientMachine.Action]) {
        for action in actions { perform(action) }
        checkFlushed()
    }
}

extension MQTTClientMachine {
    /// Takes a message out of the quarantine and accepts it as a new one, unless it has left the quarantine since it was
    /// chosen.
    package mutating func retry(
        _ stored: StoredMessage, of session: SessionName, at now: Timestamp, into actions: inout [Action]
    ) -> Session.Decision {
        guard case .quarantined = stored.state else { return .skipped(.notQuarantined(stored.sequence)) }
        do throws(PublishError) {
            return .done(try retry(stored, at: now, into: &actions))
        } catch {
            return .skipped(.refused(stored, error, of: session))
        }
    }

    package mutating func drop(
        _ stored: StoredMessageSummary, at now: Timestamp, into actions: inout [Action]
    ) -> Session.Decision {
        switch discard(stored, at: now, into: &actions) {
        case .dropped, .delivered: .done(stored.sequence)
        case .isWithTransport: .skipped(.inFlight(stored.sequence))
        case .isGone: .skipped(.unknown(stored.sequence.rawValue))
        }
    }
}

extension StoredMessageSummary {
    fileprivate var isQuarantined: Bool { if case .quarantined = state { true } else { false } }
}

extension SkippedMessage {
    fileprivate static func unknown(_ id: Int64) -> SkippedMessage {
        .init(
            id: id, code: "unknown-message", message: "there is no message \(id) in the outbox",
            hint: "it was delivered or dropped, or a retry gave it another id")
    }

    fileprivate static func inFlight(_ sequence: MessageSequence) -> SkippedMessage {
        .init(
            id: sequence.rawValue, code: "in-flight",
            message: "message \(sequence), of QoS 0, is being sent at this moment",
            hint: "try again when the connection is lost, or ignore it: it is sent once")
    }

    fileprivate static func notQuarantined(_ sequence: MessageSequence) -> SkippedMessage {
        .init(
            id: sequence.rawValue, code: "not-quarantined",
            message: "message \(sequence) is not quarantined, so it needs no retry")
    }

    fileprivate static func refused(
        _ stored: StoredMessage, _ error: MQTTClientMachine.PublishError, of session: SessionName
    ) -> SkippedMessage {
        let sequence = stored.sequence
        guard error != .expired else {
            return .init(
                id: sequence.rawValue, code: "expired",
                message: "message \(sequence) has expired, so it is no longer sent", hint: "drop it")
        }
        let reason = RPCError(error, session: session, topic: stored.message.topic)
        return .init(
            id: sequence.rawValue, code: reason.data?.code ?? "message-rejected", message: reason.message,
            hint: reason.data?.hint)
    }
}
