package import MQTT

/// The topic space of a room: `ROOM-PREFIX/ROOM/…`, including the presence messages of its participants.
package struct Room: Hashable, Sendable {
    package let name: String
    /// The beginning of every topic of the room.
    package let base: String

    /// - Parameters:
    ///   - prefix: one or more topic levels, none of them empty, without wildcards.
    ///   - name: of the same form as `prefix`.
    package init(prefix: String, name: String) {
        self.name = name
        base = "\(prefix)/\(name)/"
    }

    /// The beginning of a topic that is relative to the session's room.
    package static let relativePrefix = "~/"
    private static let sharePrefix = "$share/"

    /// Matches the presence of all participants.
    package var presenceFilter: String { "\(base)presence/+/+" }

    package func presenceTopic(of participant: Participant.Identity) -> String {
        "\(base)presence/\(participant.user)/\(participant.device)"
    }

    /// The participant whose presence has this topic; `nil` for every other topic, also if its levels are too long for
    /// a user and a device.
    package func participant(ofPresence topic: String) -> Participant.Identity? {
        guard topic.utf8.starts(with: base.utf8) else { return nil }
        let levels = topic.utf8.dropFirst(base.utf8.count)
            .split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { String(Substring($0)) }
        guard levels.count == 3, levels[0] == "presence",
            levels.allSatisfy({ (1...Self.maximumLength).contains($0.utf8.count) })
        else { return nil }
        return Participant.Identity(user: levels[1], device: levels[2])
    }

    // MARK: Relative topics

    /// Why a relative topic cannot be resolved.
    package enum Unresolved: Error, Hashable {
        /// The session is in no room.
        case noRoom
        /// Nothing follows `~/`.
        case empty
    }

    /// Whether a topic or filter is relative to the room: `~/…`, and `$share/NAME/~/…`.
    package static func isRelative(_ text: String) -> Bool {
        text == "~" || parts(of: text).rest.utf8.starts(with: relativePrefix.utf8)
    }

    /// Returns the topic or filter as the server has it. One that is not relative is returned unchanged.
    package static func resolve(_ text: String, in room: Room?) throws(Unresolved) -> String {
        guard isRelative(text) else { return text }
        guard let room else { throw .noRoom }
        let (share, rest) = parts(of: text)
        guard rest.utf8.count > relativePrefix.utf8.count else { throw .empty }
        return share + room.base + Substring(rest.utf8.dropFirst(relativePrefix.utf8.count))
    }

    /// Splits off `$share/NAME/`, if the text begins with it.
    private static func parts(of text: String) -> (share: Substring, rest: Substring) {
        guard text.utf8.starts(with: sharePrefix.utf8),
            let slash = text.utf8.dropFirst(sharePrefix.utf8.count).firstIndex(of: UInt8(ascii: "/"))
        else { return ("", text[...]) }
        return (text[...slash], Substring(text.utf8[slash...].dropFirst()))
    }

    /// Returns the topics of one participant's presence in all rooms whose presence these filters subscribe to.
    package static func presenceTopics(
        of participant: Participant.Identity, in filters: some Sequence<TopicFilter>
    ) -> [String] {
        let end = "/presence/+/+"
        return filters.filter { $0.string.hasSuffix(end) }
            .map { "\($0.string.dropLast(end.count))/presence/\(participant.user)/\(participant.device)" }
    }

    /// The most bytes for each of room, prefix, user and device, so that together they still fit into a topic.
    package static let maximumLength = 4096

    /// Whether the text can be a room or a room prefix: no wildcards, no empty levels, nothing that MQTT forbids.
    package static func isValid(_ text: String) -> Bool {
        guard text.utf8.count <= maximumLength, (try? TopicName.validate(text)) != nil else { return false }
        return text.split(separator: "/", omittingEmptySubsequences: false).allSatisfy { !$0.isEmpty }
    }

    /// What is demanded of names that become part of a topic, after the name of what must comply.
    package static let normalForm =
        "must be in Unicode's normalization form C, in which a letter with an accent is one character: servers compare "
        + "byte by byte"

    /// Whether the text can be the user or the device in a topic: a single level.
    package static func isLevel(_ text: String) -> Bool {
        isValid(text) && !text.utf8.contains(UInt8(ascii: "/"))
    }
}
