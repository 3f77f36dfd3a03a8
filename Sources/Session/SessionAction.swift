package import ControlAPI
package import MQTT
package import NIOCore
package import SessionCore

extension Session {
    /// What the driver does, in this order. It returns the results as inputs.
    package enum Action: Sendable {
        // MARK: Connections

        /// Begin to connect. Everything that happens to the connection comes back as `connection`.
        case dial(DialID, DialTarget)
        case send(DialID, ByteBuffer, FlushNumber?)
        /// Let go of a connection, whose later events are ignored; `nil` if it is closed already.
        case letGo(DialID, Closing?)
        /// Close the connection when everything sent on it is flushed, and wait for its end.
        case close(DialID)
        case read(DialID, Bool)
        /// The server has sent more than is handled in one turn of the loop, and other sessions come first: answer
        /// `readOn` in a moment.
        case readOnLater(Generation)
        /// Answer at once, with `answer`, the kernel's measurement of the connection.
        case measure(Generation, DialID)
        /// Watch the paths to these addresses from now on, and answer `pathFound` at once, with `answer`.
        case lookUp(EndpointIndex, EndpointAddresses.Watch)

        // MARK: Secrets

        case fetch(SecretUse)
        /// Answer `keyDerived`.
        case deriveKey(Generation, password: [UInt8], SCRAMClient.Challenge)
        /// The state has changed, so the credential's file may have to be watched, or no longer.
        case watchCredential

        // MARK: The disk

        /// Commit these; there is no answer.
        case commit([SessionChange])
        /// Commit what the protocol machine has changed, then give it the number.
        case commitNumbered([DurableChange], CommitNumber)
        /// Commit these, then answer `stored`.
        case commitAnswered([SessionChange])
        case load(after: MessageSequence, messages: Int, bytes: Int)

        // MARK: Programs

        case answer([CallID], Answer)
        /// The session is no longer disconnecting.
        case isDown
        /// All of them get the same message, apart from the name of the subscription.
        case deliver(ReceivedMessage, to: [SubscriptionID])
        /// There may be messages for durable consumers.
        case loadConsumers

        // MARK: Telling

        /// Indirect because it is much larger than the others, and every session keeps a buffer of actions.
        indirect case report(Report)
        case tell(News)
        case statusChanged
    }

    package enum Answer: Sendable {
        /// The server's reason code for a subscription; `nil` if the server did not answer.
        case subscription(ServerAnswer?)
        case outcome(SessionOutcome)
        /// It is the call's turn to decide about the messages of the outbox.
        case turn
        /// It is the call's turn with its key.
        case keyTurn(KeysUnderWay.Turn)
        /// `nil`: the session is in the room that was asked for.
        case room(RPCError?)
    }

    /// What programs and people are told without the delay that reports may have, but after all earlier reports.
    package enum News: Sendable {
        case accepted(MessageSequence)
        case notAccepted(MessageSequence)
        case delivered(MessageSequence, ReasonCode)
        case rejected(MQTTClientMachine.RejectedMessage)
        case messageDropped(MQTTClientMachine.DroppedMessage)
        /// A new message on this topic is not accepted, because the outbox is full.
        case newMessageDropped(String)
        case repeated(Int)
        case messageRefused(MQTTClientMachine.RefusedMessage)
        case serverLowersQoS
        case inboxFull(Bool)
        case consumerMissed(ConsumerName)
        case subscriptionChanged(TopicFilter)
        /// The server has answered for this filter, perhaps as before.
        case subscriptionAnswered(TopicFilter)
        case participants([Participants.Change])
        case roomChanged(from: Room?)
        case presenceRefused(ServerAnswer)
        case presenceKept(String, ServerAnswer)
        case publicationChanged(Publications.Change)
        case publicationRefused(String, ServerAnswer)
        case dropped(Int)
        case granted(MQTTClientMachine.Connected)
        /// The server had a session that is not known here, and has to discard it.
        case unknownSession
        /// The server had an older copy of the session, from before it continued elsewhere.
        case olderCopy
        /// Another device now has the session's identity.
        case displaced(Reason)
        case cannotLook(String)
        case credentialNotRenewed(String)
        case credentialTaken
        case successorFailed(String)
    }
}

/// What the session machine reported, and the state of the session at that moment.
package struct Report: Sendable {
    package let event: SessionMachine.Event
    package let instant: Instant
    package let time: Timestamp
    package let status: SessionMachine.Status
    /// The address of the endpoint in `status`.
    package let address: Endpoint?
    /// The address of the endpoint in `event`.
    package let eventAddress: Endpoint?
    package let liveness: SessionMachine.Liveness?
    package let credentialEnd: Timestamp?
    package let room: String?
}
