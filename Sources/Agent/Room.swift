import MQTT

/// The topic space of a room: `ROOM-PREFIX/ROOM/…`, and the presence messages of those who are in it.
struct Room: Hashable, Sendable {
    /// Levels of a topic, without wildcards and empty ones.
    let prefix: String
    /// Levels of a topic, without wildcards and empty ones.
    let name: String

    /// What a topic that is relative to the session's room begins with.
    static let relativePrefix = "~/"
    private static let sharePrefix = "$share/"

    /// What every topic of the room begins with.
    var base: String { "\(prefix)/\(name)/" }

    /// Matches the presence of every participant.
    var presenceFilter: String { "\(base)presence/+/+" }

    func presenceTopic(of participant: Participant.Identity) -> String {
        "\(base)presence/\(participant.user)/\(participant.device)"
    }

    /// The participant whose presence has this topic; `nil` for every other topic.
    func participant(ofPresence topic: String) -> Participant.Identity? {
        let start = "\(base)presence/"
        guard topic.utf8.starts(with: start.utf8) else { return nil }
        let levels = topic.dropFirst(start.count).split(separator: "/", omittingEmptySubsequences: false)
        guard levels.count == 2, !levels[0].isEmpty, !levels[1].isEmpty else { return nil }
        return Participant.Identity(user: String(levels[0]), device: String(levels[1]))
    }

    // MARK: Relative topics

    /// Why a relative topic does not stand for anything.
    enum Unresolved: Error, Hashable {
        /// The session is in no room.
        case noRoom
        /// Nothing stands behind `~/`.
        case empty
    }

    /// Whether a topic or filter is relative to the room: `~/…`, and `$share/NAME/~/…`.
    static func isRelative(_ text: String) -> Bool {
        text == "~" || parts(of: text).rest.hasPrefix(relativePrefix)
    }

    /// The topic or filter as the server has it. One that is not relative stays as it is.
    static func resolve(_ text: String, in room: Room?) throws(Unresolved) -> String {
        guard isRelative(text) else { return text }
        guard let room else { throw .noRoom }
        let (share, rest) = parts(of: text)
        guard rest.utf8.count > relativePrefix.utf8.count else { throw .empty }
        return share + room.base + rest.dropFirst(relativePrefix.count)
    }

    /// `$share/NAME/`, or nothing, and what stands behind it.
    private static func parts(of text: String) -> (share: Substring, rest: Substring) {
        guard text.hasPrefix(sharePrefix) else { return ("", text[...]) }
        guard let slash = text.dropFirst(sharePrefix.count).firstIndex(of: "/") else { return ("", text[...]) }
        return (text[...slash], text[text.index(after: slash)...])
    }

    /// Whether the text can be a room, or the topics' beginning: no wildcards, no empty levels, nothing that MQTT forbids.
    static func isValid(_ text: String) -> Bool {
        guard (try? TopicName.validate(text)) != nil else { return false }
        return text.split(separator: "/", omittingEmptySubsequences: false).allSatisfy { !$0.isEmpty }
    }

    /// Whether the text can be the user or the device in a topic: one level.
    static func isLevel(_ text: String) -> Bool {
        isValid(text) && !text.utf8.contains(UInt8(ascii: "/"))
    }
}
