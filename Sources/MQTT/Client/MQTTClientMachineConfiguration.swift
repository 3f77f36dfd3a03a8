extension MQTTClientMachine {
    /// What happens to a new message when the outbox is at its limit.
    public enum OverflowBehaviour: String, CaseIterable, Sendable {
        /// It is refused with `outboxFull`.
        case refuse
        /// It is accepted, and the oldest unsent messages are dropped; those on their way or in quarantine never are.
        case dropOldest = "drop-oldest"
        /// It is refused with `dropped`.
        case dropNew = "drop-new"
    }

    /// What happens to a new message for a durable consumer that is at its limit.
    public enum InboxOverflow: String, CaseIterable, Sendable {
        /// The oldest messages of that consumer are dropped, and counted.
        case dropOldest = "drop-oldest"
        /// Acknowledgements to the server are withheld, which holds up the session's other consumers as well.
        case withhold
    }

    /// What the outbox may hold, quarantined messages included.
    public struct OutboxLimits: Hashable, Sendable {
        public var messages = 100_000
        /// See ``OutboundMessage/size``.
        public var bytes = 256 << 20
        /// What happens at these limits.
        public var whenFull = OverflowBehaviour.refuse
        /// Milliseconds after which a message that was not sent is dropped; `nil`: never.
        public var maximumAge: Int64?
    }

    /// How much may wait for each durable consumer.
    public struct InboxLimits: Hashable, Sendable {
        public var messages = 100_000
        /// See ``OutboundMessage/size``.
        public var bytes = 256 << 20
        /// What happens at these limits.
        public var whenFull = InboxOverflow.dropOldest
        /// Bytes of messages that may wait to come into the inbox, for all consumers; a single message may be larger.
        public var waitingBytes = 8 << 20
    }

    /// How many messages are held in memory for one purpose.
    public struct MemoryBound: Hashable, Sendable {
        /// 1 or more.
        public var messages: Int
        /// See ``OutboundMessage/size``.
        public var bytes: Int
    }

    /// How much of what was sent may still be on its way to the kernel.
    public struct UnflushedBound: Hashable, Sendable {
        /// Bytes of messages. A single message of any size is always sent.
        public var bytes = 2 << 20
        /// Messages of QoS 0; 1 or more.
        public var qos0 = 256
    }

    /// What a session's configuration decides about the protocol.
    public struct Configuration: Sendable {
        /// The version of the next connection. It may differ from one connection to the next within one session.
        public var version: ProtocolVersion
        /// Empty asks the server to assign one, which is then kept. In MQTT 3.1.1 there is no session without one.
        public var clientID: String
        /// Seconds; what CONNECT asks for. The server's value comes with the `connected` event.
        public var keepAlive: UInt16 = 60
        /// Seconds that the server keeps the session; what CONNECT asks for. In MQTT 3.1.1 the server decides.
        public var sessionExpiry: UInt32 = 86_400
        /// Unacknowledged QoS 1 and 2 messages that we take from the server at once, 1 or more. A server that speaks
        /// MQTT 3.1.1 is not told, and may send more.
        public var receiveMaximum: UInt16 = 1024
        /// The largest packet that we take, in bytes, 1 or more. A server that speaks MQTT 3.1.1 is not told: a larger
        /// message is set aside, and any other larger packet ends the connection.
        public var maximumPacketSize: UInt32 = 16 << 20
        /// What the server publishes when we leave without saying goodbye. Used by the next CONNECT.
        public var will: Will?
        /// Our own bound on unacknowledged outbound QoS 1 and 2 messages, which are in memory, besides the server's
        /// Receive Maximum. A message of any size goes out if no other waits for its answer.
        public var inFlight = MemoryBound(messages: 1024, bytes: 16 << 20)
        /// What may be given to the transport and not yet flushed before sending pauses.
        public var unflushed = UnflushedBound()
        /// What is held in memory ahead of the window, whatever the size of the first message. The rest is in the store
        /// only.
        public var readAhead = MemoryBound(messages: 1024, bytes: 4 << 20)
        public var outbox = OutboxLimits()
        public var inbox = InboxLimits()
        /// Milliseconds that the server may take to answer a PUBLISH or PUBREL on a living connection.
        public var acknowledgeTimeout: Int64 = 60_000
        /// The same for SUBSCRIBE and UNSUBSCRIBE.
        public var requestTimeout: Int64 = 30_000
        /// Topic filters in one SUBSCRIBE or UNSUBSCRIBE, 1 or more. Some servers accept at most 8.
        public var filtersPerPacket = 8
        /// SUBSCRIBE and UNSUBSCRIBE packets that wait for their answers at once, 1 or more.
        public var maximumSubscribeRequests = 64
        /// Packets that are processed with one input, 1 or more. If there were more, `isBehind` is set, and others on
        /// the same thread can have their turn before `readOn`.
        public var packetsPerInput = Int.max
        /// How many packets a PUBLISH counts for in that share: a message with many receivers costs more.
        public var messageWeight = 1

        /// Whether MQTT 3.1.1 is used although the server may speak MQTT 5. Then a message that needs MQTT 5 ends the
        /// connection, with `versionInsufficient`, instead of being refused.
        public var isVersionTentative = false

        public init(version: ProtocolVersion = .five, clientID: String) {
            self.version = version
            self.clientID = clientID
        }
    }
}
