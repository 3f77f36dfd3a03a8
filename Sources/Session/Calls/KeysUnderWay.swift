package import MQTT

/// The keys of messages that are not on disk yet. Another call with the same key waits until the message is on disk, or
/// is known never to be.
package struct KeysUnderWay: Sendable {
    /// Identifies one use of a key.
    package struct Turn: Hashable, Sendable {
        fileprivate var number: Int
    }

    private var turns: [PublishKey: (turn: Turn, waiting: [CallID])] = [:]
    private var keys: [MessageSequence: (key: PublishKey, turn: Turn)] = [:]
    private var lastTurn = 0

    package init() {}

    /// - Returns: `nil` if another call has the key.
    package mutating func take(_ key: PublishKey) -> Turn? {
        guard turns[key] == nil else { return nil }
        lastTurn += 1
        let turn = Turn(number: lastTurn)
        turns[key] = (turn, [])
        return turn
    }

    /// - Returns: whether the key is free already, so that the call need not wait. Otherwise ``release(_:_:)`` or
    ///   ``answered(_:)`` returns the call later.
    package mutating func wait(for key: PublishKey, _ call: CallID) -> Bool {
        if turns[key] == nil { return true }
        turns[key]?.waiting.append(call)
        return false
    }

    /// Ends a turn, unless it has ended before.
    ///
    /// - Returns: the calls that were waiting for it.
    package mutating func release(_ key: PublishKey, _ turn: Turn) -> [CallID] {
        guard turns[key]?.turn == turn else { return [] }
        return turns.removeValue(forKey: key)?.waiting ?? []
    }

    /// Ties the key to the message, until the store has answered.
    package mutating func published(_ key: PublishKey, as sequence: MessageSequence) {
        if let turn = turns[key]?.turn { keys[sequence] = (key, turn) }
    }

    /// The message is on disk, or never will be.
    ///
    /// - Returns: the calls that were waiting for it.
    package mutating func answered(_ sequence: MessageSequence) -> [CallID] {
        guard !keys.isEmpty, let (key, turn) = keys.removeValue(forKey: sequence) else { return [] }
        return release(key, turn)
    }
}
