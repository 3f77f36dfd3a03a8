/// When a session tries again, when it waits and when it gives up. The defaults are those of the configuration manual.
public struct ReconnectPolicy: Hashable, Sendable {
    /// The delays before the first, second, … attempt; the last one repeats. Never empty.
    public var delays: [Duration] = [
        .milliseconds(50), .milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2), .seconds(4), .seconds(8),
        .seconds(16), .seconds(32), .seconds(64),
    ]
    /// The range of the first, random delay after a remote cause; zero turns all randomness of delays off, except
    /// `jitter`.
    public var spread: Duration = .seconds(1)
    /// Each delay of the table is lengthened by a random time of at most this.
    public var jitter: Duration = .zero
    /// How long a connection must have lasted for the table to restart.
    public var stableAfter: Duration = .seconds(30)
    /// How long an outage lasts before it is reported as lost; `nil` means never.
    public var lostAfter: Duration? = .seconds(10)
    /// How long the session tries before it fails; `nil` means without a limit.
    public var giveUpAfter: Duration?
    /// After how many failed attempts the session fails; `nil` means never. Attempts without a path do not count.
    public var giveUpAttempts: Int?
    /// How often a waiting session knocks at an endpoint that did not answer, or refused; `nil` means never.
    public var watch: Duration? = .seconds(1)

    /// How often an attempt is made without any path, in case a kernel event was missed.
    public var safetyInterval: Duration = .seconds(300)
    /// How soon a session that is connected to a later endpoint knocks at the first one; doubles with each failed
    /// return, up to `returnAtMost`.
    public var returnAfter: Duration = .seconds(60)
    /// The longest pause before a return.
    public var returnAtMost: Duration = .seconds(15 * 60)
    /// The shortest delay after a server said that it is busy; doubles each time.
    public var busyFloor: Duration = .seconds(5)

    public init() {}
}

/// How long each part of an attempt may take.
public struct AttemptTimeouts: Hashable, Sendable {
    /// Fetching the credential. It guards against a file system that hangs; a helper command has a limit of its own.
    public var credential: Duration = .seconds(15)
    /// TCP and TLS, per address; also the limit for resolving the name.
    public var dial: Duration = .seconds(10)
    /// From CONNECT to CONNACK.
    public var authenticate: Duration = .seconds(10)
    /// From CONNACK until all subscriptions are acknowledged.
    public var restore: Duration = .seconds(30)
    /// How long the server may take to answer a message on a living connection. The session machine does not use it.
    public var acknowledge: Duration = .seconds(60)
    /// How long an explicit disconnect waits for unacknowledged messages.
    public var flush: Duration = .seconds(3)
    /// How long an explicit disconnect waits for the connection to close.
    public var goodbye: Duration = .seconds(2)

    public init() {}

    /// From an explicit disconnect until the connection is closed.
    package var longestGoodbye: Duration { flush + goodbye }
}

/// How soon to ask a silent connection for a sign of life, and how long the answer may take.
public struct HeartbeatPolicy: Hashable, Sendable {
    /// How long the connection may be silent in either direction before the server is asked for a sign of life.
    public var interval: Duration = .seconds(15)
    /// How long the server may take to answer.
    public var timeout: Duration = .seconds(5)
    /// The longest that a probe waits for its answer.
    public var probeTimeout: Duration = .seconds(3)

    public init() {}

    /// How long sent data may stay unacknowledged, however long round trips take: half the longest time in which the
    /// heartbeat notices a dead connection, so that one with data in flight is noticed earlier. It is longer than the
    /// hold, so that a held connection survives.
    public var deliveryTimeout: Duration { max(PathClass.hold + .seconds(1), (interval + timeout) / 2) }
}

/// When a session is down although nothing is wrong.
public struct RestPolicy: Hashable, Sendable {
    /// How long after its last use an on-demand session goes down; `nil` for one that is always up.
    public var idleTimeout: Duration?
    public var onSuspend: SuspendBehaviour = .disconnect

    public init() {}
}

/// What a session does when the host is about to sleep.
public enum SuspendBehaviour: String, CaseIterable, Sendable {
    /// It leaves gracefully, and connects again when the host wakes up.
    case disconnect
    /// Nothing; after waking, the server is asked whether the connection is alive.
    case keep
}
