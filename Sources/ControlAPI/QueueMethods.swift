/// How far a message in an outbox has come. More states may be added; readers must accept any.
public struct QueuedMessageState: RawRepresentable, Codable, Hashable, Sendable {
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    /// Not sent.
    public static let queued = QueuedMessageState(rawValue: "queued")
    /// Sent, or about to be, and not acknowledged.
    public static let inFlight = QueuedMessageState(rawValue: "in-flight")
    /// Set aside because the server rejected it, until someone retries or drops it.
    public static let quarantined = QueuedMessageState(rawValue: "quarantined")

    /// No state of a message: all that is on disk of a session that is not configured, with its durable consumers, received
    /// messages and publications. Only for ``MessageQueueDropMethod``.
    public static let everything = QueuedMessageState(rawValue: "everything")

    /// The states that a request may name.
    public static let all: [QueuedMessageState] = [.queued, .inFlight, .quarantined]
}

/// `message.queue.list`: the outbox of a session and its quarantine, without the contents of the messages.
public enum MessageQueueListMethod: ControlMethod {
    public static let name = "message.queue.list"
    public static let summary = "Lists the messages that are accepted but not delivered yet, without their payloads"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        /// The range of ``limit``.
        public static let limits = 1...1000

        public var session: String
        /// Only messages in this state; `nil`: all of them.
        public var state: QueuedMessageState?
        /// Only messages after the one with this id.
        public var after: Int64?
        /// How many at most. Default: 100.
        public var limit: Int

        public init(session: String, state: QueuedMessageState? = nil, after: Int64? = nil, limit: Int = 100) {
            self.session = session
            self.state = state
            self.after = after
            self.limit = limit
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            session = try container.decode(String.self, forKey: .session)
            state = try container.decodeIfPresent(QueuedMessageState.self, forKey: .state)
            if let state, !QueuedMessageState.all.contains(state) {
                throw container.refusal(of: .state, "must be queued, in-flight or quarantined")
            }
            after = try container.decodeIfPresent(Int64.self, forKey: .after)
            limit = try container.decodeIfPresent(Int.self, forKey: .limit) ?? 100
            guard Self.limits.contains(limit) else {
                throw container.refusal(of: .limit, "must be a number from 1 to 1000")
            }
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// In the order in which they were accepted. Fewer than the limit if the line would be too long otherwise.
        public var messages: [ListedMessage]
        /// Pass as `after` to get the next ones; `nil` if there are none.
        @OrNull public var next: Int64?

        public init(messages: [ListedMessage], next: Int64?) {
            self.messages = messages
            self.next = next
        }
    }
}

/// A message of an outbox, without its contents.
public struct ListedMessage: Codable, Hashable, Sendable {
    /// The id that `message.publish` returned, or that a retry gave it.
    public var id: Int64
    public var topic: String
    public var qos: QoS
    public var retain: Bool
    /// Bytes of topic, payload and properties: what the message counts towards `max-bytes`.
    public var size: Int
    /// When it was accepted, or last retried.
    public var acceptedAt: Timestamp
    /// When it expires; `nil`: never.
    @OrNull public var expiresAt: Timestamp?
    public var state: QueuedMessageState
    /// For a quarantined message: the server's reason code.
    @OrNull public var reasonCode: Int?
    /// For a quarantined message: the reason in words.
    @OrNull public var message: String?

    public init(
        id: Int64, topic: String, qos: QoS, retain: Bool, size: Int, acceptedAt: Timestamp,
        expiresAt: Timestamp? = nil, state: QueuedMessageState, reasonCode: Int? = nil, message: String? = nil
    ) {
        self.id = id
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.size = size
        self.acceptedAt = acceptedAt
        self.expiresAt = expiresAt
        self.state = state
        self.reasonCode = reasonCode
        self.message = message
    }
}

/// The messages to retry or drop.
public enum MessageSelection: Hashable, Sendable {
    /// 1 to 1000 ids.
    case ids([Int64])
    /// All that are in this state when the request arrives: quarantined or queued; or everything.
    case all(QueuedMessageState)
}

/// The parameters of `message.queue.retry` and `message.queue.drop`.
public struct MessageQueueParameters: ClosedObject {
    public var session: String
    public var selection: MessageSelection

