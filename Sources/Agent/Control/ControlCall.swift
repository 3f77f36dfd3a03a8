import ControlAPI

/// A call that was read and has not begun yet.
///
/// It may wait for long, and only its text is counted, so it takes hardly more memory than that.
struct WaitingCall {
    /// The parameters of a publish.
    typealias DecodedPublish = Result<MessagePublishMethod.Parameters, RPCError>

    /// Without its parameters, if they are in `message` or still have to be read from `text`.
    var request: ClientCall
    var message: DecodedPublish?
    private var text: [UInt8]?
    var needs: CallNeeds
    var bytes: Int
    var batch: Int?

    /// What a JSON value takes, about: an object with one member takes the most for its text.
    private static let valueSize = 200
    /// How many bytes more than its text a call may take.
    private static let spare = 8 << 10

    init(_ request: ClientCall, text: [UInt8], batch: Int? = nil) {
        self.request = request
        self.batch = batch
        needs = request.needs
        bytes = text.count
        if request.method == MessagePublishMethod.name {
            message = Result { () throws(RPCError) in
                try ParameterDecoder.decode(MessagePublishMethod.Parameters.self, from: request.parameters)
            }
            self.request = request.withoutParameters
        } else if (request.parameters?.valueCount ?? 0) * Self.valueSize > text.count + Self.spare {
            self.text = text
            self.request = request.withoutParameters
        }
    }

    init(_ publish: PublishLine, bytes: Int, batch: Int? = nil) {
        request = .request(publish.id, method: MessagePublishMethod.name, parameters: nil)
        message = .success(publish.parameters)
        needs = request.needs
        self.bytes = bytes
        self.batch = batch
    }

    /// The call with its parameters, unless it is a publish.
    var complete: ClientCall { text.map { ClientCall(parsing: $0) } ?? request }
}

/// A call that has begun, without its parameters.
struct RunningCall {
    var number: Int
    /// `nil` for a notification, which has no answer.
    var id: RequestID?
    var kind: CallKind
    /// What the scheduler counts: the bytes of the call, and those reserved for its answer.
    var bytes: Int
    var answer: Int
    var batch: Int?
    var waitsForDelivery = false
}

/// The outcome of a call.
struct CallReply {
    /// `nil` for a notification, which has no answer.
    var line: [UInt8]?
    /// The watch or subscription that begins with this answer.
    var feed: ControlFeedID?
    /// Notifications about events from before the watch.
    var missed: [UInt8] = []
}

extension ClientCall {
    /// `nil` for a notification.
    var id: RequestID? {
        switch self {
        case .request(let id, _, _), .invalid(let id, _): id
        case .notification: nil
        }
    }

    var method: String? {
        switch self {
        case .request(_, let method, _), .notification(let method, _): method
        case .invalid: nil
        }
    }

    var parameters: JSONValue? {
        switch self {
        case .request(_, _, let parameters), .notification(_, let parameters): parameters
        case .invalid: nil
        }
    }

    var withoutParameters: ClientCall {
        switch self {
        case .request(let id, let method, _): .request(id, method: method, parameters: nil)
        case .notification(let method, _): .notification(method: method, parameters: nil)
        case .invalid: self
        }
    }

    var needs: CallNeeds {
        switch method {
        case MessagePublishMethod.name?, MessageAckMethod.name?, PublicationPutMethod.name?,
            PublicationRemoveMethod.name?:
            return .known(.message, answer: 256)
        case SessionHistoryMethod.name?:
            let limit = min(
                max(Int(clamping: parameters?["limit"]?.wholeNumber ?? 100), 1),
                SessionHistoryMethod.Parameters.limits.upperBound)
            return .known(.read, answer: limit * 512)
        case MessageQueueListMethod.name?, PublicationListMethod.name?:
            return .known(.read, answer: 1 << 20)
        case SessionWatchMethod.name? where parameters?["since"] != nil:
            return .known(.read, answer: 2 << 20)
        case SessionWatchMethod.name? where parameters?["session"]?.text == nil, SessionListMethod.name?:
            return .list(.sessions)
        case RoomParticipantsMethod.name?:
            return .list(.participants(session: parameters?["session"]?.text ?? ""))
        case NetworkStatusMethod.name?:
            return .list(.paths)
        case DaemonStatusMethod.name?, DaemonMetricsMethod.name?:
            // Both ask the store, so their number at once must be limited.
            return .known(.read, answer: 64 << 10)
        case DaemonClientsMethod.name?:
            // It asks every connection.
            return .known(.read, answer: 128 << 10)
        case SessionConnectMethod.name?, SessionDisconnectMethod.name?, SessionReconnectMethod.name?:
            return .known(parameters?["wait"] == .bool(true) ? .outcome : .command, answer: 4 << 10)
        case RPCDiscoverMethod.name?:
            return .known(.query, answer: RPCDiscoverMethod.encodedDocument.count)
        case nil, RPCHelloMethod.name?, SessionStatusMethod.name?, SessionWatchMethod.name?,
            SessionUnwatchMethod.name?:
            return .known(.query, answer: CallNeeds.shortAnswer)
        default:
            return .known(.command, answer: 4 << 10)
        }
    }
}
