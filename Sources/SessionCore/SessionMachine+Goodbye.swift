extension SessionMachine {
    /// What the server may hold of a session that went away without a goodbye that the server heard.
    public struct Remains: Hashable, Sendable {
        /// What an earlier run of the daemon announced.
        public struct Earlier: Hashable, Sendable {
            /// For how long others may see it.
            public var visibility: Visibility
            /// When that run's connection ended at the latest.
            public var connectionEnded: Instant

            /// Creates it from its parts.
            public init(visibility: Visibility, connectionEnded: Instant) {
                (self.visibility, self.connectionEnded) = (visibility, connectionEnded)
            }
        }

        public enum Visibility: Hashable, Sendable {
            /// For so long after the end of the connection, if the server ends a silent connection after 1.5 times the
            /// keep-alive (MQTT 5, 3.1.2.10) and at most `serverLateness` late.
            case limited(Duration)
            /// The server set no keep-alive (3.2.2.3.14), so it need not notice that the connection is gone.
            case unlimited
            /// The session is present in another room than that of its will, which nothing but a clearing ends.
            case untilCleared
        }

        /// For how long others in the room may see the session; `nil` if it is not announced there.
        public var visibility: Visibility?
        /// Whether the server has refused to clear the session's presence, so that nothing else ends it for certain.
        public var isPresenceKept = false
        /// How many publications the server was not told to delete.
        public var publications = 0
        /// What others in the room may see of an earlier run of the daemon. `nil` if it announced nothing that lasts, and
        /// once a server has accepted this run's connection.
        public var earlier: Earlier?
        /// When the last connection that a server had accepted ended on our side; `nil` if there was none. The server
        /// may have received any packet that was sent until then, whether or not an answer came: the kernel sends what
        /// is unacknowledged again as long as the connection is open.
        var connectionEnded: Instant?
    }

    /// The connection that a server has accepted.
    var accepted: Generation? {
        switch state {
        case .connected(let connected): connected.attempt.generation
        case .disconnecting(let disconnecting): disconnecting.attempt.generation
        case .trying(let trying):
            if case .attempting(let attempt, _, _, .some) = trying.activity { attempt.generation } else { nil }
        case .disconnected, .failed: nil
        }
    }

    /// Reports a goodbye that the server cannot have heard, or did not do everything for. The others in the room see the
    /// session until the server announces its end, and its publications until they are deleted.
    ///
    /// - Parameter end: when our end of the connection was closed; `nil` if there was none.
    mutating func noteUnheardGoodbye(since end: Instant?, at now: Instant) {
        guard reason.code == .userDisconnect else { return }
        if let left = leftBehind(since: end, at: now) {
            reason = Reason(.goodbyeUnheard, "\(Reason.Code.goodbyeUnheard.sentence): \(left)")
        } else if remains.isPresenceKept {
            reason.message +=
                "; its presence could not be cleared, so others in the room may see the session until that is cleared by hand"
        }
    }

    /// The reason that the next run of the daemon shows if this one is killed now, while it disconnects.
    package func reasonIfKilled(at now: Instant) -> Reason {
        let end = now.advanced(by: timeouts.longestGoodbye)
        guard reason.code == .userDisconnect, let left = leftBehind(since: end, at: now) else { return reason }
        return Reason(
            .goodbyeUnheard, "the daemon ended during a disconnect, and the server may not have received it: \(left)")
    }

    /// What the server may hold of the session, and for how long; `nil` if nothing. For a session that is down.
    package func leftBehind(at now: Instant) -> String? { leftBehind(since: remains.connectionEnded, at: now) }

    private func leftBehind(since end: Instant?, at now: Instant) -> String? {
        let consequences = [presenceLeft(since: end, at: now), publicationsLeft].compactMap(\.self)
        return consequences.isEmpty ? nil : consequences.joined(separator: "; ")
    }

    private func presenceLeft(since end: Instant?, at now: Instant) -> String? {
        let present = end.flatMap { end in remains.visibility.map { ($0, end) } }
        let earlier = remains.earlier.map { ($0.visibility, $0.connectionEnded) }
        var rest = Duration.zero
        for (visibility, end) in [present, earlier].compactMap(\.self) {
            switch visibility {
            case .unlimited:
                return "others in the room may see the session until the server notices that the connection is gone"
            case .untilCleared:
                return "others in a room may see the session until that is cleared: by its next connection, if the "
                    + "server lets it, or by hand"
            case .limited(let duration): rest = max(rest, now.duration(to: end.advanced(by: duration)))
            }
        }
        guard rest > .zero else { return nil }
        let seconds = (rest + .nanoseconds(999_999_999)).components.seconds
        return "others in the room may see the session for up to \(seconds) s from then on"
    }

    private var publicationsLeft: String? {
        switch remains.publications {
        case 0: nil
        case 1: "the server may keep 1 publication of the session until it hears a later disconnect"
        case let count: "the server may keep \(count) publications of the session until it hears a later disconnect"
        }
    }
}
