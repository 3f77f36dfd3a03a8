package import MQTT

/// The keys of messages that are not on disk yet. Calls with the same key take turns: the turn of a new message ends
/// when the message is on disk, or is known never to be.
package struct KeysUnderWay: Sendable {
    /// Identifies one use of a key.
    package struct Turn: Hashable, Sendable {
        fileprivate var number: Int
    }

    private var turns: [PublishKey: (turn: Turn, waiting: [CallID])] = [:]
    private var keys: [MessageSequence: (key: PublishKey, turn: Turn)] = [:]
    private var lastTurn = 0

    package init() {}

    /// - Returns: `nil` if another call has the key. Then ``end(_:_:)`` or ``answered(_:)`` returns the call later.
    package mutating func begin(_ key: PublishKey, _ call: CallID) -> Turn? {
        guard turns[key] == nil else {
            turns[key]?.waiting.append(call)
            return nil
        }
        return begin(key, waiting: [])
    }

    private mutating func begin(_ key: PublishKey, waiting: [CallID]) -> Turn {
        lastTurn += 1
        let turn = Turn(number: lastTurn)
        turns[key] = (turn, waiting)
        return turn
    }

    /// Ends a turn, unless it has ended before.
    ///
    /// - Returns: the call that has waited longest, whose turn it is now.
    package mutating func end(_ key: PublishKey, _ turn: Turn) -> (call: CallID, turn: Turn)? {
        guard turns[key]?.turn == turn, var waiting = turns.removeValue(forKey: key)?.waiting, !waiting.isEmpty else {
            return nil
        }
        let next = waiting.removeFirst()
        return (next, begin(key, waiting: waiting))
    }

    /// Ties the key to the message, until the store has answered.
    package mutating func published(_ key: PublishKey, as sequence: MessageSequence) {
        if let turn = turns[key]?.turn { keys[sequence] = (key, turn) }
    }

    /// The message is on disk, or never will be.
    ///
    /// - Returns: the call whose turn it is now.
    package mutating func answered(_ sequence: MessageSequence) -> (call: CallID, turn: Turn)? {
        guard !keys.isEmpty, let (key, turn) = keys.removeValue(forKey: sequence) else { return nil }
        return end(key, turn)
    }
}
