public import NIOCore
@_exported public import Vocabulary

/// The number of a `commit` action: in order for each machine, from the start of the daemon.
public struct CommitNumber: Hashable, Comparable, Sendable {
    /// 1 or more; 0 is before the first.
    public let rawValue: UInt64

    public static func < (left: CommitNumber, right: CommitNumber) -> Bool { left.rawValue < right.rawValue }
}

/// The number of a `send` action whose flush is reported: in order for each machine, over all its connections.
public struct FlushNumber: Hashable, Comparable, Sendable {
    /// 1 or more; 0 is before the first.
    public let rawValue: UInt64

    public static func < (left: FlushNumber, right: FlushNumber) -> Bool { left.rawValue < right.rawValue }
}

/// What identifies us to the server, for one CONNECT.
public struct MQTTCredentials: Hashable, Sendable {
    /// At most 65,535 UTF-8 bytes.
    public var username: String?
    /// At most 65,535 bytes. In MQTT 3.1.1 it requires a user name, so an empty one is sent if there is none.
    public var password: ByteBuffer?
    /// Enhanced authentication (4.12); there should be no password then. Not with MQTT 3.1.1.
    public var authentication: SCRAMClient?

    public init(username: String? = nil, password: ByteBuffer? = nil, authentication: SCRAMClient? = nil) {
        self.username = username
        self.password = password
        self.authentication = authentication
    }
}

extension MQTTClientMachine {
    /// What happened, or what was asked. Publishing and subscribing are methods of their own, since they can fail.
    public enum Input: Sendable {
        /// The transport is up: send CONNECT. Only at first, or after `connectionClosed`. `forceCleanStart` gives up
        /// the server's session, not our messages.
        case connectionOpened(MQTTCredentials, forceCleanStart: Bool, expecting: ExpectedSession = ExpectedSession())
        /// Bytes from the server. Late bytes of a connection that was closed are ignored.
        case received(ByteBuffer)
        /// Process what was received and not processed yet; only if `isBehind`.
        case readOn
        /// The transport is gone, for whatever reason, also after `close`. Bytes given to it may or may not have arrived.
        case connectionClosed
        /// The same, when what was sent may be the reason.
        case connectionEnded(EndCause)
        /// Send PINGREQ, if connected.
        case ping
        /// The connection is about to be left for another one: nothing new is begun on it. `settled` follows when
        /// nothing is in flight.
        case settle
        /// The connection is kept after all.
        case stopSettling
        /// Leave: DISCONNECT with this code, then `close`.
        case disconnect(ReasonCode)
        case unsubscribe(TopicFilter)
        /// Every commit up to this one is durable.
        case committed(CommitNumber)
        /// Every commit before this one is durable, and so is this one, but without its inserts: there was no room for
        /// them. Everything else in it must be retried by the driver until it succeeds.
        case committedWithoutInserts(CommitNumber)
        /// The answer to `load`. Messages in order; empty if there are none.
        case loaded([StoredMessage])
        /// Everything up to this flush was handed to the kernel.
        case flushed(FlushNumber)
        /// Time has passed: drop what is too old or expired at the head of the queue, and look for overdue answers.
        /// Such messages are never sent in any case; this only reports them, and makes room, while there is no
        /// connection. Due at `nextDeadline`.
        case timePassed
        /// The wall clock was set forward by this many milliseconds. What was accepted within the range, by the clock
        /// as it was, keeps its age.
        case clockStepped(by: Int64, acceptedWithin: ClosedRange<Timestamp>)
        /// The answer to `challenged`.
        case keyDerived(SCRAMClient.Key)
        /// Send a new credential to the server on this connection; only if `canReauthenticate`. `reauthenticated`
        /// follows, or the server ends the connection, or nothing if the server does not answer.
        case reauthenticate(SCRAMClient)
        /// Something about a durable consumer. What it changes is durable with the next commit.
        case consumer(ConsumerName, ConsumerInput)
        /// Try again to put messages into the inbox, a moment after `collectingPaused`.
        case resumeCollecting
        /// The server's session is to be discarded: it is not claimed any more, and that is durable with the next commit.
        case forgetSession
    }

