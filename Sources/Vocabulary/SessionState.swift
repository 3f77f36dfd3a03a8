/// The states of a session, as status, journal and control socket name them.
public enum SessionState: String, Codable, Sendable, CaseIterable {
    /// Not connected, and nothing is tried. First and final state.
    case disconnected
    /// Trying to connect; the session has not been up since the last explicit connect.
    case connecting
    case connected
    /// Trying to connect again after the connection was lost.
    case reconnecting
    /// Going down: flushing, then saying goodbye.
    case disconnecting
    /// Gave up, or met a terminal reason. Stays until an explicit connect, a new configuration, a new credential
    /// or, after an invalid certificate, another network.
    case failed
}

/// What a connecting or reconnecting session is doing.
public enum Phase: String, Codable, Sendable, CaseIterable {
    case waitingForNetwork = "waiting-for-network"
    case waiting, resolving, dialing, securing, authenticating, restoring
}

/// Why a connected session may not really be connected. The status shows it until that is known.
public enum Doubt: String, Codable, Sendable, CaseIterable {
    /// The connection is kept for a while although its path is gone.
    case pathLost = "path-lost"
    /// The network changed, and the server was asked for a sign of life.
    case probing
}

/// Whether the server is expected to still have the session.
public enum ReconnectMode: String, Codable, Sendable, CaseIterable {
    /// Resume: nothing has to be set up again.
    case quick
    /// The server lost the session, or its state is unusable: everything is set up again.
    case full
}

/// How good a connection is, for people and for programs that adapt to it.
public enum Quality: String, Codable, Sendable, CaseIterable, Comparable {
    case excellent, good, poor
    /// Nothing comes back: the path is gone, or the server does not answer a heartbeat as it used to.
    case lost

    private var rank: Int {
        switch self {
        case .lost: 0
        case .poor: 1
        case .good: 2
        case .excellent: 3
        }
    }

    public static func < (left: Quality, right: Quality) -> Bool { left.rank < right.rank }
}
