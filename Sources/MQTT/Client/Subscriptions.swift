import NIOCore

/// Which subscriptions are wanted, and which the server holds.
///
/// The durable part is the set of filters that the server *may* hold: a filter enters it before its SUBSCRIBE is sent
/// and leaves it after its UNSUBACK, or with the server's session. So what is no longer wanted is found and removed, no
/// matter when a connection was cut off or the daemon was killed. What was confirmed is kept in memory only, and only as
/// long as it is certain that the server still has the same session; otherwise everything that is wanted is subscribed
/// again, which does no harm.
struct Subscriptions: Sendable {
    /// What is still to be asked for on this connection.
    enum Need: Sendable {
        /// `again`: the server may hold it, and must not send retained messages a second time.
        case subscribe(TopicFilter, again: Bool)
        case unsubscribe(TopicFilter)
    }

    typealias Wanted = (filter: TopicFilter, subscription: Subscription)

    /// A packet that waits for its answer.
    enum Request: Sendable {
        /// What is asked for, what was wanted at that time, and the filters that the server did not hold before.
        case subscribe([Subscription], wanted: [Wanted], new: Set<TopicFilter>)
        case unsubscribe([TopicFilter])

        var isSubscribe: Bool { if case .subscribe = self { true } else { false } }
    }

    /// Changed by `want` and `unwant` only.
    var wanted: [TopicFilter: Subscription] = [:]
    /// The filters of `wanted` by their Subscription Identifiers, two for each.
    var identified: [UInt32: Set<TopicFilter>] = [:]
    /// What the server may hold; durable.
    var remembered: Set<TopicFilter>
    /// What the server holds for certain, with the options that are wanted.
    var confirmed: Set<TopicFilter> = []
    /// The filters for which a SUBSCRIBE was granted that made the server send the retained messages, with their first
    /// identifier. It has held them since.
    var retainedSent: Set<TopicFilter> = []
    /// The wanted filters that are being asked for only to have retained messages sent once more.
    var repeated: Set<TopicFilter> = []
    var needs = CircularBuffer<Need>(initialCapacity: 1)
    var requests: [PacketID: Request] = [:]
    /// The last request for each filter; answers to earlier ones do not count.
    var latest: [TopicFilter: PacketID] = [:]
    /// What has to be answered before the session is restored; `nil` when it is.
    var restoring: Set<TopicFilter>?
    /// Requests that were written on this connection.
    var sent: Set<PacketID> = []
    /// The server's last word about each wanted filter, and why filters were set aside that are not wanted any more.
    var answers: [TopicFilter: Answer] = [:]
    /// Filters that are not wanted, although the server may hold them: it ended connections when it was asked to remove
    /// them. It is asked again at this time.
    var left: [TopicFilter: Timestamp] = [:]
    /// Why filters are asked for one by one, to find the one that the server ends the connection for; `nil` if they are
    /// not.
    var isolation: Isolation.Symptom?
    /// How many connections in a row ended before everything was answered for, perhaps because of what was asked for.
    var endsUnanswered = 0

    /// Returns the identifiers that are free now: requests are not part of the session (rule 6).
    mutating func connectionClosed() -> [PacketID] {
        let identifiers = Array(requests.keys)
        requests.removeAll()
        latest.removeAll()
        sent.removeAll()
        needs.removeAll()
        repeated.removeAll()
        restoring = nil
        return identifiers
    }

    /// Returns whether there was anything to forget.
    mutating func sessionLost() -> Bool {
        confirmed.removeAll()
        retainedSent.removeAll()
        left.removeAll()
        guard !remembered.isEmpty else { return false }
        remembered.removeAll()
        return true
    }

    /// Finds what has to be asked for on a new connection, in a stable order.
    ///
    /// - Parameters:
    ///   - resumed: whether the session is continued; in a new one, the server sends what it retains.
    ///   - isCertain: whether what is confirmed is there.
    ///   - isProbable: whether it is there unless the server was restarted in an older state. Then the session does not
    ///     wait for the answers.
    mutating func restore(resumed: Bool, isCertain: Bool, isProbable: Bool) {
        let probable = resumed && isProbable ? confirmed : []
        if !resumed || !isCertain { confirmed.removeAll() }
        let stale = remembered.filter { wanted[$0] == nil && left[$0] == nil }
        if stale.contains(where: isSetAside) { isolate(because: .end) }
        let missing = wanted.keys.filter { !confirmed.contains($0) && !isSetAside($0) }
        for filter in stale.sorted(by: Self.isBefore) { needs.append(.unsubscribe(filter)) }
        for filter in missing.sorted(by: Self.isBefore) {
            needs.append(.subscribe(filter, again: resumed && remembered.contains(filter)))
        }
        restoring = Set(missing).subtracting(probable)
    }

    /// The filters that the server was asked for and has not answered.
    var suspects: Set<TopicFilter> {
        var suspects: Set<TopicFilter> = []
        for id in sent {
            switch requests[id] {
            case .subscribe(_, let wanted, _)?: suspects.formUnion(wanted.map(\.filter))
            case .unsubscribe(let filters)?: suspects.formUnion(filters)
            case nil: break
            }
        }
        return suspects
    }

    /// The wanted filters that the server ended a connection for, in a stable order.
    var setAside: [(filter: TopicFilter, answer: ServerAnswer)] {
        answers.compactMap { filter, answer in
            guard wanted[filter] != nil, case .refused(let refusal) = answer, refusal.endedConnections else {
                return nil
            }
            return (filter, refusal.answer)
        }.sorted { Self.isBefore($0.0, $1.0) }
    }

    var isolates: Bool { isolation != nil }

    mutating func isolate(because symptom: Isolation.Symptom) {
        if isolation == nil || symptom == .end { isolation = symptom }
    }

    static func isBefore(_ left: TopicFilter, _ right: TopicFilter) -> Bool {
        left.string.utf8.lexicographicallyPrecedes(right.string.utf8)
    }

    /// Notes that a filter was answered for.
    mutating func answered(_ filter: TopicFilter) {
        restoring?.remove(filter)
    }

    /// Returns `true` once, when everything was answered for.
    mutating func takeRestored() -> Bool {
        guard let restoring, restoring.isEmpty else { return false }
        self.restoring = nil
        return true
    }

    /// Ends the search for a filter that the server ends connections for, once the server has answered everything.
    mutating func endSearch() {
        guard restoring == nil, requests.isEmpty, needs.isEmpty else { return }
        isolation = nil
        endsUnanswered = 0
    }
}
