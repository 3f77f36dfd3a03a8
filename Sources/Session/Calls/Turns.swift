/// Whose turn it is, where only one caller at a time may proceed. Every turn must be ended.
package struct Turns<Caller> {
    package private(set) var isTaken = false
    package private(set) var waiting: [Caller] = []

    package init() {}

    /// - Returns: whether it is the caller's turn at once. Otherwise ``end()`` returns the caller when it is.
    package mutating func begin(_ caller: Caller) -> Bool {
        guard !isTaken else {
            waiting.append(caller)
            return false
        }
        isTaken = true
        return true
    }

    /// - Returns: the caller whose turn it is now.
    package mutating func end() -> Caller? {
        guard !waiting.isEmpty else {
            isTaken = false
            return nil
        }
        return waiting.removeFirst()
    }
}

extension Turns: Sendable where Caller: Sendable {}
