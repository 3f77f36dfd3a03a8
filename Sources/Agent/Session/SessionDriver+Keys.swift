import ControlAPI
import DurableStore
import MQTT
import Session

// Publishing with a key: two messages with the same key are the same message.

extension SessionDriver {
    /// Publishes the message, unless one was already published with this key: then tells the state of that one.
    func publishOnce(
        _ parameters: MessagePublishMethod.Parameters, _ key: PublishKey, _ publisher: Publisher
    ) async {
        do throws(RPCError) {
            try checkRunning()
            guard let turn = await turn(with: key) else { throw .sessionIsRestarting }
            // The turn of a new message ends when the message is on disk, or refused.
            var isNew = false
            defer { if !isNew { run(.endKey(key, turn)) } }
            guard let known = try await message(of: key) else {
                var publisher = publisher
                publisher.told = { [weak self, publisher] step in
                    if case .ended(.failure) = step { self?.assumeIsolated { $0.run(.endKey(key, turn)) } }
                    return publisher.told(step)
                }
                try publish(parameters, key, publisher)
                isNew = true
                return
            }
            run(.endKey(key, turn))
            let publisher = publisher.ofRepeatedMessage
            if let answer = Self.answer(known, parameters.wait) { return publisher.end(answer) }
            try checkRunning()
            guard publisher.told(.accepted(known.sequence)) else { return }
            programs.publishers.add(publisher, of: known.sequence)
            // The message may have been delivered or dropped just before the publisher was registered.
            await everythingCommitted()
            if let known = try? await keyed(key), let answer = Self.answer(known, parameters.wait) {
                endPublish(known.sequence, answer)
            }
        } catch {
            publisher.end(.failure(error))
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

    private func keyed(_ key: PublishKey) async throws(StoreError) -> KeyedMessage? {
        try await withPresentTimes { store throws(StoreError) in
            try await store.keyed(self.name, key, now: self.wallClock)
        }
    }

    /// - Returns: `nil` when the answer is still to come.
    private static func answer(
        _ known: KeyedMessage, _ wait: MessagePublishMethod.Wait
    ) -> Result<MessagePublishMethod.Result, RPCError>? {
        switch known.state {
        case .lost: return .failure(.messageLost.afterAcceptance(of: known.sequence.rawValue))
        case _ where wait != .delivered: return .success(.accepted(known.sequence))
        case .waiting: return nil
        case .quarantined(let code, let words):
            let sentence = Self.rejection(code, words)
            let error = RPCError.messageRejected(sentence, reasonCode: code.map { Int($0.rawValue) })
            return .failure(error.afterAcceptance(of: known.sequence.rawValue))
        case .done(.delivered(let code)):
            return .success(.delivered(known.sequence, code))
        case .done(.dropped(let reason)):
            return .failure(.messageDropped(reason.sentence).afterAcceptance(of: known.sequence.rawValue))
        }
    }
}
