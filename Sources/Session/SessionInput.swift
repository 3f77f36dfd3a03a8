package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

extension Session {
    /// What happened, or what somebody asks.
    package enum Input: Sendable {
        case machine(SessionMachine.Input)
        case mqtt(MQTTClientMachine.Input)
        case connection(DialID, DialEvent)
        /// The link is given up, although its connection may live.
        case retire(Generation, SessionMachine.Ending)
        /// The answer to `lookUp`: the path to an endpoint, and the kernel's own where the session must not use that.
        case pathFound(EndpointIndex, Path?, excluded: Path?)
        /// The answer to `readOnLater`.
        case readOn(Generation)
        case fetched(SecretUse, SessionCredential)
        /// With why.
        case notFetched(SecretUse, String)
        case keyDerived(Generation, SCRAMClient.Key)
        /// A program gives a credential, instead of the one that the session's file names.
        case credentialGiven(SessionCredential)
        /// Changes of publications are durable, or all of them but what needs room.
        case stored([SessionChange], isComplete: Bool)
        case join(Room, CallID)
        /// Ask the server for a filter; the call waits for its answer while the session is connected.
        case subscribe(TopicFilter, QoS, CallID)
        /// A program takes messages as they come; likewise.
        case consume(LiveConsumer, CallID)
        case unsubscribe(SubscriptionID)
        /// A durable consumer has another filter instead of this one.
        case unwanted(TopicFilter)
        /// The program of a durable consumer is gone; the consumer goes on collecting.
        case detach(SubscriptionID)
        /// The server refuses a filter that a durable consumer has been given: it is what it was before, or ends if it was
        /// not there.
        case undo(ConsumerName, DurableConsumers.Consumer?, refused: TopicFilter)
        /// For good, with all that waits for it.
        case endConsumer(ConsumerName)
        /// The call is answered when the turn with the key that is under way has ended.
        case awaitKey(PublishKey, CallID)
        case endKey(PublishKey, KeysUnderWay.Turn)
        /// The call is answered when it may decide about the messages of the outbox.
        case awaitQueue(CallID)
        case endQueue
        /// The call is answered with what a command comes to, or when the time is over.
        case awaitOutcome(CallID, until: Instant?)
        /// The session's driver ends.
        case stop(Reason, forGood: Bool)
        /// Time has passed; due when `nextDeadline` is reached.
        case timeReached
    }

    /// What waits to be done, one after the other.
    enum Work: Sendable {
        case input(Input)
        /// Nothing if the link is gone by then.
        case onLink(Generation, MQTTClientMachine.Input)
        case announce(Announcement)
        case subscribe(TopicFilter, QoS)
        /// The link ended, or the protocol gave it up: both machines are told, the protocol's first.
        case retire(Generation, SessionMachine.Ending, MQTTClientMachine.Input)
        /// The path on which the link was opened is known, and the link may be ready for CONNECT.
        case greet(Generation)
        case lookUp(EndpointIndex, EndpointAddresses.Watch)
        case measure
        /// A renewed credential was for the attempt that has begun since.
        case endRenewal
        /// What the protocol does with the end of its link, after what takes the link's place is dialed.
        case endProtocol
        /// What is left of the actions of the session machine.
        case goOn([SessionMachine.Action])
        case due
    }

    /// The clocks, as long as one input is worked on.
    package struct Moment: Sendable {
        package var now: Instant
        package var wallClock: RFC3339

        package init(now: Instant, wallClock: RFC3339) {
            self.now = now
            self.wallClock = wallClock
        }
    }

    /// What is about to be decided, and what was and is not carried out.
    struct Funnel: Sendable {
        var work = CircularBuffer<Work>(initialCapacity: 1)
        var actions: [Action] = []
        /// Of the protocol machine; empty between two inputs.
        var answers: [MQTTClientMachine.Action] = []
        var moment: Moment
    }
}

/// What a secret is fetched for.
package enum SecretUse: Hashable, Sendable {
    case proxy(DialRole)
    case login(DialRole)
    /// A credential that is about to end.
    case renewal(Generation)
    /// The proxy's, for a knock behind it.
    case knock(EndpointIndex, Knocks.Number)
}
