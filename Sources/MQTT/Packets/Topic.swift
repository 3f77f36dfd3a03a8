/// Why a string is not a topic name or a topic filter (4.7).
public enum InvalidTopic: Error, Hashable, Sendable, CaseIterable {
    case empty
    /// More than 65,535 UTF-8 bytes [MQTT-4.7.3-3].
    case tooLong
    /// U+0000 [MQTT-4.7.3-2].
    case containsNull
    /// U+0001 to U+001F or U+007F to U+009F, for which a server may close the connection (1.5.4).
    case containsControlCharacter
    /// A Unicode noncharacter such as U+FFFE, for which a server may close the connection (1.5.4).
    case containsNonCharacter
    /// `+` or `#` in a topic name [MQTT-4.7.1-1].
    case wildcardInName
    /// `+` that is not a whole level, or `#` that is not the whole last level of a filter.
    case misplacedWildcard
    /// `$share/` without a share name and a filter after it, or with a wildcard in the name (4.8.2).
    case invalidShare
}

extension InvalidTopic: CustomStringConvertible {
    /// A sentence without the final full stop.
    public var description: String {
        switch self {
        case .empty: "a topic has at least one character (MQTT 5, 4.7.3)"
        case .tooLong: "a topic has at most 65,535 UTF-8 bytes (MQTT 5, 4.7.3)"
        case .containsNull: "a topic does not contain U+0000 (MQTT 5, 4.7.3)"
        case .containsControlCharacter:
            "a topic does not contain control characters: a server may close the connection for one (MQTT 5, 1.5.4)"
        case .containsNonCharacter:
            "a topic does not contain noncharacters such as U+FFFE: a server may close the connection for one "
                + "(MQTT 5, 1.5.4)"
        case .wildcardInName: "a topic name does not contain the wildcards + and # (MQTT 5, 4.7.1)"
        case .misplacedWildcard: "+ stands for one whole level and # for the whole end of a filter (MQTT 5, 4.7.1)"
        case .invalidShare: "a shared subscription is $share/NAME/FILTER, without wildcards in NAME (MQTT 5, 4.8.2)"
        }
    }
}

/// A valid topic name (4.7): what a message is published to. Compared byte by byte, never normalized.
public struct TopicName: Sendable {
    /// As it was given; valid.
    public let string: String

    /// - Throws: what is wrong with the string; ``validate(_:)`` has the rules.
    public init(_ string: String) throws(InvalidTopic) {
        try Self.validate(string)
        self.string = string
    }

    /// - Parameter validated: a topic that was found valid before.
    init(validated: String) {
        string = validated
    }

    /// Throws unless the string is 1...65,535 UTF-8 bytes without U+0000, control characters, noncharacters, `+` and
    /// `#`.
    public static func validate(_ string: String) throws(InvalidTopic) {
        try validateTopicText(string)
        guard !containsWildcard(string) else { throw .wildcardInName }
    }

    static func containsWildcard(_ string: String) -> Bool {
        string.utf8.contains { $0 == Character8.plus || $0 == Character8.number }
    }
}

extension TopicName: Hashable, CustomStringConvertible {
    public static func == (left: TopicName, right: TopicName) -> Bool {
        left.string.utf8.elementsEqual(right.string.utf8)
    }

    public func hash(into hasher: inout Hasher) {
        hashBytes(of: string, into: &hasher)
    }

    public var description: String { string }
}

/// A valid topic filter (4.7), shared or not (4.8.2). Compared byte by byte, never normalized.
public struct TopicFilter: Sendable {
    /// As it was given; valid.
    public let string: String

    /// - Throws: what is wrong with the string; ``validate(_:)`` has the rules.
    public init(_ string: String) throws(InvalidTopic) {
        try Self.validate(string)
        self.string = string
    }

