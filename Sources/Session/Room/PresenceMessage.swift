package import ControlAPI
package import Vocabulary

/// The retained message that tells whether a participant of a room is there.
package struct PresenceMessage: Hashable, Sendable {
    package enum State: String, Sendable {
        case online, offline
    }

    package var identity: Participant.Identity
    package var state: State
    /// Since when the participant is there, or was.
    package var since: RFC3339?
    /// The session's name at the participant.
    package var session: String
    /// The connection that the participant is there with; `nil` where the participant does not tell.
    package var connection: ConnectionMark?
    /// How good the participant's connection is, as it says itself.
    package var quality: Quality?

    package init(
        identity: Participant.Identity, state: State, since: RFC3339?, session: String,
        connection: ConnectionMark? = nil, quality: Quality? = nil
    ) {
        self.identity = identity
        self.state = state
        self.since = since
        self.session = session
        self.connection = connection
        self.quality = quality
    }

    /// Reads a peer's message. Unknown members are ignored, as is what the message says of its sender: the topic, which
    /// the server can guard, tells whose it is.
    ///
    /// - Returns: `nil` for anything else than a presence message, above all the empty one that clears it.
    package init?(_ bytes: some Sequence<UInt8>, of identity: Participant.Identity) {
        let bytes = Array(bytes)
        guard !bytes.isEmpty, let value = try? JSONValue(parsing: bytes[...]),
            let state = value["state"]?.text.flatMap(State.init)
        else { return nil }
        self.init(
            identity: identity, state: state, since: value["since"]?.text.flatMap { RFC3339($0) },
            session: value["session"]?.text ?? "",
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
