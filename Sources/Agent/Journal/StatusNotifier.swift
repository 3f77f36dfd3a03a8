import NIOCore
import Systemd

/// Sends the status line to systemd when it has changed. Making the line takes a look at all sessions, so it is made at
/// most once a second.
actor StatusNotifier {
    static let interval = TimeAmount.seconds(1)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let notifications: Notifications
    private var last = ""
    /// The RTT in the last line.
    private var shownRTT: Double?
    private var lastMade: NIODeadline?
    private var scheduled: Scheduled<Void>?

    init(notifications: Notifications, eventLoop: any EventLoop) {
        self.notifications = notifications
        self.eventLoop = eventLoop
    }

    /// - Parameter line: makes the line from the RTT that the last one shows, and says which it shows itself.
    func statusMayHaveChanged(_ line: @escaping @Sendable (_ shownRTT: Double?) -> (text: String, rtt: Double?)) {
        guard scheduled == nil else { return }
        let due = lastMade.map { $0 + Self.interval } ?? eventLoop.now
        scheduled = eventLoop.scheduleTask(deadline: due) { [weak self] in
            guard let self else { return }
            self.assumeIsolated { $0.send(line($0.shownRTT)) }
        }
    }

    private func send(_ line: (text: String, rtt: Double?)) {
        let (text, rtt) = line
        shownRTT = rtt
        scheduled = nil
        lastMade = eventLoop.now
        guard text != last else { return }
        last = text
        notifications.tell(.status(text))
    }
}
