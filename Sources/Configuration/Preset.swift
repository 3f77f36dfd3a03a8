package import SessionCore

/// The SDK whose documented timings a session starts from.
package enum Preset: String, CaseIterable, Sendable {
    case `default`, livekit, nexconn, agora, zego
}

extension SessionConfiguration {
    /// Sets the timings that an SDK documents: the section PRESETS of holdfast-session(5). What the SDK lacks is off.
    package mutating func adopt(_ preset: Preset) {
        self.preset = preset
        switch preset {
        case .default:
            break
        case .livekit:
            reconnect.delays = [0, 300, 1200, 2700, 4800, 7000, 7000, 7000, 7000, 7000].map { .milliseconds($0) }
            reconnect.spread = .zero
            reconnect.jitter = .seconds(1)
            reconnect.giveUpAttempts = 10
            reconnect.lostAfter = nil
            reconnect.watch = nil
            heartbeat.interval = .seconds(5)
            heartbeat.timeout = .seconds(15)
            presenceTimeout = .seconds(20)
            onSuspend = .keep
        case .nexconn:
            // The table is kept exactly: without a spread there is no randomness.
            reconnect.spread = .zero
            reconnect.lostAfter = nil
            reconnect.watch = nil
            onDemand = true
            idleTimeout = .seconds(120)
            onSuspend = .disconnect
        case .agora:
            reconnect.giveUpAfter = .seconds(20 * 60)
            presenceTimeout = .seconds(20)
            onSuspend = .keep
        case .zego:
            reconnect.giveUpAfter = .seconds(20 * 60)
            reconnect.lostAfter = nil
            heartbeat.interval = .seconds(30)
            heartbeat.timeout = .seconds(10)
            onSuspend = .keep
        }
    }

    /// When the session is down although nothing is wrong.
    package var rest: RestPolicy {
        var rest = RestPolicy()
        rest.idleTimeout = onDemand ? idleTimeout : nil
        rest.onSuspend = onSuspend
        return rest
    }
}
