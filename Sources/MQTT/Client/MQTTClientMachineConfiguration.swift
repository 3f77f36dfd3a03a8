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

    /// What a session's configuration decides about the protocol.
    public struct Configuration: Sendable {
        /// The version of the next connection. It may differ from one connection to the next within one session.
        public var version: ProtocolVersion
        /// Empty asks the server to assign one, which is then kept. In MQTT 3.1.1 there is no session without one.
        public var clientID: String
        /// Seconds; what CONNECT asks for. The server's value comes with the `connected` event.
        public var keepAlive: UInt16
        /// Seconds that the server keeps the session; what CONNECT asks for. In MQTT 3.1.1 the server decides.
        public var sessionExpiry: UInt32
        /// Unacknowledged QoS 1 and 2 messages that we take from the server at once, 1 or more. A server that speaks
        /// MQTT 3.1.1 is not told, and may send more.
        public var receiveMaximum: UInt16
        /// The largest packet that we take, in bytes, 1 or more. A server that speaks MQTT 3.1.1 is not told: a larger
        /// message is set aside, and any other larger packet ends the connection.
        public var maximumPacketSize: UInt32
        /// What the server publishes when we leave without saying goodbye. Used by the next CONNECT.
        public var will: Will?
        /// Our own bound on unacknowledged outbound QoS 1 and 2 messages, besides the server's Receive Maximum; 1 or more.
        public var maximumInFlight: Int
        /// Bytes of messages that may be given to the transport and not yet flushed before sending pauses. A single
        /// message of any size is always sent.
        public var maximumUnflushedBytes: Int
        /// QoS 0 messages that may be given to the transport and not yet flushed before sending pauses; 1 or more.
        public var maximumUnflushedQoS0: Int
        /// Messages, and bytes of messages, that are held in memory ahead of the window. The rest is in the store only.
        public var readAheadMessages: Int
        /// Bytes, see ``OutboundMessage/size``; the first message counts whatever its size.
        public var readAheadBytes: Int
        /// Messages, and bytes of messages, that the outbox holds, quarantined ones included.
        public var outboxMaxMessages: Int
        /// Bytes, see ``OutboundMessage/size``.
        public var outboxMaxBytes: Int
        /// What happens at that limit.
        public var whenFull: OverflowBehaviour
        /// Milliseconds after which a message that was not sent is dropped; `nil`: never.
        public var maximumAge: Int64?
        /// Messages, and bytes of messages, that may wait for each durable consumer.
        public var inboxMaxMessages: Int
        /// Bytes, see ``OutboundMessage/size``.
        public var inboxMaxBytes: Int
        /// What happens at that limit.
        public var inboxWhenFull: InboxOverflow
        /// Bytes of messages that may wait for the inbox; a single message may be larger.
        public var maximumWaitingBytes: Int
        /// Milliseconds that the server may take to answer a PUBLISH or PUBREL on a living connection.
        public var acknowledgeTimeout: Int64
        /// The same for SUBSCRIBE and UNSUBSCRIBE.
        public var requestTimeout: Int64
        /// Topic filters in one SUBSCRIBE or UNSUBSCRIBE, 1 or more. Some servers accept at most 8.
        public var filtersPerPacket: Int
        /// SUBSCRIBE and UNSUBSCRIBE packets that wait for their answers at once, 1 or more.
        public var maximumSubscribeRequests: Int
        /// Packets that are processed with one input, 1 or more. If there were more, `isBehind` is set, and others on
        /// the same thread can have their turn before `readOn`.
        public var packetsPerInput: Int

        public init(
            version: ProtocolVersion = .five,
            clientID: String,
            keepAlive: UInt16 = 60,
            sessionExpiry: UInt32 = 86_400,
            receiveMaximum: UInt16 = 1024,
            maximumPacketSize: UInt32 = 16 << 20,
            will: Will? = nil,
            maximumInFlight: Int = 1024,
            maximumUnflushedBytes: Int = 1 << 20,
            maximumUnflushedQoS0: Int = 256,
            readAheadMessages: Int = 1024,
            readAheadBytes: Int = 4 << 20,
            outboxMaxMessages: Int = 100_000,
            outboxMaxBytes: Int = 256 << 20,
            whenFull: OverflowBehaviour = .refuse,
            maximumAge: Int64? = nil,
            inboxMaxMessages: Int = 100_000,
            inboxMaxBytes: Int = 256 << 20,
            inboxWhenFull: InboxOverflow = .dropOldest,
            maximumWaitingBytes: Int = 8 << 20,
            acknowledgeTimeout: Int64 = 60_000,
            requestTimeout: Int64 = 30_000,
            filtersPerPacket: Int = 8,
            maximumSubscribeRequests: Int = 64,
            packetsPerInput: Int = .max
        ) {
            self.version = version
            self.clientID = clientID
            self.keepAlive = keepAlive
            self.sessionExpiry = sessionExpiry
            self.receiveMaximum = receiveMaximum
            self.maximumPacketSize = maximumPacketSize
            self.will = will
            self.maximumInFlight = maximumInFlight
            self.maximumUnflushedBytes = maximumUnflushedBytes
            self.maximumUnflushedQoS0 = maximumUnflushedQoS0
            self.readAheadMessages = readAheadMessages
            self.readAheadBytes = readAheadBytes
            self.outboxMaxMessages = outboxMaxMessages
            self.outboxMaxBytes = outboxMaxBytes
            self.whenFull = whenFull
            self.maximumAge = maximumAge
            self.inboxMaxMessages = inboxMaxMessages
            self.inboxMaxBytes = inboxMaxBytes
            self.inboxWhenFull = inboxWhenFull
            self.maximumWaitingBytes = maximumWaitingBytes
            self.acknowledgeTimeout = acknowledgeTimeout
            self.requestTimeout = requestTimeout
            self.filtersPerPacket = filtersPerPacket
            self.maximumSubscribeRequests = maximumSubscribeRequests
            self.packetsPerInput = max(1, packetsPerInput)
        }
    }
}
