import NIOCore

/// Keeps asking the service manager for more time while the daemon waits for the disk: migrating a large store at the
/// start, or writing it out at the end, must not be cut off.
///
/// The loop must not be the one that does the work.
struct TimeExtension {
    /// How often more time is requested, after the first request, which comes within a second: the host's or a drop-in's
    /// limit may be short. The time requested must be longer than this.
    static let interval = TimeAmount.seconds(10)
    static let requested = Duration.seconds(30)
    /// More than any store needs. After that, the unit's own limit ends the daemon.
    static let longest = TimeAmount.hours(1)

    private let timer: RepeatedTask

    init(on eventLoop: any EventLoop, every interval: TimeAmount = Self.interval, ask: @escaping @Sendable () -> Void) {
        let end = eventLoop.now + Self.longest
        timer = eventLoop.scheduleRepeatedTask(initialDelay: min(interval, .seconds(1)), delay: interval) { timer in
            if eventLoop.now < end { ask() } else { timer.cancel() }
        }
    }

    func end() { timer.cancel() }
}
