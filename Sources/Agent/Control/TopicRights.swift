import Configuration
import MQTT
import Session

/// The topics that one user's programs may use in a session, as `[topics]` in the session's file says.
struct TopicRights {
    enum Use: String {
        case publish = "publish to"
        case subscribe = "subscribe to"
    }

    /// `nil`: all topics.
    private let publish: [TopicFilter]?
    private let subscribe: [TopicFilter]?

    static let all = TopicRights(publish: nil, subscribe: nil)

    init(publish: [TopicFilter]?, subscribe: [TopicFilter]?) {
        self.publish = publish
        self.subscribe = subscribe
    }

    /// Compares topics as the program writes them, since what a relative one stands for changes with the room.
    func permit(_ use: Use, _ text: String) -> Bool {
        guard let filters = use == .publish ? publish : subscribe else { return true }
        let isRelative = Room.isRelative(text)
        func isComparable(_ filter: TopicFilter) -> Bool {
            isRelative == Room.isRelative(filter.string) || filter.string == "#"
        }
        switch use {
        case .publish:
            return filters.contains { isComparable($0) && $0.matches(topic: text) }
        case .subscribe:
            // A text that is not a filter is refused later, with the reason.
            guard let wanted = try? TopicFilter(text) else { return true }
            return filters.contains { isComparable($0) && $0.covers(wanted) }
        }
    }

    /// Whether there are topics that it may not publish to.
    var narrowsPublishing: Bool { publish != nil }

    /// Whether a message that was accepted from any program may be sent again.
    ///
    /// - Parameters:
    ///   - topic: its topic, as the server has it.
    ///   - resolve: returns the same of a filter that may be relative to the room.
    func permitRetry(of topic: String, _ resolve: (String) -> String?) -> Bool {
        guard let publish else { return true }
        return publish.contains { filter in
            guard let text = resolve(filter.string), let resolved = try? TopicFilter(text) else { return false }
            return resolved.matches(topic: topic)
        }
    }
}

extension AccessPolicy {
    func rights(of peer: Peer, by topics: TopicConfiguration) -> TopicRights {
        if isMaster(peer) { return .all }
        func filters(_ grants: [TopicConfiguration.Grant]) -> [TopicFilter]? {
            if grants.isEmpty { return nil }
            return grants.filter { includes([$0.who], peer) }.map(\.filter)
        }
        return TopicRights(publish: filters(topics.publish), subscribe: filters(topics.subscribe))
    }
}
