/// How much a session publishes, counting what is on its way to the disk. Of several publications with one topic, the last
/// one counts. Programs may put thousands a second, so nothing is ever counted again.
struct PublicationSizes: Sendable {
    private struct Sizes: Sendable {
        /// Of the publication that the session has.
        var own: Int?
        /// Of those on their way to the disk, in order.
        var arriving: [Int] = []

        var last: Int { arriving.last ?? own ?? 0 }
        var isEmpty: Bool { own == nil && arriving.isEmpty }
    }

    private var topics: [String: Sizes] = [:]
    private var bytes = 0

    /// Whether the session has a publication with this topic.
    func has(_ topic: String) -> Bool { topics[topic]?.own != nil }

    /// Whether there is a topic that looks the same and has other bytes: strings are equal if they look the same.
    func hasLookalike(of topic: String) -> Bool {
        topics.index(forKey: topic).map { !topics.keys[$0].utf8.elementsEqual(topic.utf8) } ?? false
    }

    /// How many publications there would be with one more, and how many bytes they would have.
    func total(with publication: Publication) -> (count: Int, bytes: Int) {
        guard let known = topics[publication.topic] else { return (topics.count + 1, bytes + publication.size) }
        return (topics.count, bytes - known.last + publication.size)
    }

    mutating func put(_ publication: Publication) {
        change(publication.topic) { $0.own = publication.size }
    }

    mutating func remove(_ topic: String) {
        change(topic) { $0.own = nil }
    }

    mutating func arrive(_ publication: Publication) {
        change(publication.topic) { $0.arriving.append(publication.size) }
    }

    mutating func arrived(_ publication: Publication) {
        change(publication.topic) { sizes in
            if let index = sizes.arriving.firstIndex(of: publication.size) { sizes.arriving.remove(at: index) }
        }
    }

    private mutating func change(_ topic: String, _ body: (inout Sizes) -> Void) {
        var sizes = topics[topic] ?? Sizes()
        let before = sizes.last
        body(&sizes)
        bytes += sizes.last - before
        topics[topic] = sizes.isEmpty ? nil : sizes
    }
}
