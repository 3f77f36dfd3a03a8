/// What keeps an on-demand session up.
public enum Use: Hashable, Sendable, CaseIterable {
    /// At least one local program is subscribed to something.
    case subscriptions
    /// Messages wait to be sent or acknowledged.
    case messages
}

/// Whether local programs use the session, and if not, since when.
///
/// A leaf machine. Without a timeout it only remembers what is in use.
struct Demand: Hashable, Sendable {
    let idleTimeout: Duration?
    private(set) var uses: Set<Use> = []
    /// When the last use ended; a use may also be momentary.
    private var lastUse: Instant

    init(idleTimeout: Duration?, at now: Instant) {
        self.idleTimeout = idleTimeout
        lastUse = now
    }

    var isOnDemand: Bool { idleTimeout != nil }

    /// When the session has been idle for long enough; `nil` while it is used, and for a session that is always up.
    var deadline: Instant? {
        guard uses.isEmpty, let idleTimeout else { return nil }
        return lastUse.advanced(by: idleTimeout)
    }

    mutating func began(_ use: Use) {
        uses.insert(use)
    }

    mutating func ended(_ use: Use, at now: Instant) {
        guard uses.remove(use) != nil else { return }
        lastUse = now
    }

    /// Notes a momentary use.
    mutating func touched(at now: Instant) {
        lastUse = now
    }
}
