/// Who wins when two devices have the same identity.
public enum KickStrategy: String, CaseIterable, Sendable {
    /// The newest connection wins, and the older one does not fight back.
    case takeOver = "take-over"
    /// A device that is online is not disturbed by one that comes back. Only the very first attempt after somebody
    /// asked for the session to connect takes over, and the next ones while the server accepts the session.
    case yield
}

/// What an attempt has to find out before it connects.
public enum Look: Hashable, Sendable {
    /// Whether another device has connected since this one was up.
    case forNewer
    /// Whether another device of the user is there.
    case forAny
}

/// Prevents two devices with the same identity from displacing each other endlessly, even if the server gives no
/// reason.
///
/// A leaf machine that knows how the last connections ended.
public struct Rivalry: Hashable, Sendable {
    public var strategy = KickStrategy.takeOver
    /// Whether the session is in a room, where it can see the other devices of its user.
    public var canLook = false
    /// How many connections in a row the server closed without a reason, before they were stable.
    private var suddenCloses = 0
    /// The most recent times at which the server closed, without a reason, a connection short enough for a returning
    /// rival to be the cause.
    private var recentCloses: [Instant] = []
    /// Whether the connection lost last is the last of these.
    private var isLastClose = false

    /// So many sudden closes in a row are not a coincidence.
    static let suspiciousCount = 3
    /// How long a sudden close is remembered.
    static let memory: Duration = .seconds(600)
    /// Remembering more would add nothing.
    private static let mostRemembered = 8
    /// The longest time to wait for another device.
    static let longestPatience: Duration = .seconds(16)

    public init() {}

    /// Forgets the past, because somebody asked to connect: it says nothing about what comes next.
    mutating func startedOver() {
        suddenCloses = 0
        recentCloses = []
    }

    /// Forgets the past, because something that was sent ended a connection, and may have ended those before it, too.
    mutating func explained() { startedOver() }

    /// Notes that a connection was lost.
    ///
    /// - Parameters:
    ///   - isStable: whether it lasted for `stable-after`.
    ///   - mayBeRival: whether it was short enough to be ended by a device that keeps coming back.
    /// - Returns: the reason, or the suspicion behind it.
    mutating func lost(because reason: Reason, isStable: Bool, mayBeRival: Bool, at now: Instant) -> Reason {
        recentCloses.removeAll { $0.duration(to: now) > Self.memory }
        let isSudden = Self.isSudden(reason)
        if isSudden, mayBeRival {
            recentCloses = recentCloses.suffix(Self.mostRemembered - 1) + [now]
        }
        isLastClose = isSudden && mayBeRival
        guard isSudden, !isStable else {
            suddenCloses = 0
            return reason
        }
        suddenCloses += 1
        return suddenCloses < Self.suspiciousCount ? reason : Reason(.displacedSuspected)
    }

    /// Forgets the last close, because the server now refuses connections: it was stopped, which explains the close. If
    /// another device had taken the session, the server would still be listening.
    mutating func serverWasDown() {
        suddenCloses = 0
        if isLastClose { _ = recentCloses.popLast() }
        isLastClose = false
    }

    /// The shortest time to stay away after a connection was lost: zero for the first three sudden closes in ten
    /// minutes, 2 s for the fourth, then doubling up to 16 s.
    ///
    /// A device that took over announces itself in the room once it is up. On a slow link that takes seconds, and a
    /// session that always returned sooner would keep throwing it out without ever seeing it.
    func patience(after reason: Reason) -> Duration {
        let excess = recentCloses.count - Self.suspiciousCount
        guard canLook, Self.isSudden(reason), excess > 0 else { return .zero }
        return min(.seconds(1 << excess), Self.longestPatience)
    }

    /// What the next attempt has to look for; `nil` when it need not look.
    ///
    /// The very first attempt after somebody asked to connect always takes over, so this is for all others.
    ///
    /// - Parameter mayHaveRival: whether the server has closed a connection that it had accepted, without a reason.
    func look(mayHaveRival: Bool) -> Look? {
        guard canLook else { return nil }
        return switch strategy {
        case .yield: .forAny
        case .takeOver: mayHaveRival ? .forNewer : nil
        }
    }

    /// Whether a look may show that this ending was another device's doing.
    func mayBeSeen(after reason: Reason) -> Bool { canLook && Self.isSudden(reason) }

    /// Whether this is how a server that gives no reason ends the older of two connections.
    public static func isSudden(_ reason: Reason) -> Bool {
        switch reason.code {
        case .serverClosed, .reset, .displacedSuspected: reason.serverCode == nil
        default: false
        }
    }
}
