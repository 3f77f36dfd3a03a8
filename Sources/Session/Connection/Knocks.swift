package import SessionCore

/// The knocks under way. A knock asks whether an endpoint answers, without logging in.
package struct Knocks: Sendable {
    /// Identifies a knock that has to be prepared first.
    package struct Number: Hashable, Sendable {
        fileprivate let rawValue: Int
    }

    private struct Knock: Sendable {
        let connection: DialID
        /// Whether it asks the server behind the proxy.
        let isBehindProxy: Bool
        var hasAnswered = false
    }

    private var underWay: [EndpointIndex: Knock] = [:]
    /// The number of the last knock that was begun.
    private var last = 0

    package init() {}

    package var isEmpty: Bool { underWay.isEmpty }

    /// - Returns: the number of the new knock, and the connection of an earlier one at this endpoint, which is no
    ///   longer needed.
    package mutating func begin(at endpoint: EndpointIndex) -> (number: Number, replaced: DialID?) {
        last += 1
        return (Number(rawValue: last), underWay.removeValue(forKey: endpoint)?.connection)
    }

    /// Whether no other knock has begun since.
    package func isLast(_ number: Number) -> Bool { number.rawValue == last }

    package mutating func dialed(_ connection: DialID, at endpoint: EndpointIndex, isBehindProxy: Bool) {
        underWay[endpoint] = Knock(connection: connection, isBehindProxy: isBehindProxy)
    }

    /// - Returns: whether this is the knock whose answer is awaited.
    package mutating func answered(_ endpoint: EndpointIndex, on connection: DialID) -> Bool {
        guard underWay[endpoint]?.connection == connection else { return false }
        underWay[endpoint]?.hasAnswered = true
        return true
    }

    /// - Returns: whether it ended without an answer.
    package mutating func closed(_ endpoint: EndpointIndex, on connection: DialID) -> Bool {
        guard let knock = underWay[endpoint], knock.connection == connection else { return false }
        underWay[endpoint] = nil
        return !knock.hasAnswered
    }

    /// Takes the knock that an attempt continues, if it was answered and can be used.
    ///
    /// - Parameter needsLogin: whether the proxy wants a login. Its password is fetched for each attempt, and a knock
    ///   at the proxy itself had none.
    package mutating func take(for attempt: Attempt, needsLogin: Bool) -> DialID? {
        guard attempt.continuesKnock, let knock = underWay[attempt.endpoint], knock.hasAnswered,
            !needsLogin || knock.isBehindProxy
        else { return nil }
        underWay[attempt.endpoint] = nil
        return knock.connection
    }

    /// - Returns: the connections of the knocks that are no longer wanted.
    package mutating func drop(unless isWanted: (EndpointIndex) -> Bool) -> [DialID] {
        var dropped: [DialID] = []
        for (endpoint, knock) in underWay where !isWanted(endpoint) {
            underWay[endpoint] = nil
            dropped.append(knock.connection)
        }
        return dropped
    }
}
