/// The topic aliases that we use on one connection (3.3.2.3.4): they die with it [MQTT-3.3.2-7].
///
/// The first topics get one each until there are no more. What is stored always has its whole topic.
struct TopicAliases: Sendable {
    /// More would take memory for topics that are used only once.
    private static let limit = 1024
    /// An alias takes three bytes, so it saves nothing for a shorter topic.
    private static let shortestTopic = 4

    private let maximum: Int
    /// By the bytes of the topic: strings that look the same are equal, but topics are not (4.7.3).
    private var aliases: [TopicName: UInt16] = [:]

    /// - Parameter maximum: the server's Topic Alias Maximum; 0 means none.
    init(maximum: UInt16 = 0) {
        self.maximum = min(Int(maximum), Self.limit)
    }

    /// Replaces the topic of a PUBLISH that is about to be sent, or gives the server an alias for a new topic.
    ///
    /// - Parameter room: the bytes that the packet may still grow by.
    mutating func apply(to publish: inout Publish, room: Int) {
        guard publish.topic.utf8.count >= Self.shortestTopic else { return }
        let topic = TopicName(validated: publish.topic)
        if let alias = aliases[topic] {
            publish.topic = ""
            publish.properties.topicAlias = alias
        } else if aliases.count < maximum, room >= 4 {
            let alias = UInt16(aliases.count + 1)
            aliases[topic] = alias
            publish.properties.topicAlias = alias
        }
    }
}
