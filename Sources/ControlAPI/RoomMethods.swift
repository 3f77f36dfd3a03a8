public enum RoomParticipantsMethod: ControlMethod {
    public static let name = "room.participants"
    public static let summary = "Returns who is in the session's room, including the session itself"
    public static let role: Role? = .observe
    public typealias Parameters = SessionParameters

    public struct Result: Codable, Hashable, Sendable {
        /// The session's room.
        public var room: String
        /// Everyone in the room, this session included; ordered by user and device.
        public var participants: [RoomParticipant]
        /// Whether this is everyone. At most 10,000 participants are listed, and fewer if their names are long. While the
        /// server refuses the session's own presence, it is not known whether this is everyone.
        public var complete: Bool

        public init(room: String, participants: [RoomParticipant], complete: Bool = true) {
            self.room = room
            self.participants = participants
            self.complete = complete
        }
    }
}

/// A participant of a room.
public struct RoomParticipant: Codable, Hashable, Sendable {
    /// The state of a participant. More states may be added; readers must accept any.
    public struct State: RawRepresentable, Codable, Hashable, Sendable {
        public var rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        public static let online = State(rawValue: "online")
    }

    /// Why a participant is no longer there.
    public struct Departure: RawRepresentable, Codable, Hashable, Sendable {
        public var rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The participant said goodbye.
        public static let left = Departure(rawValue: "left")
        /// The server has not heard from the participant for longer than the presence timeout.
        public static let lost = Departure(rawValue: "lost")
    }

    public var user: String
    public var device: String
    public var state: State
    /// Since when the participant has been in the room, by its own clock; `nil` if it does not say.
    @OrNull public var since: Timestamp?
    /// The quality of the participant's connection, as the participant reports it; `nil` if it does not.
    @OrNull public var quality: Quality?

    public init(
        user: String, device: String, state: State, since: Timestamp?, quality: Quality? = nil
    ) {
        self.user = user
        self.device = device
        self.state = state
        self.since = since
        self.quality = quality
    }
}

/// `session.switchRoom`: answers when the session is in the new room, and the server has its will there.
public enum SessionSwitchRoomMethod: ControlMethod {
    public static let name = "session.switchRoom"
    public static let summary = "Moves a session to another room, and answers when it is there"
    public static let role: Role? = .control

    public struct Parameters: ClosedObject {
        public var session: String
        public var room: String

        public init(session: String, room: String) {
            self.session = session
            self.room = room
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// The room that the session is in now.
        public var room: String

        public init(room: String) {
            self.room = room
        }
    }
}
