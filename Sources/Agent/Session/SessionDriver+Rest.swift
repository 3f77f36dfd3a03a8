import Session
import SessionCore

// The host's sleep, and its clock.

extension SessionDriver {
    /// The host is about to sleep. Returns when the session is disconnected, if it disconnects at all.
    func hostWillSleep() async {
        take(.hostWillSleep)
        await untilDown()
    }

    /// Returns when the session is no longer disconnecting.
    func untilDown() async {
        await withCheckedContinuation { continuation in
            if session.state == .disconnecting {
                _ = programs.leaving.add { continuation.resume() }
            } else {
                continuation.resume()
            }
        }
    }

    /// The host is awake.
    ///
    /// - Parameter slept: how long the host slept; zero if it did not sleep after all.
    func hostWoke(slept: Duration) {
        if !isStopping { take(.hostWoke(slept: slept)) }
        // The end of a session has deadlines, too.
        rearm()
    }

    /// The host's clock was set.
    func clockStepped() {
        guard !isStopping else { return }
        checkClock()
        if ask({ $0.checkCredentialEnd() }) { run() }
    }
}
