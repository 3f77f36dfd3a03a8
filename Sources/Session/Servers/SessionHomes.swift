package import Vocabulary

/// Which servers may still have the session as it was before it went on elsewhere.
///
/// The servers of a list need not share their sessions. One that was left, and comes back, calls its old copy a resumed
/// session: without the subscriptions made since, and with packet identifiers that mean something else by now. So it is told
/// to forget it. Servers of a cluster resume the session for one another, and keep being resumed.
///
/// All of it is durable: a daemon that is started anew begins with the first server of the list, whichever has the session.
package struct SessionHomes: Hashable, Sendable {
    /// Old copies that are remembered. Servers end them by the session's expiry.
    package static let maximumStale = 64

    private var home: Endpoint?
    /// The oldest first.
    private var stale: [Endpoint] = []

    /// - Parameter addresses: as `addresses` was.
    package init(_ addresses: [String] = []) {
        home = addresses.first.flatMap { try? Endpoint($0) }
        stale = addresses.dropFirst().compactMap { try? Endpoint($0) }
    }

    /// First the server that has the session, then those with an old copy.
    package var addresses: [String] { ([home].compactMap(\.self) + stale).map(\.description) }

    /// Whether the server at this address was the last one that accepted the session.
    package func isHome(_ address: Endpoint) -> Bool { address == home }

    /// Whether the server at this address must begin anew.
    package func isStale(_ address: Endpoint) -> Bool { stale.contains(address) }

    /// - Returns: whether anything is different now.
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