    /// Throws unless the string is 1...65,535 UTF-8 bytes without U+0000, control characters and noncharacters, with
    /// wildcards only as whole levels, `#` only at the end, and `$share/` only as `$share/NAME/FILTER`.
    public static func validate(_ string: String) throws(InvalidTopic) {
        try validateTopicText(string)
        var levels = string.utf8[...]
        if isShared(string) {
            levels = levels.dropFirst(sharePrefix.utf8.count)
            let name = levels.prefix { $0 != Character8.slash }
            levels = levels[name.endIndex...].dropFirst()
            guard !name.isEmpty, !levels.isEmpty, !name.contains(where: Character8.isWildcard) else {
                throw .invalidShare
            }
        }
        while true {
            let level = levels.prefix { $0 != Character8.slash }
            let isLast = level.endIndex == levels.endIndex
            if level.contains(where: Character8.isWildcard) {
                guard level.count == 1, isLast || level.first == Character8.plus else { throw .misplacedWildcard }
            }
            if isLast { return }
            levels = levels[level.endIndex...].dropFirst()
        }
    }

    /// Whether this is a shared subscription: `$share/NAME/FILTER` (4.8.2).
    public var isShared: Bool { Self.isShared(string) }

    /// Whether any level is `+` or `#`.
    public var hasWildcard: Bool { levels.contains(where: Character8.isWildcard) }

    /// Whether a message to this topic belongs to the filter (4.7). A shared filter is compared without its `$share/NAME/`.
    /// A filter that starts with a wildcard does not match a topic that starts with `$` [MQTT-4.7.2-1].
    public func matches(topic: String) -> Bool { Self.covers(levels, topic.utf8[...]) }

    /// Whether every topic that matches `other` matches this filter, too. Shared filters are compared without their
    /// `$share/NAME/`.
    public func covers(_ other: TopicFilter) -> Bool { Self.covers(levels, other.levels) }

    /// - Parameter wanted: a filter, or a topic, which has no wildcards.
    private static func covers(_ filter: Substring.UTF8View, _ wanted: Substring.UTF8View) -> Bool {
        var (filter, wanted) = (filter, wanted)
        guard let first = wanted.first, let firstOfFilter = filter.first else { return false }
        if first == Character8.dollar, Character8.isWildcard(firstOfFilter) { return false }
        while true {
            let own = filter.prefix { $0 != Character8.slash }
            if own.first == Character8.number { return true }
            let level = wanted.prefix { $0 != Character8.slash }
            if level.first == Character8.number { return false }
            guard own.first == Character8.plus || own.elementsEqual(level) else { return false }
            let filterEnds = own.endIndex == filter.endIndex
            let wantedEnds = level.endIndex == wanted.endIndex
            filter = filter[own.endIndex...].dropFirst()
            wanted = wanted[level.endIndex...].dropFirst()
            if wantedEnds {
                // "a/#" also matches "a", the parent of all those levels (4.7.1.2).
                return filterEnds || (filter.count == 1 && filter.first == Character8.number)
            }
            if filterEnds { return false }
        }
    }

    package static func isShared(_ string: String) -> Bool {
        string.utf8.starts(with: sharePrefix.utf8)
    }

    private static let sharePrefix = "$share/"

    /// The filter without `$share/NAME/`.
    private var levels: Substring.UTF8View {
        guard isShared else { return string.utf8[...] }
        let named = string.utf8.dropFirst(Self.sharePrefix.utf8.count)
        return named.drop { $0 != Character8.slash }.dropFirst()
    }
}

extension TopicFilter: Hashable, CustomStringConvertible {
    public static func == (left: TopicFilter, right: TopicFilter) -> Bool {
        left.string.utf8.elementsEqual(right.string.utf8)
    }

    public func hash(into hasher: inout Hasher) {
        hashBytes(of: string, into: &hasher)
    }

    public var description: String { string }
}

/// The UTF-8 bytes that have a meaning in topics.
private enum Character8 {
    static let slash = UInt8(ascii: "/")
    static let plus = UInt8(ascii: "+")
    static let number = UInt8(ascii: "#")
    static let dollar = UInt8(ascii: "$")

    static func isWildcard(_ byte: UInt8) -> Bool { byte == plus || byte == number }
}

private func validateTopicText(_ string: String) throws(InvalidTopic) {
    guard !string.isEmpty else { throw .empty }
    guard string.utf8.count <= Packet.maximumStringLength else { throw .tooLong }
    guard !string.utf8.contains(0) else { throw .containsNull }
    if let character = string.discouragedCharacter {
        throw character.isControlCharacter ? .containsControlCharacter : .containsNonCharacter
    }
}

private func hashBytes(of string: String, into hasher: inout Hasher) {
    var string = string
    string.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
}