    public init(session: String, selection: MessageSelection) {
        self.session = session
        self.selection = selection
    }

    enum CodingKeys: String, CodingKey {
        case session, ids, all
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        session = try container.decode(String.self, forKey: .session)
        let ids = try container.decodeIfPresent([Int64].self, forKey: .ids)
        let all = try container.decodeIfPresent(QueuedMessageState.self, forKey: .all)
        switch (ids, all) {
        case (let ids?, nil):
            guard (1...1000).contains(ids.count) else {
                throw container.refusal(of: .ids, "must have 1 to 1000 numbers")
            }
            selection = .ids(ids)
        case (nil, let state?):
            guard [.quarantined, .queued, .everything].contains(state) else {
                throw container.refusal(of: .all, "must be quarantined, queued or everything")
            }
            selection = .all(state)
        default:
            throw container.refusal(of: .ids, "or all must be given, but not both")
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(session, forKey: .session)
        switch selection {
        case .ids(let ids): try container.encode(ids, forKey: .ids)
        case .all(let state): try container.encode(state, forKey: .all)
        }
    }
}

/// A message that a call left as it was.
public struct SkippedMessage: Codable, Hashable, Sendable {
    /// The id that the caller gave, or that `all` selected.
    public var id: Int64
    /// Stable and kebab-case: `unknown-message`, `in-flight`, `not-quarantined`, `expired`, or the code of an error
    /// that `message.publish` would have.
    public var code: String
    /// Why, in one sentence without the final full stop.
    public var message: String
    /// What to do about it.
    @OrNull public var hint: String?

    public init(id: Int64, code: String, message: String, hint: String? = nil) {
        self.id = id
        self.code = code
        self.message = message
        self.hint = hint
    }
}

/// `message.queue.retry`: puts quarantined messages at the end of the queue; answers when that is committed to disk.
public enum MessageQueueRetryMethod: ControlMethod {
    public static let name = "message.queue.retry"
    public static let summary =
        "Puts quarantined messages at the end of the queue, and answers when this is committed to disk"
    public static let role: Role? = .message
    public typealias Parameters = MessageQueueParameters

    public struct Result: Codable, Hashable, Sendable {
        /// At most 1000.
        public var retried: [RetriedMessage]
        public var skipped: [SkippedMessage]
        /// Whether `all` selects more messages than one call handles, so that the call has to be repeated.
        public var more: Bool

        public init(retried: [RetriedMessage], skipped: [SkippedMessage], more: Bool) {
            self.retried = retried
            self.skipped = skipped
            self.more = more
        }
    }
}

/// A message that was moved to the end of the queue, where it has a new id.
public struct RetriedMessage: Codable, Hashable, Sendable {
    /// Its previous id, which is no longer valid.
    public var id: Int64
    /// The id that it has from now on.
    public var newID: Int64

    public init(id: Int64, newID: Int64) {
        self.id = id
        self.newID = newID
    }
}

/// `message.queue.drop`: removes messages for good; answers when that is committed to disk. Messages on their way are
/// removed too, and the server may still take them.
public enum MessageQueueDropMethod: ControlMethod {
    public static let name = "message.queue.drop"
    public static let summary = "Removes messages for good, and answers when this is committed to disk"
    public static let role: Role? = .control
    public typealias Parameters = MessageQueueParameters

    public struct Result: Codable, Hashable, Sendable {
        /// At most 1000.
        public var dropped: [Int64]
        public var skipped: [SkippedMessage]
        /// Whether `all` selects more messages than one call handles, so that the call has to be repeated.
        public var more: Bool
        /// What else was removed of a session that is not configured; `nil` if nothing was.
        @OrNull public var rest: Rest?

        public struct Rest: Codable, Hashable, Sendable {
            /// How many durable consumers there were.
            public var consumers: Int
            /// How many received messages these had not taken.
            public var received: Int
            /// How many publications there were.
            public var publications: Int

            public init(consumers: Int, received: Int, publications: Int) {
                self.consumers = consumers
                self.received = received
                self.publications = publications
            }
        }

        public init(dropped: [Int64], skipped: [SkippedMessage], more: Bool, rest: Rest? = nil) {
            self.dropped = dropped
            self.skipped = skipped
            self.more = more
            self.rest = rest
        }
    }
}