    /// What the driver does, in this order. It must not call back into the machine before all actions are carried out.
    public enum Action: Hashable, Sendable {
        case event(Event)
        /// Make the changes durable, then answer `committed`. May be done together with other commits.
        case commit([DurableChange], CommitNumber)
        /// Read `queued` messages with a sequence above `after`, in order: at most `messages` of them and, except for
        /// the first, at most `bytes` (sum of `size`). The read must see every commit issued before. Answer `loaded`,
        /// even if there are none. At most one is outstanding.
        case load(after: MessageSequence, messages: Int, bytes: Int)
        /// Write the bytes. With a number, answer `flushed` when the kernel has them (unless the connection closes
        /// first).
        case send(ByteBuffer, flush: FlushNumber?)
        /// Close the connection when all that was sent before is flushed, then answer `connectionClosed`.
        case close
    }

    /// What happened, for the user of the machine.
    public enum Event: Hashable, Sendable {
        /// CONNACK with success.
        case connected(Connected)
        /// CONNACK with 0x80 or more; `close` accompanies it.
        case refused(ServerReason)
        /// Every wanted subscription was answered for, granted or not. Once after each `connected`.
        case restored
        /// The server leaves something unanswered, as the sentence says, with what that means for what was sent;
        /// DISCONNECT and `close` accompany it.
        case unanswered(String, EndFinding?)
        /// This many messages of QoS 2 are sent again in a new session, and may arrive twice: the server lost the
        /// session before it said whether it had them.
        case repeated(Int)
        /// PINGRESP.
        case pingAnswered
        /// After `settle`: everything that was begun on the connection is finished, and the server knows it.
        case settled
        /// The message is durable.
        case accepted(MessageSequence)
        /// After `retry`: the message is durable under its new sequence.
        case requeued(MessageSequence)
        /// The store had no room: the message is forgotten, as if never published.
        case notAccepted(MessageSequence)
        /// PUBACK, or PUBCOMP, or flushed for QoS 0. The code is below 0x80.
        case delivered(MessageSequence, ReasonCode)
        /// The server refuses the message, or announced limits that rule it out; it is quarantined.
        case rejected(RejectedMessage)
        /// The message is removed, and is not sent, or not sent again.
        case dropped(DroppedMessage)
        /// The server treats QoS 2 as QoS 1: it answers with PUBACK, so that messages to it may arrive twice after an
        /// outage. Reported once, and only in MQTT 3.1.1, where a server has no other way to say so.
        case serverLowersQoS
        /// A message from the server, for live subscribers.
        case received(InboundMessage)
        /// A message from the server has unusable content: it is acknowledged, but not delivered.
        case messageRefused(RefusedMessage)
        /// These messages for durable consumers are in the inbox, in order; at least one.
        case collected([InboxMessage])
        /// The store had no room for messages of the inbox. They wait for `resumeCollecting`, unacknowledged.
        case collectingPaused
        /// The inbox has reached its limit and acknowledgements are withheld (`true`), or no longer (`false`).
        case inboxFull(Bool)
        /// The oldest messages of a full consumer were dropped, up to this one.
        case consumerMissed(ConsumerName, through: InboxSequence, count: Int)
        /// A QoS 0 message with this topic found no room in the inbox, and the server will not send it again.
        case inboxDropped(String)
        /// The answer to a wanted subscription: the granted QoS, or a refusal. Also after a reconnect.
        case subscribed(TopicFilter, ServerAnswer)
        /// The server's answer to a wanted subscription differs from the one before; see `subscriptionState(of:)`.
        case subscriptionChanged(TopicFilter)
        case unsubscribed(TopicFilter, ReasonCode)
        case announced(Announcement, ServerAnswer)
        /// DISCONNECT from the server; `close` accompanies it. Never in MQTT 3.1.1.
        case disconnectedByServer(ServerReason)
        /// The server broke the protocol; DISCONNECT with this code is sent if that is allowed, and `close` accompanies
        /// it. In MQTT 3.1.1 there is no such DISCONNECT. What it means for what was sent comes with it.
        case protocolViolation(ReasonCode, String, EndFinding?)
        /// A message needs MQTT 5, and `isVersionTentative` is set; DISCONNECT and `close` accompany it.
        case versionInsufficient
        /// The server speaks another protocol; `close` accompanies it.
        case foreignProtocol(ForeignProtocol)
        /// The two sides disagree about the session, and a new one must be begun; DISCONNECT and `close` accompany it.
        case stateMismatch(String)
        /// The server has a session of this client, of which nothing was ever known here, or nothing is left. It is
        /// discarded, with the messages that the server keeps in it; `stateMismatch` follows.
        case unknownSession
        /// The server's session was discarded, by a connection made only for that, and the next one begins a new
        /// session; DISCONNECT and `close` accompany it. In MQTT 3.1.1 only. A server that forgets it late would find it
        /// again at once.
        case discarded(isForgottenLate: Bool)
        /// The server asks for our proof: derive the key, which takes a while, and give it with `keyDerived`.
        case challenged(SCRAMClient.Challenge)
        /// The new credential is in force.
        case reauthenticated
        /// The two sides have not proven themselves to each other; DISCONNECT and `close` accompany it.
        case authenticationFailed(SCRAMClient.Failure)
    }

