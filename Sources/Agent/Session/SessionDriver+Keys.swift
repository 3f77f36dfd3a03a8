import ControlAPI
import DurableStore
import MQTT
import Session

// Publishing with a key: two messages with the same key are the same message.

extension SessionDriver {
    /// Publishes the message, unless one was already published with this key: then answers with the state of that one.
    func publishOnce(
        _ parameters: MessagePublishMethod.Parameters, _ key: PublishKey,
        accepted: @escaping @Sendable (MessageSequence) -> Void
    ) async -> Result<MessagePublishMethod.Result, RPCError> {
        do throws(RPCError) {
            try checkRunning()
            guard let turn = await turn(with: key) else { throw .sessionIsRestarting }
            // The turn of a new message ends when the message is on disk.
            var isNew = false
            defer { if !isNew { run(.endKey(key, turn)) } }
            guard let known = try await message(of: key) else {
                let result = await publishNew(parameters, key, accepted: accepted)
                if case .success = result { isNew = true }
                return result
            }
            run(.endKey(key, turn))
            if let answer = Self.answer(known, parameters.wait) { return answer }
            accepted(known.sequence)
            return .success(try await delivery(of: known.sequence, key))
        } catch {
            return .failure(error)
        }
    }

    /// Returns when no other message with the key is on its way to the disk; `nil` when this driver is over.
    private func turn(with key: PublishKey) async -> KeysUnderWay.Turn? {
        await withCheckedContinuation { continuation in
            let call = programs.keying.add { continuation.resume(returning: $0) }
            if let turn = ask({ $0.takeTurn(with: key, for: call) }) { programs.keying.answer([call], turn) }
        }
    }

    private func message(of key: PublishKey) async throws(RPCError) -> KeyedMessage? {
        do throws(StoreError) {
            return try await keyed(key)
        } catch {
            throw .notCommitted("the message", because: error.description)
        }
    }

    /// Looks a key up in the store. The age of a key is the difference between two wall-clock times. When the clock is
    /// set, both are shifted; in between the store is not asked.
    private func keyed(_ key: PublishKey) async throws(StoreError) -> KeyedMessage? {
        while true {
            checkClock()
            let steps = clockSteps.count
            if steps != clockSteps.durableCount {
                if let failure = await everythingCommitted() { throw failure }
                clockSteps.durableCount = max(clockSteps.durableCount, steps)
                continue
            }
            let found = try await surroundings.store.keyed(name, key, now: wallClock)
            checkClock()
            if steps == clockSteps.count { return found }
        }
    }

    private func publishNew(
        _ parameters: MessagePublishMethod.Parameters, _ key: PublishKey,
        accepted: @escaping @Sendable (MessageSequence) -> Void
    ) async -> Result<MessagePublishMethod.Result, RPCError> {
        await withCheckedContinuation { continuation in
            publish(parameters, key) { step in
                switch step {
                case .accepted(let sequence): accepted(sequence)
                case .ended(let result): continuation.resume(returning: result)
                }
            }
        }
    }

    /// - Returns: `nil` when the answer is still to come.
    private static func answer(
        _ known: KeyedMessage, _ wait: MessagePublishMethod.Wait
    ) -> Result<MessagePublishMethod.Result, RPCError>? {
        let id = known.sequence.rawValue
        guard wait == .delivered else {
            return .success(.init(id: id, accepted: true, delivered: false, reasonCode: nil))
        }
        switch known.state {
        case .waiting: return nil
        case .quarantined(let code, let words):
            return .failure(.messageRejected(Self.rejection(code, words), reasonCode: Int(code.rawValue)))
        case .done(.delivered(let code)):
            return .success(.init(id: id, accepted: true, delivered: true, reasonCode: Int(code.rawValue)))
        case .done(.dropped(let reason)):
            return .failure(.messageDropped(reason.sentence))
        }
    }

    /// Waits until a message that was published before is delivered, rejected or dropped.
    private func delivery(
        of sequence: MessageSequence, _ key: PublishKey
    ) async throws(RPCError) -> MessagePublishMethod.Result {
        try checkRunning()
        let result: Result<MessagePublishMethod.Result, RPCError> = await withCheckedContinuation { continuation in
            let before = programs.publishers[sequence]
            programs.publishers[sequence] = Publisher(wait: .delivered) { step in
                before?.told(step)
                if case .ended(let result) = step { continuation.resume(returning: result) }
            }
            // The message may have been delivered or dropped just before the publisher was registered.
            Task { await answerIfOver(sequence, key) }
        }
        return try result.get()
    }

    private func answerIfOver(_ sequence: MessageSequence, _ key: PublishKey) async {
        await everythingCommitted()
        guard let known = try? await keyed(key), let answer = Self.answer(known, .delivered) else { return }
        programs.publishers.removeValue(forKey: sequence)?.told(.ended(answer))
    }
}
