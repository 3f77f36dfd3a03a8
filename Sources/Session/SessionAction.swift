package import ControlAPI
package import MQTT
package import NIOCore
package import SessionCore
package import Vocabulary

extension Session {
    /// What the driver does, in this order. What comes of it, it gives back as inputs.
    package enum Action: Sendable {
        // MARK: Connections

        /// Begin to connect; everything that happens to it is `connection`.
        case dial(DialID, DialTarget)
        case send(DialID, ByteBuffer, FlushNumber?)
        /// `nil` if it is closed already; nothing that happens to it is looked at any more.
        case letGo(DialID, Closing?)
        /// Close it when all that was sent is flushed; its end is awaited.
        case close(DialID)
        case read(DialID, Bool)
        /// The server has sent more than is worked on in one turn, and the others come first: answer `readOn` in a moment.
        case readOnLater(Generation)
        /// Answer at once, with `answer`, what the kernel says of the connection.
        case measure(Generation, DialID)
        /// Look at these addresses from now on, and answer at once, with `answer`, `pathFound`.
        case lookUp(EndpointIndex, EndpointAddresses.Watch)

        // MARK: Secrets

        case fetch(SecretUse)
        /// Answer `keyDerived`.
        case deriveKey(Generation, password: [UInt8], SCRAMClient.Challenge)
        /// The state is another one: the file with the credential may have to be watched, or no longer.
        case watchCredential

        // MARK: The disk

        case commit([SessionChange])
        case commitNumbered([DurableChange], CommitNumber)
        /// Commit, and answer `stored`.
        case store([SessionChange])
        case load(after: MessageSequence, messages: Int, bytes: Int)

        // MARK: Programs

        case answer([CallID], Answer)
        /// The session is not on its way down any more.
        case isDown
        case deliver(ReceivedMessage)
        /// There may be messages for durable consumers.
        case loadConsumers

        // MARK: Telling

        /// Much larger than the others, and every session keeps a buffer of actions.
        indirect case report(Report)
        case tell(News)
        case statusChanged
    }

    package enum Closing: Hashable, Sendable {
        case abort
        case afterFlush
    }

    package enum Answer: Sendable {
        /// The server's to a subscription; `nil` without one.
        case subscription(ReasonCode?)
        case outcome(SessionOutcome)
        /// With a key, or to decide about the messages of the outbox.
        case turn
        /// `nil`: the session is in the room that was asked for.
        case room(RPCError?)
    }

    /// What programs and people are told at once, behind the reports.
    package enum News: Sendable {
        case accepted(MessageSequence)
        case notAccepted(MessageSequence)
        case delivered(MessageSequence, ReasonCode)
        case rejected(MQTTClientMachine.RejectedMessage)
        case messageDropped(MQTTClientMachine.DroppedMessage)
        case repeated(Int)
        case messageRefused(MQTTClientMachine.RefusedMessage)
        case serverLowersQoS
        case inboxFull(Bool)
        case consumerMissed(ConsumerName)
        case subscriptionChanged(TopicFilter)
        case participants([Participants.Change])
        case roomChanged(from: Room?)
        case presenceRefused(ReasonCode)
        case publicationChanged(Publications.Change)
        case publicationRefused(String, ReasonCode)
        case dropped(Int)
        case granted(MQTTClientMachine.Connected)
        /// Another device has the session's identity now.
        case displaced(Reason)
        case cannotLook(String)
        case credentialNotRenewed(String)
        case credentialTaken
        case successorFailed(String)
    }
}

/// What the session machine reported, and what was so at that moment.
package struct Report: Sendable {
    package let event: SessionMachine.Event
    package let instant: Instant
    package let time: RFC3339
    package let status: SessionMachine.Status
    /// Of the status.
    package let address: Endpoint?
    /// Of the event.
    package let eventAddress: Endpoint?
    package let liveness: SessionMachine.Liveness?
    package let credentialEnd: RFC3339?
    package let room: String?
}
