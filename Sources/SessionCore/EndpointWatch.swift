/// The outcome of a bare TCP connect to an endpoint.
public enum KnockAnswer: Hashable, Sendable, CaseIterable {
    /// Something listens there.
    case answered
    /// The host is there, and nothing listens.
    case refused
    /// Nothing came back, or the endpoint's name could not be resolved.
    case silent
}

/// Decides when a session that waits for its next attempt knocks at the endpoints that did not answer or refused. A
/// long delay protects the server; it must not make people wait when the fault was somewhere else and is gone.
///
/// A leaf machine. It never knocks at a server that answered with a reason.
struct EndpointWatch: Hashable, Sendable {
    private enum Knock: Hashable, Sendable {
        case none, out, answered
    }

    private struct Entry: Hashable, Sendable {
        /// `refused` or `silent`.
        var last: KnockAnswer
        let since: Instant
        var nextKnock: Instant
        var knock = Knock.none
    }

    /// The interval between knocks in the first minute; `nil` means that there are none.
    private let interval: Duration?
    private var entries: [EndpointIndex: Entry] = [:]
    /// Whether the session waits for so long that knocks are made.
    private(set) var isWaiting = false
    private var random: SplitMix64

    /// Shorter waits are not interrupted.
    static let shortWait: Duration = .seconds(1)

    init(interval: Duration?, seed: UInt64) {
        self.interval = interval
        random = SplitMix64(seed: seed)
    }

    /// How often it looks at the least; `nil` if it does not look.
    var slowestPace: Duration? { interval.map { max($0, .seconds(15)) } }

    /// Forgets all endpoints, because the session is up or starts over.
    mutating func reset() {
        entries = [:]
        isWaiting = false
    }

    mutating func failed(_ endpoint: EndpointIndex, because code: Reason.Code, at now: Instant) {
        guard interval != nil else { return }
        switch code {
        // A name that cannot be resolved says nothing about the server either.
        case .dialTimeout, .unreachable, .dnsFailed: note(endpoint, .silent, at: now)
        case .refused: note(endpoint, .refused, at: now)
        default: entries[endpoint] = nil
        }
    }

    /// The attempt at the endpoint was abandoned before it answered.
    mutating func abandoned(_ endpoint: EndpointIndex, at now: Instant) {
        if interval != nil, entries[endpoint] == nil { note(endpoint, .silent, at: now) }
    }

    private mutating func note(_ endpoint: EndpointIndex, _ answer: KnockAnswer, at now: Instant) {
        var entry = entries[endpoint] ?? Entry(last: answer, since: now, nextKnock: now)
        entry.last = answer
        entries[endpoint] = entry
    }

    /// The session waits for its next attempt: schedules the knocks. A wait that only becomes shorter or longer keeps those
    /// that it has.
    mutating func waits(until: Instant, at now: Instant) {
        guard !isWaiting else { return }
        isWaiting = now.duration(to: until) > Self.shortWait
        for endpoint in entries.keys.sorted() { schedule(endpoint, at: now) }
    }

    mutating func waitEnded() {
        isWaiting = false
        for endpoint in entries.keys { entries[endpoint]?.knock = .none }
    }

    private mutating func schedule(_ endpoint: EndpointIndex, at now: Instant) {
        guard let interval, let entry = entries[endpoint] else { return }
        let elapsed = entry.since.duration(to: now)
        let pace: Duration =
            switch elapsed {
            case ..<(.seconds(60)): interval
            case ..<(.seconds(600)): max(interval, .seconds(5))
            default: slowestPace ?? interval
            }
        entries[endpoint]?.nextKnock = now.advanced(by: pace.aboutThis(using: &random))
    }

    /// When the next knock is due, among the endpoints that have a path.
    func deadline(_ paths: [Path?]) -> Instant? {
        guard isWaiting else { return nil }
        return entries.lazy.filter { paths[$0.key.rawValue] != nil && $0.value.knock != .answered }
            .map(\.value.nextKnock).min()
    }

    /// Where to knock now. A knock without an answer is abandoned when the next one begins.
    mutating func due(_ paths: [Path?], at now: Instant) -> [EndpointIndex] {
        guard isWaiting else { return [] }
        var due: [EndpointIndex] = []
        for (endpoint, entry) in entries.sorted(by: { $0.key < $1.key })
        where paths[endpoint.rawValue] != nil && entry.knock != .answered && now >= entry.nextKnock {
            entries[endpoint]?.knock = .out
            schedule(endpoint, at: now)
            due.append(endpoint)
        }
        return due
    }

    /// - Returns: what the endpoint did before, if it answers now.
    mutating func knocked(_ endpoint: EndpointIndex, _ answer: KnockAnswer) -> KnockAnswer? {
        guard isWaiting, let entry = entries[endpoint], entry.knock == .out else { return nil }
        if answer == .answered {
            entries[endpoint]?.knock = .answered
            return entry.last
        }
        entries[endpoint]?.knock = .none
        // The path to a server that is not up yet has healed: all the server's clients are waiting for it.
        if answer == .refused { entries[endpoint]?.last = .refused }
        return nil
    }

    /// Drops the knock, because the path to the endpoint changed and a connection that answered is no longer of use.
    mutating func pathChanged(to endpoint: EndpointIndex) {
        entries[endpoint]?.knock = .none
    }

    /// Whether the connection of a knock is still needed.
    func wants(_ endpoint: EndpointIndex) -> Bool {
        guard isWaiting, let entry = entries[endpoint] else { return false }
        return entry.knock != .none
    }

    func hasAnswer(_ endpoint: EndpointIndex) -> Bool { entries[endpoint]?.knock == .answered }
}

/// When a session that is connected to a later endpoint tries to return to the first one.
struct ReturnPacing: Hashable, Sendable {
    private let first: Duration
    private let longest: Duration
    private var failures = 0
    private var random: SplitMix64

    init(_ policy: ReconnectPolicy, seed: UInt64) {
        first = policy.returnAfter
        longest = policy.returnAtMost
        random = SplitMix64(seed: seed)
    }

    mutating func reset() {
        failures = 0
    }

    /// Notes that the first endpoint answered, but the session could not stay there.
    mutating func failed() {
        failures += 1
    }

    mutating func next() -> Duration {
        min(first * (1 << min(failures, 10)), longest).aboutThis(using: &random)
    }
}
