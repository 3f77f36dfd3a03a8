/// Notices from a connection's own traffic that nothing gets through any more, before the heartbeat does.
///
/// It wants to be asked only while something was sent and nothing was heard since: an idle connection costs no wake-up.
/// What is looked at then is the kernel's view. A server that takes its time, and even one that has stopped, acknowledges
/// what arrives, and so does a link that is slow; a path that is dead does not.
struct DeliveryWatch: Hashable, Sendable {
    /// What a look at the connection says.
    enum Verdict: Hashable, Sendable {
        /// Something comes back, or nothing has to.
        case living
        /// What was sent is unacknowledged for longer than round trips take.
        case silent
        /// … and for so long, sent again and again, that it will not be acknowledged any more.
        case dead
    }

    /// How long a silence must last at the least to be more than a queue on the way that fills up.
    static let deadAfter: Duration = .seconds(4)

    /// When the first of what is unacknowledged, as far as is known, was sent.
    private var since: Instant?
    /// Whether the last look found that nothing comes back.
    private(set) var isSilent = false
    /// When the kernel is to be asked; `nil` while nothing is expected.
    private(set) var deadline: Instant?

    /// How long an acknowledgement takes at the most, as far as is known, but no less than a second.
    static func patience(roundTrip: Duration?, variation: Duration?) -> Duration {
        max(.seconds(1), (roundTrip ?? .zero) * 8 + (variation ?? .zero) * 4)
    }

    mutating func sent(at now: Instant, patience: Duration) {
        guard since == nil else { return }
        since = now
        deadline = now.advanced(by: patience)
    }

    /// Bytes came from the server, or there is nobody who could look: nothing is expected until more is sent.
    mutating func heard() {
        since = nil
        deadline = nil
        isSilent = false
    }

    /// What was on its way may have been lost with the path, and is sent again now, with the full time to arrive.
    mutating func restarted(at now: Instant) {
        guard since != nil else { return }
        since = now
        deadline = now.advanced(by: .seconds(1))
    }

    mutating func measured(_ measurement: TransportMeasurement, at now: Instant) -> Verdict {
        guard let since else { return .living }
        guard measurement.unacknowledged > 0 else {
            heard()
            return .living
        }
        let waited = since.duration(to: now)
        let silence = min(waited, measurement.sinceAcknowledgement ?? waited)
        let patience = Self.patience(roundTrip: measurement.roundTrip, variation: measurement.variation)
        let limit = max(Self.deadAfter, patience)
        // The clocks of the kernel are coarser than ours; too early by that much, it is looked at once more.
        func lookAgain(after wait: Duration) { deadline = now.advanced(by: max(wait, .milliseconds(100))) }
        switch silence {
        case ..<patience:
            isSilent = false
            lookAgain(after: patience - silence)
            return .living
        case limit... where measurement.retries > 0:
            return .dead
        default:
            isSilent = true
            lookAgain(after: silence < limit ? limit - silence : .seconds(1))
            return .silent
        }
    }
}

extension SessionMachine {
    /// Looks at what the kernel says about what was sent.
    mutating func judgeDelivery(
        _ generation: Generation, _ measurement: TransportMeasurement, at now: Instant, into actions: inout [Action]
    ) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else { return }
        // Without a path nothing can be acknowledged, and the hold decides.
        guard connected.heldUntil == nil else {
            connected.delivery.restarted(at: now)
            state = .connected(connected)
            return
        }
        switch connected.delivery.measured(measurement, at: now) {
        case .living:
            state = .connected(connected)
        case .silent:
            connected.quality.nothingCameBack()
            state = .connected(connected)
        case .dead:
            actions.append(.abandon(generation))
            lose(connected, because: Reason(.unacknowledged), at: now, into: &actions)
        }
    }
}

extension SessionMachine.Connected {
    var patience: Duration { DeliveryWatch.patience(roundTrip: roundTrip, variation: jitter) }
}
