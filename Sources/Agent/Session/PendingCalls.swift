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

    mutating func answerAll(_ answer: Answer) { self.answer(waiting.keys.sorted(), answer) }
}

/// The programs' ends of what the session knows by ids: all of a driver's closures and continuations.
struct Programs {
    /// Those who wait for a message to be accepted or delivered.
    var publishers: [MessageSequence: SessionDriver.Publisher] = [:]
    /// The programs of live and of durable consumers.
    var subscribers: [SubscriptionID: Subscriber] = [:]
    /// Those who wait for the server's answer to a subscription; `nil` without one.
    var subscribing = PendingCalls<ReasonCode?>()
    /// Those who wait until the session is in another room.
    var switching = PendingCalls<Result<Void, RPCError>>()
    /// Those who wait for what a command comes to.
    var commanding = PendingCalls<SessionOutcome>()
    /// Those who wait for their turn.
    var queueing = PendingCalls<Void>()
    /// Those who wait until the session is not on its way down any more.
    var leaving = PendingCalls<Void>()
    /// Whether somebody has the endpoints checked.
    var isChecking = false
    /// How many only probe the way to a server, without logging in.
    var looksUnderWay = 0
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
