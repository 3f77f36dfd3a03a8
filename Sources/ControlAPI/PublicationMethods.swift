/// How far a publication has come. More states may be added; readers must accept any.
public struct PublicationState: RawRepresentable, Codable, Hashable, Sendable {
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    /// The server does not have it, or has not answered yet; it is sent as soon as the session is connected.
    public static let pending = PublicationState(rawValue: "pending")
    /// The server has it.
    public static let published = PublicationState(rawValue: "published")
    /// The server refused it, or has said that it takes none like it, so that it was not sent. It is tried again when it is
    /// put again, after every reconnect, and ten minutes later.
    public static let refused = PublicationState(rawValue: "refused")
    /// The session was disconnected, and the server may still have it: it was not told to delete it, or refused to. It
    /// is sent again when the session connects, and deleted by a disconnect that the server receives.
    public static let kept = PublicationState(rawValue: "kept")
    /// It is removed, and the server may still have it.
    public static let removing = PublicationState(rawValue: "removing")
    /// It is removed, and the server does not have it.
    public static let removed = PublicationState(rawValue: "removed")
}

public enum PublicationListMethod: ControlMethod {
    public static let name = "publication.list"
    public static let summary = "Lists the retained messages that the session owns"
    public static let role: Role? = .observe
    public typealias Parameters = SessionParameters

    public struct Result: Codable, Hashable, Sendable {
        /// In the order in which they were put; then those that are being removed.
        public var publications: [ListedPublication]

        public init(publications: [ListedPublication]) {
            self.publications = publications
        }
    }
}

/// A publication of a session.
public struct ListedPublication: Codable, Hashable, Sendable {
    /// As it was put; for one that is being removed, as the server has it.
    public var topic: String
    /// As the server has it; `nil` while the session is in no room and the topic is relative to one.
    public var serverTopic: String?
    /// `nil` for one that is being removed.
    public var payload: MessagePayload?
    /// `nil` for one that is being removed.
    public var qos: QoS?
    /// `nil` if it has none.
    public var properties: MessageProperties?
    public var state: PublicationState
    /// When it was put; `nil` for one that is being removed.
    public var since: Timestamp?
    /// The reason code with which the server refused it, if it gave one.
    public var reasonCode: Int?
    /// What the server said, or why the session does not send it.
    public var message: String?

    public init(topic: String, qos: QoS?, state: PublicationState, since: Timestamp?) {
        self.topic = topic
        self.qos = qos
        self.state = state
        self.since = since
    }

    enum CodingKeys: String, CodingKey {
        case topic, serverTopic, payload, payloadBase64, qos, properties, state, since, reasonCode, message
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        topic = try container.decode(String.self, forKey: .topic)
        serverTopic = try container.decodeIfPresent(String.self, forKey: .serverTopic)
        if container.contains(.payload) || container.contains(.payloadBase64) {
            payload = try MessagePayload(from: container, text: .payload, base64: .payloadBase64)
        }
        qos = try container.decodeIfPresent(QoS.self, forKey: .qos)
        properties = try container.decodeIfPresent(MessageProperties.self, forKey: .properties)
        state = try container.decode(PublicationState.self, forKey: .state)
        since = try container.decodeIfPresent(Timestamp.self, forKey: .since)
        reasonCode = try container.decodeIfPresent(Int.self, forKey: .reasonCode)
        message = try container.decodeIfPresent(String.self, forKey: .message)
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(topic, forKey: .topic)
        try container.encode(serverTopic, forKey: .serverTopic)
        try payload?.encode(to: &container, text: .payload, base64: .payloadBase64)
        try container.encode(qos, forKey: .qos)
        try container.encodeIfPresent(properties, forKey: .properties)
        try container.encode(state, forKey: .state)
        try container.encode(since, forKey: .since)
        try container.encode(reasonCode, forKey: .reasonCode)
        try container.encode(message, forKey: .message)
    }
}

/// QoS 2 is not among them: receiving the same state twice changes nothing.
private enum PublicationQoS: UInt8, Decodable, CaseIterable {
    case atMostOnce = 0
    case atLeastOnce = 1
}

/// `publication.put`: adds or replaces a publication; answers when that is committed to disk.
public enum PublicationPutMethod: ControlMethod {
    public static let name = "publication.put"
    public static let summary = "Adds a publication, or replaces the one with the same topic"
    public static let role: Role? = .message

    public struct Parameters: ClosedObject {
        public var session: String
        /// May be relative to the session's room: `~/…`.
        public var topic: String
        /// Not empty.
        public var payload: MessagePayload
        /// At most once or at least once; default: at least once.
        public var qos: QoS
        public var properties: MessageProperties?

        public init(
            session: String, topic: String, payload: MessagePayload, qos: QoS = .atLeastOnce,
            properties: MessageProperties? = nil
        ) {
            self.session = session
            self.topic = topic
            self.payload = payload
            self.qos = qos
            self.properties = properties
        }

        enum CodingKeys: String, CodingKey {
            case session, topic, payload, payloadBase64, qos, properties
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            session = try container.decode(String.self, forKey: .session)
            topic = try container.decode(String.self, forKey: .topic)
            payload = try MessagePayload(from: container, text: .payload, base64: .payloadBase64)
            if payload.bytes.isEmpty {
                throw container.refusal(
                    of: .payload,
                    "must not be empty: to remove the message, use publication.remove, or "
                        + "holdfastctl publications remove")
            }
            let given = try container.decodeIfPresent(PublicationQoS.self, forKey: .qos) ?? .atLeastOnce
            qos = given == .atMostOnce ? .atMostOnce : .atLeastOnce
            properties = try container.decodeIfPresent(MessageProperties.self, forKey: .properties)
        }

        public func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(session, forKey: .session)
            try container.encode(topic, forKey: .topic)
            try payload.encode(to: &container, text: .payload, base64: .payloadBase64)
            try container.encode(qos, forKey: .qos)
            try container.encodeIfPresent(properties, forKey: .properties)
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// `pending`, or `published` if the server answered before this call did.
        public var state: PublicationState

        public init(state: PublicationState) {
            self.state = state
        }
    }
}

/// `publication.remove`: answers when the removal is committed to disk.
public enum PublicationRemoveMethod: ControlMethod {
    public static let name = "publication.remove"
    public static let summary = "Removes a publication, and answers when this is committed to disk"
    public static let role: Role? = .message

    public struct Parameters: ClosedObject {
        public var session: String
        /// As it was put.
        public var topic: String

        public init(session: String, topic: String) {
            self.session = session
            self.topic = topic
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// `removing` while the server may still have it, else `removed`.
        public var state: PublicationState

        public init(state: PublicationState) {
            self.state = state
        }
    }
}
