package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

extension Session {
    /// What happened, or what a program asks for.
    package enum Input: Sendable {
        case machine(SessionMachine.Input)
        case mqtt(MQTTClientMachine.Input)
        case connection(DialID, DialEvent)
        /// The link is given up, although its connection may still be open.
        case retire(Generation, SessionMachine.Ending)
        /// The answer to `lookUp`: the path to an endpoint, and the kernel's own path if the session must not use that
        /// one.
        case pathFound(EndpointIndex, Path?, excluded: Path?)
        /// The answer to `readOnLater`.
        case readOn(Generation)
        /// The secret is fetched later, because as many helper commands run as may.
        case fetchQueued(SecretUse)
        /// A secret that was queued is being fetched.
        case fetchBegun(SecretUse)
        case fetched(SecretUse, SessionCredential)
        /// The sentence says why.
        case notFetched(SecretUse, String)
        case keyDerived(Generation, SCRAMClient.Key)
        /// A program gives a credential, to use instead of the one that the session's file names.
        case credentialGiven(SessionCredential)
        /// Changes of publications are durable: all of them, or (not `isComplete`) all except those that need room.
        case stored([SessionChange], isComplete: Bool)
        /// Switch to the room with this name, and answer the call when that is done.
        case join(String, CallID)
        /// Subscribe to a durable consumer's filter, unless nothing wants it any more. While the session is connected,
        /// the call waits for the server's answer.
        case subscribe(TopicFilter, CallID)
        /// Subscribe for a program that takes messages as they arrive. The call waits as with `subscribe`.
        case consume(LiveConsumer, CallID)
        case unsubscribe(SubscriptionID)
        /// The program of a durable consumer is gone; the consumer keeps collecting.
        case detach(SubscriptionID)
        case endKey(PublishKey, KeysUnderWay.Turn)
        /// Answer the call when it is its turn to decide about the messages of the outbox.
        case awaitQueue(CallID)
        case endQueue
        /// Answer the call with the outcome of a command, or when the time is up.
        case awaitOutcome(CallID, until: Instant?)
        /// The caller that waited for the outcome has left.
        case forgetOutcome(CallID)
        /// The session's driver is about to stop.
        case stop(Reason, Parting)
        /// Time has passed; due when `nextDeadline` is reached.
        case timeReached
    }

    /// How a session leaves its server when its driver stops.
    package enum Parting: Hashable, Sendable {
        /// The server keeps nothing that others can see, neither its presence nor its publications.
        case forGood
        /// The others in its room see that it leaves.
        case leavingRoom
        /// The next driver is the same participant, so the others in its room see nothing, if the server can do that.
        case stayingInRoom
    }

    /// What is waiting to be done, in order.
    enum Work: Sendable {
        case input(Input)
        /// Does nothing if the link is gone by then.
        case onLink(Generation, MQTTClientMachine.Input)
        case announce(Announcement)
        case subscribe(TopicFilter, QoS)
        /// The link ended, or the protocol gave it up: both machines are told, the protocol's first.
        case retire(Generation, SessionMachine.Ending, MQTTClientMachine.Input)
        /// The path that the link was opened on is known, and the link may be ready for CONNECT.
        case greet(Generation)
        case lookUp(EndpointIndex, EndpointAddresses.Watch)
        case measure
        /// Forget the renewed credential: it was meant for the attempt that has begun in the meantime.
        case endRenewal
        /// Tell the protocol machine that its link has ended, after the replacement has been dialed.
        case endProtocol
        /// The remaining actions of the session machine.
        case continueWith([SessionMachine.Action])
        /// The path moved, and whether the connection was in doubt before is known now.
        case moved(EndpointIndex, to: Path?)
        case due
    }

    /// The clocks' readings while one input is handled.
    package struct Moment: Sendable {
        package var now: Instant
        package var wallClock: Timestamp

        package init(now: Instant, wallClock: Timestamp) {
            self.now = now
            self.wallClock = wallClock
        }
    }

    /// The work that is waiting, and the actions that are not carried out yet.
    struct Funnel: Sendable {
        var work = CircularBuffer<Work>(initialCapacity: 1)
        var actions: [Action] = []
        /// Actions of the protocol machine; empty between two inputs.
        var answers: [MQTTClientMachine.Action] = []
        var moment: Moment
    }
}

/// What a secret is fetched for.
package enum SecretUse: Hashable, Sendable {
    case proxy(DialRole)
    case login(DialRole)
    /// A replacement for a credential that is about to end.
    case renewal(Generation)
    /// The proxy's password, for a knock at the server behind it.
    case knock(EndpointIndex, Knocks.Number)

    /// The attempt that waits for it; `nil` if none does.
    var generation: Generation? {
        switch self {
        case .proxy(let role), .login(let role): role.attempt?.generation
        case .renewal, .knock: nil
        }
    }
}
