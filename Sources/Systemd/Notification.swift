internal import CSystemd
internal import Glibc

/// What the service manager is told: sd_notify(3).
///
/// Of each kind the newest replaces what was added before, so one datagram has all of it, however much is added.
public struct Notification: Hashable, Sendable {
    /// How far the daemon has got in its life.
    private enum Phase: Hashable {
        case ready
        /// - Parameter since: CLOCK_MONOTONIC, in microseconds.
        case reloading(since: UInt64)
        case stopping
    }

    /// The service manager ignores a datagram of more than 4096 bytes, so a status is truncated well before that.
    static let longestStatus = 1024

    private var phase: Phase?
    /// The assignment.
    private var status: String?
    private var isAlive = false
    /// In microseconds.
    private var timeExtension: Int64?

    /// Tells nothing.
    public init() {}

    /// READY=1: the configuration is valid and the daemon serves. Also ends a reload.
    public static var ready: Notification { Notification(phase: .ready) }

    /// STOPPING=1: the daemon has begun to shut down.
    public static var stopping: Notification { Notification(phase: .stopping) }

    /// RELOADING=1 with MONOTONIC_USEC: the daemon begins at this moment to read its configuration again; ``ready`` ends
    /// that.
    public static func reloading() -> Notification {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        return Notification(phase: .reloading(since: UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000))
    }

    /// STATUS=: the line that `systemctl status` shows. Control characters become spaces; 1024 bytes at most.
    public static func status(_ text: String) -> Notification {
        var notification = Notification()
        notification.status = assignment(ofStatus: text)
        return notification
    }

    /// WATCHDOG=1: the daemon is alive.
    public static var alive: Notification {
        var notification = Notification()
        notification.isAlive = true
        return notification
    }

    /// EXTEND_TIMEOUT_USEC=: starting or stopping takes at least this much longer, counted from when it is sent. Tell it
    /// again before that time is over.
    ///
    /// - Parameter status: what takes so long.
    public static func timeExtension(_ time: Duration, status: String) -> Notification {
        var notification = Notification.status(status)
        notification.timeExtension =
            time.components.seconds * 1_000_000 + time.components.attoseconds / 1_000_000_000_000
        return notification
    }

    private init(phase: Phase) {
        self.phase = phase
    }

    public var isEmpty: Bool { self == Notification() }

    /// Adds what is told later.
    public mutating func add(_ newer: Notification) {
        if let phase = newer.phase {
            self.phase = phase
            // What it was for is over.
            timeExtension = nil
        }
        status = newer.status ?? status
        isAlive = isAlive || newer.isAlive
        timeExtension = newer.timeExtension ?? timeExtension
    }

    /// The datagram.
    var text: String {
        var assignments: [String] = []
        switch phase {
        case .ready: assignments.append("READY=1")
        case .reloading(let since): assignments += ["RELOADING=1", "MONOTONIC_USEC=\(since)"]
        case .stopping: assignments.append("STOPPING=1")
        case nil: break
        }
        if let status { assignments.append(status) }
        if isAlive { assignments.append("WATCHDOG=1") }
        if let timeExtension { assignments.append("EXTEND_TIMEOUT_USEC=\(timeExtension)") }
        return assignments.joined(separator: "\n")
    }

    /// Makes the assignment. A newline would begin another one, and NUL would end the text, so no control character
    /// gets through.
    static func assignment(ofStatus text: String) -> String {
        var result = "STATUS="
        var length = 0
        for scalar in text.unicodeScalars {
            let isControl = scalar.properties.generalCategory == .control
            length += isControl ? 1 : scalar.utf8.count
            if length > longestStatus { break }
            result.unicodeScalars.append(isControl ? " " : scalar)
        }
        return result
    }
}
