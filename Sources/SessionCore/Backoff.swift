/// The delay before the next attempt, by the cause of the last failure.
///
/// A leaf machine: the table's position, and the floor that a busy server raised.
struct Backoff: Hashable, Sendable {
    /// Who caused the failure; decides how the table's value is used.
    enum Cause: Hashable, Sendable {
        /// The server did not answer, or the cause is unknown: the table's value as it stands.
        case unanswered
        /// The server, or a host on the way to it, answered or closed the connection: a random delay, because all its
        /// clients would otherwise return at the same moment.
        case remote
        /// The server asked for patience: a random delay above a floor that stays.
        case slow
        /// The server said that it is busy or limits the rate: a random delay above a floor that doubles.
        case floor
        /// Like `floor`, but starting at twice the floor.
        case doubledFloor

        /// Whether the server must be left alone for a while, whatever the network does.
        var hasFloor: Bool { self == .slow || self == .floor || self == .doubledFloor }
    }

    private var position = 0
    /// The position at which the present outage began.
    private var outageStart = 0
    private var floor: Duration?
    private var random: SplitMix64

    init(seed: UInt64) {
        random = SplitMix64(seed: seed)
    }

    /// Whether no delay has been taken from the table since it was restarted.
    var isAtStart: Bool { position == 0 }

    mutating func restart() {
        position = 0
        outageStart = 0
        floor = nil
    }

    /// Notes that a connection was lost.
    mutating func outageBegan() {
        outageStart = position
    }

    /// Discounts the attempts made while the server was down, because they say nothing about how it treats connections.
    /// A server that is restarted several times is therefore not avoided for longer and longer, while one that accepts
    /// and closes still costs a step of the table each time.
    mutating func serverCameBack() {
        position = min(position, outageStart + 1)
    }

    /// Takes the next delay without waiting for it.
    mutating func advance() {
        position += 1
    }

    /// - Parameter longest: replaces longer entries of the table; `nil`: none.
    mutating func nextDelay(after cause: Cause, within longest: Duration? = nil, policy: ReconnectPolicy) -> Duration {
        precondition(!policy.delays.isEmpty, "a reconnect policy has at least one delay")
        let isFirst = position == 0
        let planned = policy.delays[min(position, policy.delays.count - 1)]
        let entry = min(planned, longest ?? planned)
        position = min(position + 1, policy.delays.count)
        switch cause {
        case .unanswered:
            return entry + random(upTo: policy.jitter)
        case .remote:
            let spread = isFirst ? policy.spread : entry
            return (policy.spread > .zero ? random(upTo: spread) : entry) + random(upTo: policy.jitter)
        case .slow:
            let range = max(policy.spread, entry - policy.busyFloor)
            return policy.busyFloor + random(upTo: policy.spread > .zero ? max(range, policy.jitter) : policy.jitter)
        case .floor, .doubledFloor:
            let least = floor ?? (cause == .floor ? policy.busyFloor : policy.busyFloor * 2)
            let longest = max(policy.delays.max() ?? least, policy.busyFloor)
            floor = min(least * 2, longest)
            return least + random(upTo: max(policy.spread, policy.jitter))
        }
    }

    /// Returns a random duration up to `limit`, which already includes the cap: capping the random value would bring
    /// all clients together again at the cap.
    mutating func random(upTo limit: Duration) -> Duration {
        limit > .zero ? .nanoseconds(Int64.random(in: 0...limit.nanoseconds, using: &random)) : .zero
    }
}

/// Network events bring forward at most one attempt per second and six per minute, so that a flapping link cannot cause
/// a storm. Attempts that an answered knock brings forward are counted among them.
struct HasteLimiter: Hashable, Sendable {
    static let interval: Duration = .seconds(1)
    static let window: Duration = .seconds(60)
    static let countPerWindow = 6

    private var hastened: [Instant] = []

    /// When the next attempt may be brought forward: `now`, or later if there were too many.
    mutating func next(at now: Instant) -> Instant {
        forget(at: now)
        var allowed = now
        if let last = hastened.last { allowed = max(allowed, last.advanced(by: Self.interval)) }
        if hastened.count >= Self.countPerWindow {
            allowed = max(allowed, hastened[hastened.count - Self.countPerWindow].advanced(by: Self.window))
        }
        return allowed
    }

    mutating func hastened(at now: Instant) {
        forget(at: now)
        hastened.append(now)
    }

    private mutating func forget(at now: Instant) {
        hastened.removeAll { $0.duration(to: now) >= Self.window }
    }
}

extension Duration {
    /// Up to a fifth shorter or longer, so that many clients that repeat the same thing do not fall into step.
    func aboutThis(using random: inout SplitMix64) -> Duration {
        .nanoseconds(Int64.random(in: (self * 0.8).nanoseconds...(self * 1.2).nanoseconds, using: &random))
    }
}
