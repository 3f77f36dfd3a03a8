package import Vocabulary

/// Which servers may still have an old copy of the session, from before it continued elsewhere.
///
/// The servers of a list need not share their sessions. When the session returns to a server that it left, that server
/// reports its old copy as a resumed session, without the subscriptions made since, and with packet identifiers that
/// have another meaning by now. So it is told to discard that copy. The servers of a cluster resume the session for one
/// another, so none of them is told to discard it.
///
/// All of it is durable: a restarted daemon begins with the first server of the list, whichever one has the session.
package struct SessionHomes: Hashable, Sendable {
    /// How many old copies are remembered. Servers end them when the session expires.
    package static let maximumStale = 64

    private var home: Endpoint?
    /// The oldest first.
    private var stale: [Endpoint] = []

    /// - Parameter addresses: an earlier value of ``addresses``.
    package init(_ addresses: [String] = []) {
        home = addresses.first.flatMap { try? Endpoint($0) }
        stale = addresses.dropFirst().compactMap { try? Endpoint($0) }
    }

    /// The server that has the session, then those with an old copy.
    package var addresses: [String] { ([home].compactMap(\.self) + stale).map(\.description) }

    /// Whether the server at this address was the last one that accepted the session.
    package func isHome(_ address: Endpoint) -> Bool { address == home }

    /// Whether the server at this address must begin a new session.
    package func isStale(_ address: Endpoint) -> Bool { stale.contains(address) }

    /// - Returns: whether anything has changed.
    @discardableResult
    package mutating func connected(to address: Endpoint, resumed: Bool) -> Bool {
        let before = self
        stale.removeAll { $0 == address }
        if !resumed, let home, home != address {
            stale = (stale.filter { $0 != home } + [home]).suffix(Self.maximumStale)
        }
        home = address
        return self != before
    }
}
