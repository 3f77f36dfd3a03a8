internal import CSystemd
internal import Glibc

/// Tells the service manager how the daemon is doing: sd_notify(3).
///
/// Every call does nothing when the daemon was not started by systemd (`NOTIFY_SOCKET` is not set).
public struct Notifier: Sendable {
    /// What sd_notify(3) returns: more than 0 if the service manager has the notification in its queue, 0 without one, or
    /// an `errno`, negative.
    public typealias Delivery = Int32

    /// The service manager ignores a datagram of more than 4096 bytes, so a status is truncated well before that.
    static let longestStatus = 1024

    public init() {}

    /// READY=1: the configuration is valid and the daemon serves. Also ends a reload.
    @discardableResult
    public func ready(status: String? = nil) -> Delivery {
        send(["READY=1"] + (status.map { [Self.assignment(ofStatus: $0)] } ?? []))
    }

    /// STATUS=: the line that `systemctl status` shows. Control characters become spaces; 1024 bytes at most.
    @discardableResult
    public func status(_ text: String) -> Delivery {
        send([Self.assignment(ofStatus: text)])
    }

    /// STOPPING=1: the daemon has begun to shut down.
    @discardableResult
    public func stopping() -> Delivery {
        send(["STOPPING=1"])
    }

    /// RELOADING=1 with MONOTONIC_USEC: the daemon reads its configuration again; ``ready(status:)`` ends that.
    @discardableResult
    public func reloading() -> Delivery {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        let microseconds = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000
        return send(["RELOADING=1", "MONOTONIC_USEC=\(microseconds)"])
    }

    /// EXTEND_TIMEOUT_USEC=: starting or stopping takes at least this much longer, counted from now. Call it again before
    /// that time is over.
    ///
    /// - Parameter status: what takes so long; `nil` leaves the status as it is.
    @discardableResult
    public func extendTimeout(_ time: Duration, status: String? = nil) -> Delivery {
        let microseconds = time.components.seconds * 1_000_000 + time.components.attoseconds / 1_000_000_000_000
        return send(["EXTEND_TIMEOUT_USEC=\(microseconds)"] + (status.map { [Self.assignment(ofStatus: $0)] } ?? []))
    }

    /// WATCHDOG=1: the daemon is alive.
    @discardableResult
    public func watchdog() -> Delivery {
        send(["WATCHDOG=1"])
    }

    /// The longest time that may pass between two calls of ``watchdog()`` before systemd kills the daemon; call it
    /// twice as often. `nil` when the unit has no WatchdogSec=, or it is not meant for this process.
    public var watchdogInterval: Duration? {
        var microseconds: UInt64 = 0
        guard sd_watchdog_enabled(0, &microseconds) > 0 else { return nil }
        return .microseconds(Int64(clamping: microseconds))
    }

    private func send(_ assignments: [String]) -> Delivery {
        sd_notify(0, assignments.joined(separator: "\n"))
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
