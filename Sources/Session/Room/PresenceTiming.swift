/// When the others in a room learn that a session is gone: after the presence timeout, however the connection was lost.
///
/// A server that notices the loss at once waits for the will delay. One that hears nothing first waits for one and a
/// half times the keep-alive (MQTT 5, 3.1.2.10), so both together must make up the timeout:
///
///     silence ──── 1.5 × keep-alive ────▶ noticed ──── will delay ────▶ told
package struct PresenceTiming: Hashable, Sendable {
    /// In seconds, as in CONNECT.
    package let keepAlive: UInt16
    /// In whole seconds, as in CONNECT.
    package let willDelay: Duration

    /// - Parameters:
    ///   - timeout: how long until the others are told; with zero the will is not delayed and the keep-alive stays as
    ///     it is.
    ///   - interval: the interval of the heartbeat.
    package init(timeout: Duration, heartbeat interval: Duration) {
        let ownKeepAlive = Self.keepAlive(interval)
        guard timeout > .zero else {
            (keepAlive, willDelay) = (ownKeepAlive, .zero)
            return
        }
        keepAlive = min(ownKeepAlive, max(1, UInt16(clamping: timeout.components.seconds / 4)))
        let rest = max(.zero, timeout - .milliseconds(1500) * Int(keepAlive))
        // A loss that the server notices at once must not be reported much too early.
        let seconds = rest.components.seconds
        let isShort = Duration.seconds(seconds) < timeout * 3 / 5 && rest > .seconds(seconds)
        willDelay = .seconds(isShort ? seconds + 1 : seconds)
    }

    /// Returns when the others are told at the latest, if the server has this keep-alive, in seconds.
    package static func latest(keepAlive: UInt16, willDelay: Duration) -> Duration {
        .milliseconds(1500) * Int(keepAlive) + willDelay
    }

    /// Returns the keep-alive for a heartbeat interval. After one silent interval a ping is sent, well within the one
    /// and a half intervals that the server waits.
    package static func keepAlive(_ interval: Duration) -> UInt16 {
        let (seconds, attoseconds) = interval.components
        return max(1, UInt16(clamping: attoseconds > 0 ? seconds + 1 : seconds))
    }
}
