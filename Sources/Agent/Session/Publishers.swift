import ControlAPI
import MQTT

/// A call of `message.publish`, whose caller may leave before the message is delivered.
struct PublishCall: Hashable, Sendable {
    var connection: ConnectionID
    /// The number of the call on its connection.
    var number: Int
}

/// A caller that waits for a message to be accepted or delivered.
struct Publisher: Sendable {
    /// What a publisher is told about its message.
    enum Step {
        /// The message is committed; its delivery is awaited. It is repeated if an earlier call with its key has
        /// published it.
        case accepted(MessageSequence, isRepeated: Bool = false)
        /// The final result.
        case ended(Result<MessagePublishMethod.Result, RPCError>)
    }

    /// `nil` for a caller that waits to the end.
    var call: PublishCall?
    var wait: MessagePublishMethod.Wait
    /// Returns whether the caller waits for more.
    var told: @Sendable (Step) -> Bool

    func end(_ result: Result<MessagePublishMethod.Result, RPCError>) { _ = told(.ended(result)) }

    /// A caller that is told that its message was published before.
    var ofRepeatedMessage: Publisher {
        Publisher(call: call, wait: wait) { [told] step in
            switch step {
            case .accepted(let sequence, _):
                return told(.accepted(sequence, isRepeated: true))
            case .ended(.success(var result)):
                result.repeated = true
                return told(.ended(.success(result)))
            case .ended(.failure):
                return told(step)
            }
        }
    }
}

extension MessagePublishMethod.Result {
    /// The message is on disk, and not delivered yet.
    static func accepted(_ sequence: MessageSequence) -> Self {
        .init(id: sequence.rawValue, accepted: true, delivered: false, reasonCode: nil)
    }

    static func delivered(_ sequence: MessageSequence, _ code: ReasonCode) -> Self {
        .init(id: sequence.rawValue, accepted: true, delivered: true, reasonCode: Int(code.rawValue))
    }
}

/// The callers that wait for messages to be accepted or delivered: for most messages one, and more for a message whose
/// key was repeated.
struct Publishers: Sendable {
    private var waiting: [MessageSequence: (first: Publisher, others: [Publisher])] = [:]

    var isEmpty: Bool { waiting.isEmpty }

    /// The caller that published the message, or the one that has waited longest since that one left.
    func first(of sequence: MessageSequence) -> Publisher? { waiting[sequence]?.first }

    mutating func add(_ publisher: Publisher, of sequence: MessageSequence) {
        if waiting[sequence] == nil {
            waiting[sequence] = (publisher, [])
        } else {
            waiting[sequence]?.others.append(publisher)
        }
    }

    /// Takes all callers that wait for a message.
    mutating func take(_ sequence: MessageSequence) -> [Publisher] {
        waiting.removeValue(forKey: sequence).map { [$0.first] + $0.others } ?? []
    }

    mutating func takeAll() -> [(sequence: MessageSequence, publisher: Publisher)] {
        defer { waiting = [:] }
        return waiting.flatMap { sequence, publishers in
            ([publishers.first] + publishers.others).map { (sequence, $0) }
        }
    }

    /// The caller has left.
    mutating func remove(_ call: PublishCall, of sequence: MessageSequence) {
        let left = take(sequence).filter { $0.call != call }
        if let first = left.first { waiting[sequence] = (first, Array(left.dropFirst())) }
    }
}
