import NIOCore
import SessionCore

// These replace `Task.sleep`, whose timers are libdispatch's: see `GlobalJobs`.
extension EventLoop {
    /// Returns when the time has passed, or when the loop ends, if that is earlier.
    func pause(for duration: Duration) async {
        await withCheckedContinuation { continuation in
            scheduleTask(in: .nanoseconds(duration.nanoseconds)) {}
                .futureResult.whenComplete { _ in continuation.resume() }
        }
    }

    /// Returns when the time has passed.
    ///
    /// - Throws: an error at once when the task is cancelled.
    func sleep(for duration: Duration) async throws {
        let timer = scheduleTask(in: .nanoseconds(duration.nanoseconds)) {}
        try await withTaskCancellationHandler {
            try await timer.futureResult.get()
        } onCancel: {
            timer.cancel()
        }
    }
}
