/// The delay before the next attempt, by the cause of the last failure.
///
/// A leaf machine: the table's position, and the floor that a busy server raised.
struct Backoff: Hashable, Sendable {
    /// Who caused the failure; decides how the table's value is used.
    enum Cause: Hashable, Sendable {
        /// No answer, or nobody knows: the table's value as it stands.
        case unanswered
        /// The server or a host on the way to it answered or closed: jitter, or all its clients come back together.
        case remote
        /// The server said that it is busy or limits the rate: jitter above a floor that doubles.
        case busy

        init(_ reason: Reason) {
            switch reason.code {
            case .serverBusy, .rateLimited: self = .busy
            case .refused, .reset, .tlsFailed, .proxyFailed: self = .remote
            default: self = reason.code.group == .server ? .remote : .unanswered
            }
        }
    }

    private var position = 0
    private var floor: Duration?
    private var random: SplitMix64

    init(seed: UInt64) {
        random = SplitMix64(seed: seed)
    }

    /// Whether no delay was taken from the table since it was restarted.
    var isAtStart: Bool { position == 0 }

    mutating func restart() {
        position = 0
        floor = nil
    }

    /// Takes the next delay without waiting for it.
    mutating func advance() {
        position += 1
    }

    mutating func nextDelay(after cause: Cause, policy: ReconnectPolicy) -> Duration {
        precondition(!policy.delays.isEmpty, "a reconnect policy has at least one delay")
        let isFirst = position == 0
        let entry = policy.delays[min(position, policy.delays.count - 1)]
        position = min(position + 1, policy.delays.count)
        switch cause {
        case .unanswered:
            return entry
        case .remote:
            return jittered(isFirst ? policy.spread : entry, policy: policy, else: entry)
        case .busy:
            let least = floor ?? policy.busyFloor
            let longest = max(policy.delays.max() ?? least, policy.busyFloor)
            floor = min(least * 2, longest)
            return least + jittered(policy.spread, policy: policy, else: .zero)
        }
    }

    /// A random delay up to `limit`. The cap is in `limit`, before the randomness: capping a random value would bring
    /// everybody together again at the cap.
    private mutating func jittered(_ limit: Duration, policy: ReconnectPolicy, else exact: Duration) -> Duration {
        guard policy.spread > .zero, limit > .zero else { return exact }
        return .nanoseconds(Int64.random(in: 0...limit.nanoseconds, using: &random))
    }
}

/// At most one kick by network events in a second and six in a minute, so that a flapping link cannot become a storm.
struct KickLimiter: Hashable, Sendable {
    static let interval: Duration = .seconds(1)
    static let window: Duration = .seconds(60)
    static let kicksPerWindow = 6

    private var kicks: [Instant] = []

    /// When the next kick may happen: `now`, or later if there were too many.
    mutating func nextKick(at now: Instant) -> Instant {
        kicks.removeAll { $0.duration(to: now) >= Self.window }
        var allowed = now
        if let last = kicks.last { allowed = max(allowed, last.advanced(by: Self.interval)) }
        if kicks.count >= Self.kicksPerWindow {
            allowed = max(allowed, kicks[kicks.count - Self.kicksPerWindow].advanced(by: Self.window))
        }
        return allowed
    }

    mutating func kicked(at now: Instant) {
        kicks.append(now)
    }
}

/// The SplitMix64 generator (Steele, Lea, Flood 2014): small, seeded, and the same on every machine.
struct SplitMix64: RandomNumberGenerator, Hashable, Sendable {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
