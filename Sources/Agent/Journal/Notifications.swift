import NIOCore
import Systemd
import Transport

/// Tells the service manager how the daemon is doing.
///
/// Each notification is sent on a thread: the call waits while the service manager does not read, and nothing else may
/// wait for that. What is told meanwhile is sent as one notification, with the newest of each kind.
final class Notifications: Sendable {
    private struct State {
        var unsent = Notification()
        var isSending = false
    }

    private let eventLoop: any EventLoop
    private let isWanted = Notifier.isWanted
    private let calls: BlockingCalls
    private let state: NIOLoopBoundBox<State>

    init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
        calls = BlockingCalls(eventLoop: eventLoop)
        state = NIOLoopBoundBox.makeBoxSendingValue(State(), eventLoop: eventLoop)
    }

    /// Whether the service manager has not taken the last notification yet. Belongs to the loop.
    var isSending: Bool { state.value.isSending }

    /// Returns at once. May be called on any thread.
    func tell(_ notification: Notification) {
        guard isWanted else { return }
        if eventLoop.inEventLoop {
            add(notification)
        } else {
            eventLoop.execute { self.add(notification) }
        }
    }

    private func add(_ notification: Notification) {
        state.value.unsent.add(notification)
        if !state.value.isSending { send() }
    }

    private func send() {
        let notification = state.value.unsent
        state.value.unsent = Notification()
        state.value.isSending = true
        calls.run("the service manager", within: nil) { Notifier.send(notification) }.assumeIsolated().whenComplete {
            result in
            self.state.value.isSending = false
            let hasNews = !self.state.value.unsent.isEmpty
            let delivery = (try? result.get()) ?? -1
            if delivery < 0 {
                // It is sent with the next.
                var unsent = notification
                unsent.add(self.state.value.unsent)
                self.state.value.unsent = unsent
            }
            if hasNews { self.send() }
        }
    }
}
