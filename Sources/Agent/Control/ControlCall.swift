import ControlAPI

/// A call that was read and has not begun yet.
struct WaitingCall {
    /// The parameters of a publish that were decoded with its line.
    typealias DecodedPublish = Result<MessagePublishMethod.Parameters, RPCError>

    var request: ClientCall
    var message: DecodedPublish?
    var bytes: Int
    var batch: Int?
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

    /// What kind of call it is, as far as that can be told before it runs, and the greatest expected length of its
    /// answer.
    var needs: (CallKind, answer: Int) {
        switch method {
        case MessagePublishMethod.name?, MessageAckMethod.name?, PublicationPutMethod.name?,
            PublicationRemoveMethod.name?:
            return (.message, 256)
        case SessionHistoryMethod.name?:
            let limit = parameters?["limit"]?.wholeNumber ?? 100
            return (.read, min(max(Int(clamping: limit), 1), SessionHistoryMethod.Parameters.limits.upperBound) * 512)
        case MessageQueueListMethod.name?, PublicationListMethod.name?:
            return (.read, 1 << 20)
        case SessionWatchMethod.name? where parameters?["since"] != nil:
            return (.read, 2 << 20)
        case DaemonStatusMethod.name?, DaemonMetricsMethod.name?:
            // Both ask the store, so their number at once must be limited.
            return (.read, 64 << 10)
        case DaemonClientsMethod.name?:
            // It asks every connection.
            return (.read, 128 << 10)
        case RPCDiscoverMethod.name?:
            return (.query, RPCDiscoverMethod.encodedDocument.count)
        case nil, RPCHelloMethod.name?, SessionListMethod.name?, SessionStatusMethod.name?,
            SessionWatchMethod.name?, SessionUnwatchMethod.name?, RoomParticipantsMethod.name?,
            NetworkStatusMethod.name?:
            return (.query, 16 << 10)
        default:
            return (.command, 4 << 10)
        }
    }
}
