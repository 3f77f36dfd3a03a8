import Vocabulary

/// What the server has made of a wanted filter.
public enum SubscriptionState: Hashable, Sendable {
    /// The server has not been asked yet, or has not answered, or has lost the session since it did.
    case pending
    /// In force, with this QoS at most.
    case granted(QoS)
    case refused(SubscriptionRefusal)
}

/// Why this client has no subscription to a filter.
public struct SubscriptionRefusal: Hashable, Sendable {
    /// A refusal.
    public var answer: ServerAnswer
    /// Since when it is refused for this reason.
    public var since: Timestamp
    /// When it is asked for again, unless a reconnect or a new subscription to it comes first. If it ended connections,
    /// a reconnect does not count, nor does a subscription within ten minutes.
    public var asksAgainAt: Timestamp
    /// Whether the server ended connections while it was asked for this. A reconnect then does not ask for it, or
    /// every connection would end.
    public var endedConnections = false

    /// Milliseconds until a refused filter is asked for again while the connection stays.
    static let patience: Int64 = 600_000
    /// The same if asking may cost a connection each time. It is still tried again, because the connections may have
    /// ended for another reason.
    static let longPatience: Int64 = 3_600_000
    var patience: Int64 { endedConnections ? Self.longPatience : Self.patience }
}

extension MQTTClientMachine {
    /// The filters that are wanted, each with the QoS that is asked for and what the server has made of it, in the order of
    /// their bytes.
    public var subscriptionStates: [(filter: TopicFilter, qos: QoS, state: SubscriptionState)] {
        subscriptions.wanted.sorted { Subscriptions.isBefore($0.key, $1.key) }.map { filter, wanted in
            (filter, wanted.qos, subscriptions.state(of: filter))
        }
    }

    /// The QoS that is asked for with a filter; `nil` if the filter is not wanted.
    public func wantedQoS(of filter: TopicFilter) -> QoS? { subscriptions.wanted[filter]?.qos }

    /// What the server has made of a filter; `nil` if the filter is not wanted.
    public func subscriptionState(of filter: TopicFilter) -> SubscriptionState? {
        subscriptions.wanted[filter] == nil ? nil : subscriptions.state(of: filter)
    }
}

extension Subscriptions {
    /// The server's last word about a filter.
    enum Answer: Hashable, Sendable {
        case granted(QoS)
        case refused(SubscriptionRefusal)
    }

    func state(of filter: TopicFilter) -> SubscriptionState {
        switch answers[filter] {
        case .granted(let qos)?: confirmed.contains(filter) ? .granted(qos) : .pending
        case .refused(let refusal)?: .refused(refusal)
        case nil: .pending
        }
    }

    /// Notes an answer.
    ///
    /// - Returns: whether it differs from the one before.
    mutating func note(
        _ answer: ServerAnswer, of filter: TopicFilter, endedConnections: Bool = false, at now: Timestamp
    ) -> Bool {
        guard wanted[filter] != nil else { return false }
        if let code = answer.code, !code.isError {
            let answer = Answer.granted(QoS(rawValue: code.rawValue) ?? .atMostOnce)
            return answers.updateValue(answer, forKey: filter) != answer
        }
        var refusal = SubscriptionRefusal(
            answer: answer, since: now, asksAgainAt: now, endedConnections: endedConnections)
        refusal.asksAgainAt = now.advanced(by: refusal.patience)
        guard case .refused(let before)? = answers[filter], answer.repeats(before.answer) else {
            answers[filter] = .refused(refusal)
            return true
        }
        refusal.since = before.since
        answers[filter] = .refused(refusal)
        return false
    }

    /// Whether the server ended connections for it.
    func isSetAside(_ filter: TopicFilter) -> Bool {
        if case .refused(let refusal)? = answers[filter] { refusal.endedConnections } else { false }
    }

    /// The server's refusal of a filter, if a new subscription does not ask for it again: the server ended connections
    /// for it not long ago, and a program that subscribes again and again would end one connection after the other.
    func refusalInForce(for filter: TopicFilter, at now: Timestamp) -> SubscriptionRefusal? {
        guard case .refused(let refusal)? = answers[filter], refusal.endedConnections,
            now.rawValue < refusal.asksAgainAt.rawValue - refusal.patience + SubscriptionRefusal.patience
        else { return nil }
        return refusal
    }

    /// A program asks for the filter, so the server is asked as well. The refusal holds until it answers, so
    /// that the same answer is no news.
    mutating func takeFromAside(_ filter: TopicFilter) {
        guard case .refused(var refusal)? = answers[filter], refusal.endedConnections else { return }
        // If the connection ends again, this filter is known to be the reason.
        isolate(because: .end)
        refusal.endedConnections = false
        answers[filter] = .refused(refusal)
    }

    /// Leaves a filter that is not wanted at the server for a while, because asking to remove it ends connections.
    mutating func leave(_ filter: TopicFilter, at now: Timestamp) {
        guard remembered.contains(filter) else { return }
        left[filter] = now.advanced(by: SubscriptionRefusal.longPatience)
    }

    /// Takes the filters that were left at the server and are due to be removed, in a stable order.
    mutating func takeLeft(at now: Timestamp) -> [TopicFilter] {
        let due = left.filter { now >= $0.value }.keys.sorted(by: Self.isBefore)
        for filter in due { left[filter] = nil }
        return due
    }

    /// Takes the filters that were refused and are due to be asked for again, in a stable order.
    mutating func takeDue(at now: Timestamp) -> [TopicFilter] {
        var due: [TopicFilter] = []
        for (filter, answer) in answers {
            guard case .refused(var refusal) = answer, now >= refusal.asksAgainAt else { continue }
            guard wanted[filter] != nil else {
                answers[filter] = nil
                continue
            }
            refusal.asksAgainAt = now.advanced(by: refusal.patience)
            answers[filter] = .refused(refusal)
            due.append(filter)
        }
        return due.sorted(by: Self.isBefore)
    }

    /// Shifts the times, because the wall clock was set forward by this many milliseconds.
    mutating func clockStepped(by milliseconds: Int64) {
        for (filter, answer) in answers {
            guard case .refused(var refusal) = answer else { continue }
            refusal.since = refusal.since.advanced(by: milliseconds)
            refusal.asksAgainAt = refusal.asksAgainAt.advanced(by: milliseconds)
            answers[filter] = .refused(refusal)
        }
        left = left.mapValues { $0.advanced(by: milliseconds) }
    }
}
