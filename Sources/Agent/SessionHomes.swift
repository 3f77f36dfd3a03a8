import Transport

/// Which servers may still have the session as it was before it went on elsewhere.
///
/// The servers of a list need not share their sessions. One that was left, and comes back, calls its old copy a resumed
/// session: without the subscriptions made since, and with packet identifiers that mean something else by now. So it is told
/// to forget it. Servers of a cluster resume the session for one another, and keep being resumed.
struct SessionHomes: Hashable, Sendable {
    private var home: Endpoint?
    private var stale: Set<Endpoint> = []

    /// Whether the server at this address must begin anew.
    func isStale(_ address: Endpoint) -> Bool { stale.contains(address) }

    mutating func connected(to address: Endpoint, resumed: Bool) {
        if !resumed, let home, home != address { stale.insert(home) }
        stale.remove(address)
        home = address
    }
}
