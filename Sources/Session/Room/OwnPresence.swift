package import ControlAPI
package import SessionCore

/// This session's own presence in its room: what is said, and when it has to be said again.
///
/// The others see nothing of a short outage: the server keeps `online`, and drops the will when the client is back before
/// the will delay is over. `online` is published on every connection all the same, because it carries the connection's mark.
/// The session waits for the server's answer where the others may have seen it leave: when the server lost the session,
/// after a start of the daemon, and when the will may have been published; with MQTT 3.1.1, which has no will delay, after
/// every outage.
///
/// Of two clients with one client identifier the one whose connection the other had not seen before is the newer one; the
/// clocks of two hosts are never compared. What this session said in an earlier life is told from what a twin of its device
/// says by `since`, which is remembered.
package struct OwnPresence: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// Not known to be published. Can transition to: online.
        case unknown
        /// Published. Can transition to: away.
        case online(lastHeard: Instant)
        /// Published, and the connection was lost after this. Can transition to: online, unknown.
        case away(lastHeard: Instant)
    }

    package let identity: Participant.Identity
    /// The session's name.
    package let session: String
    package let willDelay: Duration
    /// Since when the session is in the room.
    package private(set) var since: RFC3339
    /// Since when it is there, now and as it said, or was about to say, before; the latest ones. To be remembered when it is
    /// published.
    package private(set) var said: Set<RFC3339>
    /// Whether a server may have heard of `since`.
    private var wasTold = false
    private var state = State.unknown
    /// Whether the server waits before it publishes the will.
    private var isWillDelayed = true
    /// The present connection's.
    package private(set) var mark: ConnectionMark?
    /// The last one that was measured; `nil` before.
    package var quality: Quality?
    /// Those of the user's other connections that were seen, the latest ones.
    private var seen: [ConnectionMark] = []

    /// No clock is set back so often without getting ahead of where it was.
    package static let mostRemembered = 32
    /// More of one user's connections than matter.
    private static let mostSeen = 64

    /// - Parameter said: what `said` was before, also in an earlier life of the daemon.
    package init(
        identity: Participant.Identity, session: String, willDelay: Duration, since: RFC3339, said: Set<RFC3339> = []
    ) {
        self.identity = identity
        self.session = session
        self.willDelay = willDelay
        self.since = since
        self.said = said.union([since])
    }

    package func message(_ state: PresenceMessage.State) -> PresenceMessage {
        PresenceMessage(
            identity: identity, state: state, since: since, session: session, connection: state == .online ? mark : nil,
            quality: state == .online ? quality : nil)
    }

    /// Whether the message is the one that this session publishes on its present connection.
    package func isOwn(_ message: PresenceMessage?) -> Bool {
        guard let message else { return false }
        return message.state == .online && wasOwn(message) && message.connection == mark
    }

    /// Whether this session published the message, now or before the clock was set back.
    package func wasOwn(_ message: PresenceMessage) -> Bool {
        guard let time = message.since, said.contains(time) else { return false }
        return message.identity == identity && message.state == .online && message.session == session
    }

    // MARK: Other devices

    /// A connection of the session's user was seen in the room.
    package mutating func noteSeen(_ message: PresenceMessage) {
        guard let mark = message.connection, !wasOwn(message), !seen.contains(mark) else { return }
        seen = seen.suffix(Self.mostSeen - 1) + [mark]
    }

    /// Whether the message is that of a connection with this session's client identifier that was not seen before.
    package func isRivalUnseen(_ message: PresenceMessage) -> Bool {
        guard let other = message.connection, message.state == .online, !wasOwn(message) else { return false }
        return other.client == mark?.client && !seen.contains(other)
    }

    /// An attempt begins, and with it what may become a connection.
    package mutating func willConnect(as mark: ConnectionMark) {
        self.mark = mark
    }

    /// For how long after the server heard this session last the others may see it; `nil` when it says nothing to them.
    ///
    /// - Parameter keepAlive: of the connection, in seconds.
    package func lingering(keepAlive: UInt16) -> Duration? {
        if state == .unknown { return nil }
        return .milliseconds(1500) * Int(keepAlive) + (isWillDelayed ? willDelay : .zero)
    }

    /// The server took the clearing.
    package mutating func cleared() {
        state = .unknown
    }

    /// A first connect: nothing is known of what was published before.
    package mutating func begin(at time: RFC3339) {
        join(at: time)
        state = .unknown
    }

    private mutating func join(at time: RFC3339) {
        // What no attempt came far enough to say must not push out what others may still have.
        if !wasTold { said.remove(since) }
        wasTold = false
        since = time
        while said.count >= Self.mostRemembered, let earliest = said.min() { said.remove(earliest) }
        said.insert(time)
    }

    /// The server accepted the connection.
    ///
    /// - Parameter isWillDelayed: whether this connection's will is.
    /// - Returns: whether the session is not back before the server has `online`.
    package mutating func connected(
        resumed: Bool, isWillDelayed: Bool = true, at now: Instant, time: RFC3339
    ) -> Bool {
        let wasWillDelayed = self.isWillDelayed
        self.isWillDelayed = isWillDelayed
        guard case .away(let lastHeard) = state else {
            wasTold = true
            return true
        }
        // The server counts from the connection's end, which was after the last that we heard of it.
        if !wasWillDelayed || lastHeard.duration(to: now) >= willDelay {
            // The others saw us leave, and see us join.
            join(at: time)
        } else if resumed {
            state = .online(lastHeard: now)
            return false
        }
        state = .unknown
        wasTold = true
        return true
    }

    /// The server took `online`.
    package mutating func published(at now: Instant) {
        wasTold = true
        state = .online(lastHeard: now)
    }

    /// Something came from the server.
    package mutating func heard(at now: Instant) {
        if case .online = state { state = .online(lastHeard: now) }
    }

    package mutating func connectionClosed() {
        if case .online(let lastHeard) = state { state = .away(lastHeard: lastHeard) }
    }
}
