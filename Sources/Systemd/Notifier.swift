internal import CSystemd
internal import Glibc

/// The service manager, for a daemon that it has started and that tells it how it is doing.
public enum Notifier {
    /// What sd_notify(3) returns: more than 0 if the service manager has the notification in its queue, 0 without one, or
    /// an `errno`, negative.
    public typealias Delivery = Int32

    /// Whether the daemon was started by a service manager that wants to be told: `NOTIFY_SOCKET` is set.
    public static var isWanted: Bool { getenv("NOTIFY_SOCKET") != nil }

    /// Sends the notification. Blocks for as long as the service manager's queue is full: libsystemd has no other way.
    @discardableResult
    public static func send(_ notification: Notification) -> Delivery {
        sd_notify(0, notification.text)
    }

    /// The longest time that may pass between two notifications that the daemon is ``Notification/alive`` before systemd
    /// kills it; send them twice as often. `nil` when the unit has no WatchdogSec=, or it is not meant for this process.
    public static var watchdogInterval: Duration? {
        var microseconds: UInt64 = 0
        guard sd_watchdog_enabled(0, &microseconds) > 0 else { return nil }
        return .microseconds(Int64(clamping: microseconds))
    }
}
