package import ControlAPI
package import SessionCore

/// This session's own presence in its room: what it says, and when it has to be published again.
///
/// The others do not notice a short outage: the server keeps `online`, and drops the will when the client is back
/// before the will delay has passed. `online` is still published on every connection, because it carries the
/// connection's mark. The session waits for the server's answer where the others may have seen it leave: when the
/// server lost the session, after a start of the daemon, and when the will may have been published; with MQTT 3.1.1,
/// which has no will delay, after every outage.
///
/// Of two clients with one client identifier, the newer one is the one whose connection the other had not seen before;
/// the clocks of two hosts are never compared. `since`, which is remembered, distinguishes what this session said in an
/// earlier run of the daemon from what a twin of its device says.
package struct OwnPresence: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// Not known to be published. Can transition to: online.
        case unknown
        /// Published. Can transition to: away, unknown.
        case online(lastHeard: Instant)
        /// Published; the connection has been lost since. Can transition to: online, unknown.
        case away(lastHeard: Instant)
    }

    package let identity: Participant.Identity
    /// The names that the session had before, and under which the room may still have its presence.
    package let former: Set<Participant.Identity>
    /// The session's name.
    package let session: String
    package let willDelay: Duration
    /// When the session joined the room.
    package private(set) var since: Timestamp
    /// The latest values of `since` that the session has published or was about to publish, including the current one.
    /// They are stored before one is published.
    package private(set) var said: Set<Timestamp>
    /// Whether a server may have received the current `since`.
    private var wasTold = false
    private var state = State.unknown
    /// Whether the session's previous driver has published it, and this one has not connected yet.
    private var isInherited = false
    /// Whether the server waits before it publishes the will.
    private var isWillDelayed = true
    /// The mark of the current connection.
    package private(set) var mark: ConnectionMark?
    /// The quality that was last measured; `nil` if none has been.
    package var quality: Quality?
    /// The latest marks seen of the user's other connections.
    private var seen: [ConnectionMark] = []
    /// Those of them that were seen while this session was connected.
    private var seenWhileConnected: [ConnectionMark] = []

    /// No clock is set back this often without catching up with its old time in between.
    package static let mostRemembered = 32
    /// More than the connections of one user that can matter.
    private static let mostSeen = 64

    /// - Parameter said: the last value of `said`, possibly from an earlier run of the daemon.
    package init(
        identity: Participant.Identity, former: Set<Participant.Identity> = [], session: String, willDelay: Duration,
        since: Timestamp, said: Set<Timestamp> = []
    ) {
        self.identity = identity
        self.former = former
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

    /// Whether this session published the message on its current connection.
    package func isOwn(_ message: PresenceMessage?) -> Bool {
        guard let message else { return false }
        return message.state == .online && wasOwn(message) && message.connection == mark
    }

    /// Whether this session published the message, now or earlier, and under whatever name.
    package func wasOwn(_ message: PresenceMessage) -> Bool {
        guard let time = message.since, said.contains(time) else { return false }
        let isName = message.identity == identity || former.contains(message.identity)
        return isName && message.state == .online && message.session == session
    }

    // MARK: Other devices

    /// Notes a connection of the session's user that was seen in the room.
    ///
    /// - Parameter isConnected: whether this session was connected then.
    package mutating func noteSeen(_ message: PresenceMessage, isConnected: Bool = false) {
        guard let mark = message.connection, !wasOwn(message) else { return }
        Self.note(mark, in: &seen)
        if isConnected { Self.note(mark, in: &seenWhileConnected) }
    }

    private static func note(_ mark: ConnectionMark, in marks: inout [ConnectionMark]) {
        guard !marks.contains(mark) else { return }
        marks = marks.suffix(mostSeen - 1) + [mark]
    }

    /// Whether the message is from a connection with this session's client identifier that was not seen before.
    package func isRivalUnseen(_ message: PresenceMessage) -> Bool {
        guard let other = message.connection, message.state == .online, !wasOwn(message) else { return false }
        return other.client == mark?.client && !seen.contains(other)
    }

    /// Whether the message is from a connection that this session replaces: it has the same client identifier, and is of
    /// the same device, or one that this session has displaced, as a server has only one connection with a client
    /// identifier (3.1.4). What a device has said it need not remember: a backup from before then may have been restored,
    /// or the disk was full when it said it.
    package func replaces(_ message: PresenceMessage) -> Bool {
        guard let other = message.connection, other.client == mark?.client else { return false }
        return message.identity == identity || former.contains(message.identity) || seenWhileConnected.contains(other)
    }

    /// Whether the message, if the server has retained it, was left behind by a device that this session has displaced:
    /// a server has only one connection with a client identifier (3.1.4), and that is this session's.
    package func hasDisplaced(_ message: PresenceMessage) -> Bool {
        guard let other = message.connection, message.state == .online else { return false }
        let isOwnName = message.identity == identity || former.contains(message.identity)
        return !isOwnName && other.client == mark?.client
    }

    /// An attempt begins; its connection will have this mark.
    package mutating func willConnect(as mark: ConnectionMark) {
        self.mark = mark
    }

    /// For how long the others may still see this session after its connection ends without a goodbye; `nil` when it has
    /// no presence there.
    ///
    /// - Parameter keepAlive: the connection's, in seconds; 0 for none.
    package func visibility(keepAlive: UInt16) -> SessionMachine.Remains.Visibility? {
        state == .unknown ? nil : visibility(keepAlive: keepAlive, willDelay: isWillDelayed ? willDelay : .zero)
    }

    /// The same for a connection about which nothing else is known.
    package func longestVisibility(keepAlive: UInt16) -> SessionMachine.Remains.Visibility {
        visibility(keepAlive: keepAlive, willDelay: willDelay)
    }

    private func visibility(keepAlive: UInt16, willDelay: Duration) -> SessionMachine.Remains.Visibility {
        if keepAlive == 0 { return .unlimited }
        let latest = PresenceTiming.latest(keepAlive: keepAlive, willDelay: willDelay)
        return .limited(latest + SessionMachine.serverLateness)
    }

    /// The server has accepted the clearing.
    package mutating func cleared() {
        state = .unknown
    }

    /// Takes up what the session's previous driver has published.
    package mutating func inherit(_ standing: StandingPresence) {
        wasTold = true
        isInherited = true
        state = .away(lastHeard: standing.lastHeard)
    }

    /// When the server was last heard, if it keeps the presence for a while after the connection has ended; otherwise `nil`.
    package var lastHeard: Instant? {
        switch state {
        case .unknown: nil
        case .online(let lastHeard), .away(let lastHeard): isWillDelayed ? lastHeard : nil
        }
    }

    /// A first connect: nothing is known about what was published before, unless by the session's previous driver.
    package mutating func begin(at time: Timestamp) {
        guard !isInherited else { return }
        join(at: time)
        state = .unknown
    }

    private mutating func join(at time: Timestamp) {
        // A time that was never sent must not displace one that others may still have.
        if !wasTold { said.remove(since) }
        wasTold = false
        since = time
        while said.count >= Self.mostRemembered, let earliest = said.min() { said.remove(earliest) }
        said.insert(time)
    }

    /// The server accepted the connection.
    ///
    /// - Parameter isWillDelayed: whether the server delays this connection's will.
    /// - Returns: whether the session is restored only when the server has answered `online`.
    package mutating func connected(
        resumed: Bool, isWillDelayed: Bool = true, at now: Instant, time: Timestamp
    ) -> Bool {
        isInherited = false
        let wasWillDelayed = self.isWillDelayed
        self.isWillDelayed = isWillDelayed
        guard case .away(let lastHeard) = state else {
            wasTold = true
            return true
        }
        // The server counts from the end of the connection, which was after we last heard from it.
        if !wasWillDelayed || lastHeard.duration(to: now) >= willDelay {
            // The others saw us leave, and will see us join.
            join(at: time)
        } else if resumed {
            state = .online(lastHeard: now)
            return false
        }
        state = .unknown
        wasTold = true
        return true
    }

    /// The server has accepted `online`.
    package mutating func published(at now: Instant) {
        wasTold = true
        state = .online(lastHeard: now)
    }

    /// Something arrived from the server.
    package mutating func heard(at now: Instant) {
        if case .online(let lastHeard) = state { state = .online(lastHeard: max(lastHeard, now)) }
    }

    package mutating func connectionClosed() {
        if case .online(let lastHeard) = state { state = .away(lastHeard: lastHeard) }
    }
}