    /// What the server said when it refused or ended the connection.
    public struct ServerReason: Hashable, Sendable {
        /// 0x80 or more (2.4).
        public var code: ReasonCode
        /// For people.
        public var reasonString: String?
        /// Another server, with 0x9C and 0x9D.
        public var serverReference: String?
        /// What was changed because of it, for the next connection.
        public var remedies: [Remedy] = []
        /// What it means for what was sent; `nil` if it is not about that.
        public var finding: EndFinding?

        public init(code: ReasonCode, reasonString: String? = nil, serverReference: String? = nil) {
            self.code = code
            self.reasonString = reasonString?.plain()
            self.serverReference = serverReference?.plain()
        }
    }

    /// What a CONNACK said.
    public struct Connected: Hashable, Sendable {
        /// What the server had of the session.
        public var found: Found
        /// The client identifier in use, ours or the server's.
        public var clientID: String
        /// Seconds, 0 is off: the server's value, else ours.
        public var keepAlive: UInt16
        /// The server's value; `nil` if it gave none.
        public var serverKeepAlive: UInt16?
        /// Seconds: the server's value, else ours; in MQTT 3.1.1 the server does not say.
        public var sessionExpiry: UInt32
        /// What the server can do.
        public var limits: ServerLimits

        /// What a server had of the session when it was connected to.
        public enum Found: Hashable, Sendable {
            /// Nothing, so a new one begins.
            case nothing(wasClaimed: Bool)
            /// An older copy: what that has is continued, and everything else is set up again.
            case olderCopy
            /// The session, as it is known here.
            case resumed(Certainty)
        }

        /// Whether a resumed session is the one that we remember.
        public enum Certainty: Hashable, Sendable {
            /// After a start of the daemon, after a CONNECT without an answer, because the server may have begun a new one
            /// then, and where an older copy may be beside it.
            case uncertain
            /// It is, though perhaps in an older state: ``Continuity`` is not proven.
            case probable
            /// It is, in the state that we remember.
            case certain
        }

        /// Whether the server still had the session, as it is known here.
        public var resumed: Bool { if case .resumed = found { true } else { false } }
        /// Whether it was resumed and is the session that we remember, though perhaps in an older state.
        public var isProbable: Bool { found == .resumed(.probable) || isCertain }
        /// Whether it was resumed in the state that we remember.
        public var isCertain: Bool { found == .resumed(.certain) }
    }

    /// What the server can do, with the standard's defaults filled in (3.2.2.3).
    public struct ServerLimits: Hashable, Sendable {
        /// Unacknowledged QoS 1 and 2 messages that it takes at once, 1...65,535; in MQTT 3.1.1 it does not say.
        public var receiveMaximum: Int
        /// The highest QoS that may be published.
        public var maximumQoS: QoS
        /// Whether it retains messages.
        public var retainAvailable: Bool
        /// Bytes.
        public var maximumPacketSize: Int
        /// Whether filters may have `+` and `#`.
        public var wildcardSubscriptions: Bool
        /// Whether filters may begin with `$share/` (4.8.2).
        public var sharedSubscriptions: Bool
        /// Whether a subscription may have an identifier, which comes with its messages.
        public var subscriptionIDs: Bool
        /// The highest alias that we may use; 0 means none.
        public var topicAliasMaximum: UInt16
        /// Whether messages may have properties that MQTT 3.1.1 cannot express.
        public var messageProperties: Bool

        /// A server that speaks MQTT 3.1.1 cannot say how many messages it accepts before the first is finished, and
        /// closes the connection when there is one more. mosquitto accepts 20 unless configured otherwise, and few
        /// servers accept fewer.
        static let olderReceiveMaximum = 20

