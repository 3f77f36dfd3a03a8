package import MQTT
package import Vocabulary

/// A server that has the session, or may have an older copy of it, as it is stored.
package struct SessionHome: Hashable, Sendable {
    package var address: String
    /// What an older copy has; nothing is known of the present one that is not stored elsewhere.
    package var left: LeftSession
    /// What the server may retain beside an older copy.
    package var retained: RetainedTopics
    /// For how many seconds the server keeps the session without a connection; `nil` for ever. Only of the present one.
    package var expiry: UInt32?
    /// In seconds, 0 for none: when the server ends a silent connection; `nil` if it is not known. Only of the present one.
    package var keepAlive: UInt16?
    /// When the server ends an older copy; `nil` for never.
    package var endsAt: Timestamp?

    package init(
        _ address: String, left: LeftSession = LeftSession(), retained: RetainedTopics = RetainedTopics(),
        expiry: UInt32? = nil, keepAlive: UInt16? = nil, endsAt: Timestamp? = nil
    ) {
        self.address = address
        self.left = left
        self.retained = retained
        self.expiry = expiry
        self.keepAlive = keepAlive
        self.endsAt = endsAt
    }
}

/// The topics on which a server may hold retained messages of a session. They do not end with the session.
package struct RetainedTopics: Hashable, Sendable {
    package var publications: Set<String>
    package var presences: Set<String>

    package init(publications: Set<String> = [], presences: Set<String> = []) {
        self.publications = publications
        self.presences = presences
    }

    fileprivate mutating func formUnion(_ other: RetainedTopics) {
        publications.formUnion(other.publications)
        presences.formUnion(other.presences)
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
    /// Bytes of the filters of one older copy that are remembered, and of the topics. Messages for a filter that is
    /// forgotten are acknowledged, and no program gets them; a topic that is forgotten is not cleared.
    private static let maximumBytes = 1 << 20

    private var home: String?
    /// For how many seconds the home keeps the session without a connection; `nil` for ever.
    package private(set) var expiry: UInt32?
    /// The keep-alive of the last connection to the home, in seconds, 0 for none; `nil` if it is not known.
    package private(set) var keepAlive: UInt16?
    /// The one that was left first comes first.
    private var older: [SessionHome] = []

    /// - Parameter stored: an earlier value of ``stored``.
    package init(_ stored: [SessionHome] = []) {
        home = stored.first?.address
        expiry = stored.first?.expiry
        keepAlive = stored.first?.keepAlive
        older = Array(stored.dropFirst())
    }

    /// The server that has the session, then those with an older copy.
    package var stored: [SessionHome] {
        [home].compactMap { $0.map { SessionHome($0, expiry: expiry, keepAlive: keepAlive) } } + older
    }

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

    /// What a server at this address may retain since the session was there before; asked for before ``connected``, which
    /// forgets it.
    package func retained(at address: Endpoint) -> RetainedTopics {
        older.first { $0.address == address.description }?.retained ?? RetainedTopics()
    }

    /// On how many topics servers that the session has left may hold something, each counted for itself.
    package var leftTopics: Int {
        older.reduce(0) { $0 + $1.retained.publications.count + $1.retained.presences.count }
    }

    /// The server at this address has accepted the session.
    ///
    /// - Parameters:
    ///   - resumed: whether it continues the present session.
    ///   - isLost: whether it should have had the present session.
    ///   - left: what the server has that had the session until now, if it is another one.
    ///   - retained: what that server may retain.
    ///   - expiry: seconds for which the present server keeps the session; `UInt32.max` for ever.
    ///   - keepAlive: the connection's, in seconds; 0 for none.
    /// - Returns: whether anything has changed.
    @discardableResult
    package mutating func connected(
        to address: Endpoint, resumed: Bool, isLost: Bool = false, leaving left: LeftSession = LeftSession(),
        retaining retained: RetainedTopics = RetainedTopics(), expiry: UInt32 = .max,
        keepAlive: UInt16? = nil, at time: Timestamp = Timestamp(rawValue: 0)
    ) -> Bool {
        let before = self
        let address = address.description
        older.removeAll { $0.address == address && (address != home || $0.endsAt.map { $0 < time } ?? false) }
        // The caller has these now. One of several servers behind the address may keep what is deleted at another; but to
        // delete it each time could delete what somebody else has published there since.
        for index in older.indices where older[index].address == address { older[index].retained = RetainedTopics() }
        if !resumed, let home, home != address || isLost {
            let endsAt = self.expiry.map { time.advanced(by: Int64($0) * 1000) }
            // What this address retains is still the session's own to delete, and not something that it comes back to.
            let retained = home == address ? RetainedTopics() : retained
            leave(SessionHome(home, left: left, retained: retained, endsAt: endsAt))
        }
        home = address
        self.expiry = expiry == .max ? nil : expiry
        self.keepAlive = keepAlive
        return self != before
    }

    private mutating func leave(_ home: SessionHome) {
        var home = home
        if let earlier = older.first(where: { $0.address == home.address }) {
            home.left.unreleased.formUnion(earlier.left.unreleased)
            home.left.filters.formUnion(earlier.left.filters)
            home.retained.formUnion(earlier.retained)
        }
        home.left.filters = Self.limited(home.left.filters, by: \.string)
        home.retained.publications = Self.limited(home.retained.publications, by: \.self)
        home.retained.presences = Self.limited(home.retained.presences, by: \.self)
        older.removeAll { $0.address == home.address }
        older.append(home)
        older = older.suffix(Self.maximumOlder)
    }

    private static func limited<Element>(_ all: Set<Element>, by text: KeyPath<Element, String>) -> Set<Element> {
        var bytes = 0
        return all.filter {
            bytes += $0[keyPath: text].utf8.count
            return bytes <= maximumBytes
        }
    }
}
