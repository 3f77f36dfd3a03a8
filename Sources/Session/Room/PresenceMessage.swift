package import ControlAPI
import SessionCore

/// The retained message that says whether a participant of a room is present.
package struct PresenceMessage: Hashable, Sendable {
    package enum State: String, Sendable {
        case online, offline
    }

    package var identity: Participant.Identity
    package var state: State
    /// When the participant joined.
    package var since: Timestamp?
    /// The name of the participant's session; empty if it is not one.
    package var session: String
    /// The mark of the participant's connection; `nil` if the participant does not publish one.
    package var connection: ConnectionMark?
    /// The quality of the participant's connection, as it reports it.
    package var quality: Quality?
}

extension PresenceMessage {
    /// More is not read: anyone who may publish in the room could delay the session with it. The longest message of a
    /// session has a user and a device of ``Room/maximumLength`` each, with every byte escaped.
    private static let maximumLength = 64 << 10
    private static let maximumValues = 100

    /// Parses a message of a participant. Unknown members are ignored, and so is what the message says about its
    /// sender: whose presence it is follows from the topic, which the server can protect.
    ///
    /// - Returns: `nil` for anything but a presence message, above all for the empty message that clears a presence.
    package init?(_ bytes: some Collection<UInt8>, of identity: Participant.Identity) {
        guard !bytes.isEmpty, bytes.count <= Self.maximumLength,
            let value = try? JSONValue(parsing: Array(bytes)[...], maximumValues: Self.maximumValues),
            let state = value["state"]?.text.flatMap(State.init)
        else { return nil }
        self.init(
            identity: identity, state: state, since: value["since"]?.text.flatMap { Timestamp($0) },
            session: value["session"]?.text.flatMap { SessionName($0) }?.description ?? "",
            connection: value["connection"]?.text.flatMap { ConnectionMark($0) },
            quality: value["quality"]?.text.flatMap(Quality.init))
    }

    /// The message as JSON.
    package var bytes: [UInt8] {
        var members: [String: JSONValue] = [
            "user": .string(identity.user), "device": .string(identity.device), "state": .string(state.rawValue),
            "since": since.map { .string($0.description) } ?? .null, "session": .string(session),
        ]
        if let connection { members["connection"] = .string(connection.description) }
        if let quality { members["quality"] = .string(quality.rawValue) }
        guard let line = OutgoingLine.encode(members) else {
            preconditionFailure("texts can be written as JSON")
        }
        return line.dropLast()
    }
}
