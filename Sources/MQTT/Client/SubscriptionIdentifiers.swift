// Subscription Identifiers (3.8.2.1.2): which of our filters the server sends a message for.
//
// Where filters overlap, a server may send a message once for each of them [3.3.4]. Without identifiers each copy would
// match every filter, and a program would get messages twice because of what another program subscribes to.
//
// A filter has two identifiers. A program that subscribes to a filter that the server has granted before wants the
// retained messages, and only another SUBSCRIBE makes the server send them. Durable consumers of the filter have had
// them, so that SUBSCRIBE has the second identifier: a retained message with it is not collected again. One with the
// first still is, however late it comes. Without identifiers, nothing tells the two apart, and both are collected.

extension TopicFilter {
    /// 1 to 268,435,455, a hash of the filter's bytes (FNV-1a): the same after a restart, for what the server has
    /// queued meanwhile. Two filters may have the same one; every copy is then for each of them that matches its topic.
    var subscriptionID: UInt32 { Self.identifier(of: hash) }

    /// The same for a SUBSCRIBE whose only purpose is that the server sends retained messages once more.
    var repeatedSubscriptionID: UInt32 {
        // As if the filter ended with U+0000, which no filter contains.
        Self.identifier(of: Self.hash(0, after: hash))
    }

    private var hash: UInt32 { string.utf8.reduce(2_166_136_261) { Self.hash($1, after: $0) } }

    private static func hash(_ byte: UInt8, after hash: UInt32) -> UInt32 { (hash ^ UInt32(byte)) &* 16_777_619 }

    private static func identifier(of hash: UInt32) -> UInt32 { max(1, (hash >> 28) ^ (hash & 0x0FFF_FFFF)) }
}

extension Subscriptions {
    /// The filters for which a message was sent, whether they match its topic or not. `nil` if the server does not say,
    /// or names only filters that are no longer wanted; the message is then for every filter that matches.
    func filters(of publish: Publish) -> Set<TopicFilter>? {
        guard publish.properties.subscriptionIDs.count != 1 else {
            return identified[publish.properties.subscriptionIDs[0]]
        }
        var filters: Set<TopicFilter> = []
        for id in publish.properties.subscriptionIDs { filters.formUnion(identified[id] ?? []) }
        return filters.isEmpty ? nil : filters
    }

    /// The same for durable consumers. With our Retain As Published, which is 0, a retained message always answers a
    /// SUBSCRIBE (3.3.1.3), and they do not need the answer to one that was repeated for a program.
    func collectedFilters(of publish: Publish) -> Set<TopicFilter>? {
        let filters = filters(of: publish)
        guard publish.retain else { return filters }
        return filters?.filter { publish.properties.subscriptionIDs.contains($0.subscriptionID) }
    }

    /// Notes that a filter is asked for now, or on the next connection.
    ///
    /// - Parameter isLive: whether only a live subscriber needs the retained messages.
    mutating func noteRepeat(of filter: TopicFilter, isLive: Bool) {
        if isLive, retainedSent.contains(filter) {
            repeated.insert(filter)
        } else {
            // A durable consumer may need them, also if a live subscriber asks before the server has answered.
            retainedSent.remove(filter)
            repeated.remove(filter)
        }
    }

    /// Notes the server's answer to the last SUBSCRIBE for a filter.
    mutating func noteRetained(of filter: TopicFilter, _ asked: Subscription, _ code: ReasonCode) {
        repeated.remove(filter)
        if code.isError {
            // There may be a gap until it is granted, and what is retained in it is new to everybody.
            retainedSent.remove(filter)
        } else if asked.retainHandling == .sendOnSubscribe {
            retainedSent.insert(filter)
        }
    }

    mutating func want(_ subscription: Subscription, for filter: TopicFilter) {
        wanted[filter] = subscription
        for id in [filter.subscriptionID, filter.repeatedSubscriptionID] { identified[id, default: []].insert(filter) }
    }

    mutating func unwant(_ filter: TopicFilter) {
        // A program that unsubscribes and subscribes again would end one connection after the other.
        if !isSetAside(filter) { answers[filter] = nil }
        retainedSent.remove(filter)
        repeated.remove(filter)
        guard wanted.removeValue(forKey: filter) != nil else { return }
        for id in [filter.subscriptionID, filter.repeatedSubscriptionID] {
            identified[id]?.remove(filter)
            if identified[id]?.isEmpty == true { identified[id] = nil }
        }
    }
}

extension MQTTClientMachine.InboundMessage {
    /// Whether the server sent the message for this filter.
    public func isFor(_ filter: TopicFilter) -> Bool {
        filter.matches(topic: topic) && filters?.contains(filter) != false
    }
}
