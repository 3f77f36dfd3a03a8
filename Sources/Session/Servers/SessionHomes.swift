package import MQTT
package import Vocabulary

/// A server that has the session, or may have an older copy of it, as it is stored.
package struct SessionHome: Hashable, Sendable {
    package var address: String
    /// What an older copy has; nothing is known of the present one that is not stored elsewhere.
    package var left: LeftSession
    /// When the server ends an older copy; `nil` for never.
    package var endsAt: Timestamp?

    package init(_ address: String, left: LeftSession = LeftSession(), endsAt: Timestamp? = nil) {
        self.address = address
        self.left = left
        self.endsAt = endsAt
    }
}

/// Which servers may still have an older copy of the session, from before it continued elsewhere.
///
/// The servers of a list need not share their sessions. When the session returns to a server that it left, that server
/// reports its old copy as a resumed session, without the subscriptions made since, and with packet identifiers that
/// have another meaning by now. So what was left there is remembered, and continued on the return; the rest is a new
/// session. The servers of a cluster resume the session for one another, so none of them has an older copy.
///
/// Servers behind one address cannot be told apart. When the session was lost there, another server at this address may
/// still have it, and be the next to answer.
///
/// All of it is durable: a restarted daemon begins with the first server of the list, whichever one has the session.
package struct SessionHomes: Hashable, Sendable {
    /// How many older copies are remembered. Servers end them when the session expires.
    package static let maximumOlder = 16
    /// Bytes of the filters of one older copy that are remembered. Messages for one that is forgotten are acknowledged,
    /// and no program gets them.
    private static let maximumFilterBytes = 1 << 20

    private var home: String?
    /// The one that was left first comes first.
    private var older: [SessionHome] = []

    /// - Parameter stored: an earlier value of ``stored``.
    package init(_ stored: [SessionHome] = []) {
        home = stored.first?.address
        older = Array(stored.dropFirst())
    }

    /// The server that has the session, then those with an older copy.
    package var stored: [SessionHome] { [home].compactMap { $0.map { SessionHome($0) } } + older }

    /// Whether the server at this address was the last one that accepted the session.
    package func isHome(_ address: Endpoint) -> Bool { address.description == home }

    /// Returns what a server at this address may have.
    package func expected(
        at address: Endpoint, _ continuity: MQTTClientMachine.Continuity
    ) -> MQTTClientMachine.ExpectedSession {
        .init(isPresent: isHome(address), older: older(at: address), continuity: continuity)
    }

    /// Returns what a server at this address may have of an older copy.
    package func older(at address: Endpoint) -> LeftSession? {
        older.first { $0.address == address.description }?.left
    }

    /// The server at this address has accepted the session.
    ///
    /// - Parameters:
    ///   - resumed: whether it continues the present session.
    ///   - isLost: whether it should have had the present session.
    ///   - left: what the server has that had the session until now, if it is another one.
    ///   - expiry: seconds for which a server keeps a session; `UInt32.max` for ever.
    /// - Returns: whether anything has changed.
    @discardableResult
    package mutating func connected(
        to address: Endpoint, resumed: Bool, isLost: Bool = false, leaving left: LeftSession = LeftSession(),
        expiry: UInt32 = .max, at time: Timestamp = Timestamp(rawValue: 0)
    ) -> Bool {
        let before = self
        let address = address.description
        older.removeAll { $0.address == address && (address != home || $0.endsAt.map { $0 < time } ?? false) }
        if !resumed, let home, home != address || isLost {
            let endsAt = expiry == .max ? nil : Timestamp(rawValue: time.rawValue + Int64(expiry) * 1000)
            leave(home, left, until: endsAt)
        }
        home = address
        return self != before
    }

    private mutating func leave(_ address: String, _ left: LeftSession, until endsAt: Timestamp?) {
        var left = left
        if let earlier = older.first(where: { $0.address == address })?.left {
            left.unreleased.formUnion(earlier.unreleased)
            left.filters.formUnion(earlier.filters)
        }
        var bytes = 0
        left.filters = left.filters.filter {
            bytes += $0.string.utf8.count
            return bytes <= Self.maximumFilterBytes
        }
        older.removeAll { $0.address == address }
        older.append(SessionHome(address, left: left, endsAt: endsAt))
        older = older.suffix(Self.maximumOlder)
    }
}
