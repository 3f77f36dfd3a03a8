import ControlAPI
import DurableStore
import MQTT
import NIOCore
import Session
import SessionCore

// What programs publish.

extension SessionDriver {
    /// What a publisher is told about its message.
    enum PublishStep {
        /// The message is committed; its delivery is awaited.
        case accepted(MessageSequence)
        /// The final result.
        case ended(Result<MessagePublishMethod.Result, RPCError>)
    }

    /// A caller that waits for a message to be accepted or delivered.
    struct Publisher {
        var wait: MessagePublishMethod.Wait
        var told: @Sendable (PublishStep) -> Void
    }

    /// Accepts a message. Returns when it is committed or, if the caller asked for that, delivered.
    func publish(_ parameters: MessagePublishMethod.Parameters) async throws(RPCError) -> MessagePublishMethod.Result {
        let result: Result<MessagePublishMethod.Result, RPCError> = await withCheckedContinuation { continuation in
            publish(parameters) { step in
                if case .ended(let result) = step { continuation.resume(returning: result) }
            }
        }
        return try result.get()
    }

    /// Accepts a message. Tells when it is committed and, if the caller asked for that, delivered. Messages keep the
    /// order of the calls.
    ///
    /// A message with a key is looked up in the store first, so messages without a key may overtake it.
    func publish(_ parameters: MessagePublishMethod.Parameters, told: @escaping @Sendable (PublishStep) -> Void) {
        guard let text = parameters.key else { return publish(parameters, nil, told: told) }
        guard let key = PublishKey(text) else {
            return told(
                .ended(
                    .failure(
                        .invalidParameters("a key has 1 to 128 printable ASCII characters without the space"))))
        }
        Task { told(.ended(await publishOnce(parameters, key) { told(.accepted($0)) })) }
    }

    func publish(
        _ parameters: MessagePublishMethod.Parameters, _ key: PublishKey?,
        told: @escaping @Sendable (PublishStep) -> Void
    ) {
        do throws(RPCError) {
            if let failure = surroundings.commits.assumeIsolated({ $0.failure }) {
                throw .notCommitted("the message", because: failure.description)
            }
            try checkRunning()
            let time = acceptanceTime()
            let sequence = try ask { session throws(RPCError) in
                try session.publish(parameters, key: key, at: time)
            }
            programs.publishers[sequence] = Publisher(wait: parameters.wait, told: told)
        } catch {
            told(.ended(.failure(error)))
        }
    }

    func accepted(_ sequence: MessageSequence) {
        guard let publisher = programs.publishers[sequence] else { return }
        guard publisher.wait == .accepted else { return publisher.told(.accepted(sequence)) }
        programs.publishers[sequence] = nil
        publisher.told(
            .ended(.success(.init(id: sequence.rawValue, accepted: true, delivered: false, reasonCode: nil))))
    }

    /// The store refused the new messages among these changes; the other changes may take a while.
    func refused(_ changes: [DurableChange], _ error: StoreError) {
        for case .insert(let stored) in changes {
            programs.publishers.removeValue(forKey: stored.sequence)?.told(
                .ended(.failure(.notCommitted("the message", because: error.description))))
        }
    }

    func delivered(_ sequence: MessageSequence, _ code: ReasonCode) {
        programs.publishers.removeValue(forKey: sequence)?.told(
            .ended(
                .success(
                    .init(id: sequence.rawValue, accepted: true, delivered: true, reasonCode: Int(code.rawValue)))))
    }

    func rejected(_ message: MQTTClientMachine.RejectedMessage) {
        let sentence = Self.rejection(message.code, message.words)
        log.quarantined(message.sequence, sentence, at: now)
        var event = self.event(.messageRejected)
        event.id = message.sequence.rawValue
        event.topic = message.topic
        event.reasonCode = Int(message.code.rawValue)
        report(event)
        programs.publishers.removeValue(forKey: message.sequence)?.told(
            .ended(.failure(.messageRejected(sentence, reasonCode: Int(message.code.rawValue)))))
    }

    /// What the server said about a message.
    ///
    /// - Parameter words: without them the store has the name of the code.
    static func rejection(_ code: ReasonCode, _ words: String?) -> String {
        guard let words, words != code.name else { return code.description }
        return "\(code), “\(words)”"
    }

    /// Reports QoS 2 messages that the server may have received twice.
    func repeated(_ count: Int) {
        log.repeated(count)
        var event = self.event(.messageRepeated)
        event.count = count
        report(event)
    }

    /// Reports a message from the server that no program gets.
    func refused(_ message: MQTTClientMachine.RefusedMessage) {
        log.refused(message, at: now)
        var event = self.event(.messageRefused)
        event.topic = message.topic
        event.reasonCode = Int(message.flaw.reasonCode.rawValue)
        event.reason = .init(
            code: "unusable-content", group: "inbox", terminal: false, message: message.flaw.message)
        report(event)
    }
}
