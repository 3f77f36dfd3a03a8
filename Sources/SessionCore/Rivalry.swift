/// Who wins when two devices have the same identity.
public enum KickStrategy: String, CaseIterable, Sendable {
    /// The newest connection wins, and the older one does not fight back.
    case takeOver = "take-over"
    /// Who is online is not disturbed by one that comes back.
    case yield
}

/// What an attempt has to find out before it connects.
public enum Look: Hashable, Sendable {
    /// Whether another device of the user came after this one.
    case forNewer
    /// Whether another device of the user is there.
    case forAny
}

/// Sees to it that two devices of one identity do not kick each other for ever, also where the server gives no reason.
///
/// A leaf machine: what is known of how connections ended.
public struct Rivalry: Hashable, Sendable {
    public var strategy = KickStrategy.takeOver
    /// Whether the session is in a room, where it can see the other devices of its user.
    public var canLook = false
    /// How many connections in a row the server closed without a reason, before they were stable.
    private var suddenCloses = 0

    /// So many sudden closes are no accident.
    static let suspiciousCount = 3

    public init() {}

    /// Somebody connected the session: what was before says nothing about what comes.
    mutating func startedAnew() {
        suddenCloses = 0
    }

    /// A connection was lost.
    ///
    /// - Parameter isStable: whether it lasted for `stable-after`.
    /// - Returns: the reason, or the suspicion that stands behind it.
    mutating func lost(because reason: Reason, isStable: Bool) -> Reason {
        guard Self.isSudden(reason.code), !isStable else {
            suddenCloses = 0
            return reason
        }
        suddenCloses += 1
        return suddenCloses < Self.suspiciousCount ? reason : Reason(.displacedSuspected)
    }

    /// What the next attempt has to look for; `nil` when it need not.
    ///
    /// A first connect always takes over, so this is only for reconnecting.
    ///
    /// - Parameters:
    ///   - cause: why the connection was lost.
    ///   - last: why the last attempt failed, or the same.
    func look(cause: ReasonCode, last: ReasonCode) -> Look? {
        guard canLook else { return nil }
        switch strategy {
        case .yield: return .forAny
        case .takeOver: return Self.isSudden(cause) || Self.isSudden(last) ? .forNewer : nil
        }
    }

    /// The same for a first connect, which took over when the server accepted it, and was closed before it was up.
    func lookAfterAcceptance(last: ReasonCode) -> Look? {
        canLook && Self.isSudden(last) ? .forNewer : nil
    }

    /// How a server that gives no reason ends the older one of two connections.
    public static func isSudden(_ code: ReasonCode) -> Bool {
        code == .serverClosed || code == .reset || code == .displacedSuspected
    }
}
