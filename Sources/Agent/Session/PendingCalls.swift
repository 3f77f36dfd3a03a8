import ControlAPI
import DurableStore
import MQTT
import Session
import SessionCore

/// Calls that wait for an answer. The session's values know them by their ids.
struct PendingCalls<Answer> {
    private var waiting: [CallID: (Answer) -> Void] = [:]
    private var last = CallID(rawValue: 0)

    /// - Parameter resume: called once, with the answer.
    mutating func add(_ resume: @escaping (Answer) -> Void) -> CallID {
        let call = next()
        add(call, resume)
        return call
    }

    /// Returns the id of a call that is about to be added.
    mutating func next() -> CallID {
        last = CallID(rawValue: last.rawValue + 1)
        return last
    }

    mutating func add(_ call: CallID, _ resume: @escaping (Answer) -> Void) { waiting[call] = resume }

    mutating func answer(_ calls: [CallID], _ answer: Answer) {
        for call in calls { waiting.removeValue(forKey: call)?(answer) }
    }

    mutating func answerAll(_ answer: Answer) { self.answer(waiting.keys.sorted(), answer) }
}

/// The programs' side of what the session knows by ids: all closures and continuations of a driver.
struct Programs {
    /// Publishers that wait for a message to be accepted or delivered.
    var publishers = Publishers()
    /// The programs of live and durable consumers.
    var subscribers: [SubscriptionID: Subscriber] = [:]
    /// What completes the acknowledgements of this turn of the loop.
    var acknowledging: [(subscription: SubscriptionID, completion: @Sendable (StoreError?) -> Void)] = []
    /// Calls that wait for the server's answer to a subscription; `nil` if the server does not answer.
    var subscribing = PendingCalls<ServerAnswer?>()
    /// What the calls are about that ask for a subscription.
    var asking: [TopicFilter: Asking] = [:]
    /// Calls that wait until the session has switched to another room.
    var switching = PendingCalls<Result<Void, RPCError>>()
    /// Calls that wait for the outcome of a command.
    var commanding = PendingCalls<SessionOutcome>()
    /// Calls that wait for their turn to decide about the messages of the outbox.
    var queueing = PendingCalls<Void>()
    /// Calls that wait for their turn with a key; `nil` if the driver is over before.
    var keying = PendingCalls<KeysUnderWay.Turn?>()
    /// Calls that wait until the session is no longer disconnecting.
    var leaving = PendingCalls<Void>()
    /// Whether a check that logs in is under way.
    var isChecking = false
    /// How many checks are under way that only probe the way to a server, without logging in.
    var checksWithoutLogin = 0
}

/// The program's side of a subscription.
struct Subscriber: Sendable {
    /// Gives a message to the program.
    var deliver: @Sendable (MessageLine) -> Void
    /// Whether the program has read enough to be given more. Call `loadConsumers()` when that becomes true.
    var hasRoom: @Sendable () -> Bool = { true }
    /// Tells the program, with an event, why its subscription has ended: another program took over its durable consumer, or
    /// that or the session was removed.
    var ended: @Sendable (SessionEvent) -> Void = { _ in }
    /// Tells the program, with an event, how the server has answered for its filter. Only if its call was answered
    /// without that.
    var answered: @Sendable (SessionEvent) -> Void = { _ in }
    /// What the program is still to be told. It has no filter: that of a program may change with the room.
    var untold: Untold?

    enum Untold: Hashable, Sendable {
        /// The server's answer, which has not come.
        case answer
        /// The server's refusal, once what a durable consumer has collected is acknowledged. Another answer may come
        /// first, as after a restart of the session.
        case refusal
    }
}