        /// - Parameters:
        ///   - connack: what the server said.
        ///   - version: MQTT 3.1.1 has no shared subscriptions, and no properties of messages.
        public init(_ connack: Connack.Properties = Connack.Properties(), _ version: ProtocolVersion = .five) {
            receiveMaximum = version == .five ? Int(connack.receiveMaximum ?? .max) : Self.olderReceiveMaximum
            maximumQoS = connack.maximumQoS ?? .exactlyOnce
            retainAvailable = connack.retainAvailable ?? true
            maximumPacketSize = connack.maximumPacketSize.map { Int($0) } ?? Packet.maximumLength
            wildcardSubscriptions = connack.wildcardSubscriptionAvailable ?? true
            sharedSubscriptions = version == .five && connack.sharedSubscriptionAvailable ?? true
            subscriptionIDs = version == .five && connack.subscriptionIDsAvailable ?? true
            topicAliasMaximum = connack.topicAliasMaximum ?? 0
            messageProperties = version == .five
        }
    }

    /// A message from the server.
    public struct InboundMessage: Hashable, Sendable {
        /// A topic name (4.7).
        public var topic: String
        /// A slice of the bytes that arrived.
        public var payload: ByteBuffer
        /// The QoS with which it was sent to us: at most the one subscribed to.
        public var qos: QoS
        /// Whether it was there before we subscribed, unless Retain As Published says otherwise (3.3.1.3).
        public var retain: Bool
        /// The server may have sent it before.
        public var duplicate: Bool
        /// As the publisher gave them, and the subscription identifiers.
        public var properties: Publish.Properties
        /// The filters that the server sent it for, as far as it says so; see ``isFor(_:)``.
        public var filters: Set<TopicFilter>?

        public init(
            topic: String, payload: ByteBuffer, qos: QoS, retain: Bool, duplicate: Bool, properties: Publish.Properties,
            filters: Set<TopicFilter>? = nil
        ) {
            self.filters = filters
            self.topic = topic
            self.payload = payload
            self.qos = qos
            self.retain = retain
            self.duplicate = duplicate
            self.properties = properties
        }
    }

    /// A message from the server that is not delivered.
    public struct RefusedMessage: Hashable, Sendable {
        /// As the server sent it, with invalid UTF-8 replaced; for people. It may be empty, and contain anything.
        public var topic: String
        /// The QoS with which it was sent to us.
        public var qos: QoS
        /// What is wrong with it.
        public var flaw: MalformedPacket
    }

    /// Why a message is not accepted.
    public enum PublishError: Error, Hashable, Sendable {
        case invalidTopic(InvalidTopic)
        /// A property that MQTT cannot express; the sentence says which.
        case invalidProperty(String)
        /// The outbox is at its limit of messages or bytes, and nothing in it may be dropped for this one.
        case outboxFull
        /// The message has more bytes than the outbox may have altogether.
        case largerThanOutbox(size: Int, limit: Int)
        /// The same, and the configuration says that new messages are dropped then.
        case dropped
        /// Larger than the connected server takes, or than MQTT can express. Bytes of the packet, and the limit.
        case tooLarge(Int, limit: Int)
        /// The connected server accepts no higher QoS than this.
        case qosNotSupported(maximum: QoS)
        /// The connected server does not retain messages.
        case retainNotSupported
        /// MQTT 3.1.1 has no properties of messages.
        case propertiesNotSupported
        /// It has expired.
        case expired
    }

    /// A message that was accepted, and then refused by the server or because of its limits.
    public struct RejectedMessage: Hashable, Sendable {
        /// Which message.
        public var sequence: MessageSequence
        /// A topic name (4.7); `nil` if only PUBREL was left to send, so that the message was no longer kept.
        public var topic: String?
        /// 0x80 or higher; `nil` if the server has not said why.
        public var code: ReasonCode?
        /// What the server said besides the code, or why it was set aside without one.
        public var words: String?
    }

    /// A message that was removed, and is not sent, or not sent again.
    public struct DroppedMessage: Hashable, Sendable {
        /// Which message.
        public var sequence: MessageSequence
        /// A topic name (4.7).
        public var topic: String
        /// Why.
        public var reason: DropReason
    }

    /// Why a message is dropped.
    public enum DropReason: Hashable, Sendable {
        /// It had expired.
        case expired
        /// It had waited longer than the configuration allows.
        case tooOld
        /// It was the oldest one when there was no room for a new one.
        case outboxFull
        /// A person dropped it.
        case discarded
    }

    /// How many messages there are, and in which state, including those that are not committed yet.
    public struct Counts: Hashable, Sendable {
        /// Waiting for the connection, or for room in the window.
        public var queued = 0
        /// In flight or released.
        public var inFlight = 0
        /// Refused; kept for a person to decide.
        public var quarantined = 0
        /// The sum of `size` over all of them.
        public var bytes = 0

        /// All of them.
        public var total: Int { queued + inFlight + quarantined }
    }
}
