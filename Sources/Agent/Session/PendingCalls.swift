import ControlAPI
import MQTT
import Session

/// Those who wait for an answer. The session's values know them by their ids.
struct PendingCalls<Answer> {
    private var waiting: [CallID: (Answer) -> Void] = [:]
    private var last = CallID(rawValue: 0)

    /// - Parameter resume: called once, with the answer.
    mutating func add(_ resume: @escaping (Answer) -> Void) -> CallID {
        last = CallID(rawValue: last.rawValue + 1)
        waiting[last] = resume
        return last
    }

    mutating func answer(_ calls: [CallID], _ answer: Answer) {
        for call in calls { waiting.removeValue(forKey: call)?(answer) }
    }
}

/// A program's end of a subscription.
struct Subscriber: Sendable {
    /// Gives a message to the program.
    var deliver: @Sendable (ReceivedMessage) -> Void
    /// Whether the program has read enough to be given more. When that changes, `loadConsumers()` is to be called.
    var hasRoom: @Sendable () -> Bool = { true }
    /// Another program has taken the durable consumer over.
    var takenOver: @Sendable () -> Void = {}
}

/// The programs that subscribe to a session's messages, while it is started again.
struct ParkedConsumers: Sendable {
    var live = LiveConsumers()
    var attached: [ConsumerName: DurableConsumers.Attachment] = [:]
    var subscribers: [SubscriptionID: Subscriber] = [:]

    var isEmpty: Bool { live.isEmpty && attached.isEmpty }
}
