// Subscription Identifiers (3.8.2.1.2): which of our filters the server sends a message for.
//
// Where filters overlap, a server may send a message once for each of them [3.3.4]. Without identifiers each copy would
// match every filter, and a program would get messages twice because of what another program subscribes to.

extension TopicFilter {
    /// 1 to 268,435,455, a hash of the filter's bytes (FNV-1a): the same after a restart, for what the server has
    /// queued meanwhile. Two filters may have the same one; every copy is then for each of them that matches its topic.
    var subscriptionID: UInt32 {
        var hash: UInt32 = 2_166_136_261
        for byte in string.utf8 { hash = (hash ^ UInt32(byte)) &* 16_777_619 }
        return max(1, (hash >> 28) ^ (hash & 0x0FFF_FFFF))
    }
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

    mutating func want(_ subscription: Subscription, for filter: TopicFilter) {
        wanted[filter] = subscription
        identified[filter.subscriptionID, default: []].insert(filter)
    }

    mutating func unwant(_ filter: TopicFilter) {
        answers[filter] = nil
        guard wanted.removeValue(forKey: filter) != nil else { return }
        let id = filter.subscriptionID
        identified[id]?.remove(filter)
        if identified[id]?.isEmpty == true { identified[id] = nil }
    }
}

extension MQTTClientMachine.InboundMessage {
    /// Whether the server sent the message for this filter.
    public func isFor(_ filter: TopicFilter) -> Bool {
        filter.matches(topic: topic) && filters?.contains(filter) != false
    }
}
