/// Whose turn it is, where only one call at a time may proceed.
package struct Turns: Sendable {
    private var isTaken = false
    private var waiting: [CallID] = []

    package init() {}

    /// - Returns: whether it is the caller's turn at once. Otherwise ``end()`` returns the call when it is.
    package mutating func begin(_ call: CallID) -> Bool {
        guard !isTaken else {
            waiting.append(call)
            return false
        }
        isTaken = true
        return true
    }

    /// - Returns: the call whose turn it is now.
    package mutating func end() -> CallID? {
        guard !waiting.isEmpty else {
            isTaken = false
            return nil
        }
        return waiting.removeFirst()
    }
}
