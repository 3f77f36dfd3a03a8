import ControlAPI
import DurableStore
import MQTT
import NIOCore
import Session
import SessionCore

// What programs publish.

extension SessionDriver {
    /// Accepts a message. Returns when it is committed or, if the caller asked for that, delivered.
    func publish(_ parameters: MessagePublishMethod.Parameters) async throws(RPCError) -> MessagePublishMethod.Result {
        let result: Result<MessagePublishMethod.Result, RPCError> = await withCheckedContinuation { continuation in
            publish(parameters) { step in
                if case .ended(let result) = step { continuation.resume(returning: result) }
                return true
            }
        }
        return try result.get()
    }

    /// Accepts a message. Tells when it is committed and, if the caller asked for that, delivered. Messages keep the
    /// order of the calls.
    ///
    /// A message with a key is looked up in the store first, so messages without a key may overtake it.
    ///
    /// - Parameters:
    ///   - call: for ``leave(_:of:)``.
    ///   - told: returns whether the caller waits for more.
    func publish(
        _ parameters: MessagePublishMethod.Parameters, for call: PublishCall? = nil,
        told: @escaping @Sendable (Publisher.Step) -> Bool
    ) {
        let publisher = Publisher(call: call, wait: parameters.wait, told: told)
        do throws(RPCError) {
            guard let text = parameters.key else { return try publish(parameters, nil, publisher) }
            guard let key = PublishKey(text) else {
                throw .invalidParameters("a key has 1 to 128 printable ASCII characters without the space")
            }
            Task { await publishOnce(parameters, key, publisher) }
        } catch {
            publisher.end(.failure(error))
        }
    }

    func publish(
        _ parameters: MessagePublishMethod.Parameters, _ key: PublishKey?, _ publisher: Publisher
    ) throws(RPCError) {
        if let failure = surroundings.commits.assumeIsolated({ $0.failure }) {
            throw .notCommitted("the message", because: failure.description)
        }
        try checkRunning()
        let time = acceptanceTime()
        let sequence = try ask { session throws(RPCError) in
            try session.publish(parameters, key: key, at: time)
        }
        programs.publishers.add(publisher, of: sequence)
    }

    /// The caller of an accepted message does not wait for its delivery any more.
    func leave(_ call: PublishCall, of sequence: MessageSequence) { programs.publishers.remove(call, of: sequence) }

    /// Tells all who wait for the message what has become of it.
    func endPublish(_ sequence: MessageSequence, _ result: Result<MessagePublishMethod.Result, RPCError>) {
        for publisher in programs.publishers.take(sequence) { publisher.end(result) }
    }

    func accepted(_ sequence: MessageSequence) {
        // A key is repeated only after this.
        guard let publisher = programs.publishers.first(of: sequence) else { return }
        if publisher.wait == .accepted {
            endPublish(sequence, .success(.accepted(sequence)))
        } else if !publisher.told(.accepted(sequence)) {
            _ = programs.publishers.take(sequence)
        }
    }

    /// The store refused the new messages among these changes; the other changes may take a while.
    func refused(_ changes: [DurableChange], _ error: StoreError) {
        for case .insert(let stored) in changes {
            endPublish(stored.sequence, .failure(.refused(error)))
        }
    }

    func delivered(_ sequence: MessageSequence, _ code: ReasonCode) {
        endPublish(sequence, .success(.delivered(sequence, code)))
    }

    func rejected(_ message: MQTTClientMachine.RejectedMessage) {
        let sentence = Self.rejection(message.code, message.words)
        log.quarantined(message.sequence, sentence, at: now)
        report(.messageRejected) {
            $0.id = message.sequence.rawValue
            $0.topic = message.topic
            $0.reasonCode = message.code.map { Int($0.rawValue) }
        }
        let error = RPCError.messageRejected(
            sentence, reasonCode: message.code.map { Int($0.rawValue) },
            hint:
                "it is kept: holdfastctl queue retry \(name) \(message.sequence.rawValue) sends it again, and queue drop "
                + "deletes it")
        endPublish(message.sequence, .failure(error.afterAcceptance(of: message.sequence.rawValue)))
    }

    /// What the server said about a message, or why the message was set aside although the server said nothing.
    ///
    /// - Parameter words: without them the store has the name of the code.
    static func rejection(_ code: ReasonCode?, _ words: String?) -> String {
        guard let code else { return words ?? "" }
        guard let words, words != code.name else { return code.description }
        return "\(code), \"\(words)\""
    }

    /// Reports QoS 2 messages that the server may have received twice.
    func repeated(_ count: Int) {
        log.repeated(count)
        report(.messageRepeated) { $0.count = count }
    }

    /// Reports a message from the server that no program gets.
    func refused(_ message: MQTTClientMachine.RefusedMessage) {
        log.refused(message, at: now)
        report(.messageRefused) {
            $0.topic = message.topic
            $0.reasonCode = Int(message.flaw.reasonCode.rawValue)
            $0.reason = .init(
                code: "unusable-content", group: "inbox", terminal: false, message: message.flaw.message)
        }
    }
}

extension RPCError {
    /// The store refused a message.
    fileprivate static func refused(_ error: StoreError) -> RPCError {
        guard case .inconsistent = error else { return .notCommitted("the message", because: error.description) }
        return RPCError(.storeFull, "the message could not be committed: \(error)", hint: "try again")
    }
}
