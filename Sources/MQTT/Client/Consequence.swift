/// What the client does besides trying again, or besides failing the operation, when the server gives a reason code
/// (2.4, 4.13). Whether it tries again at all follows from the session's reason.
public enum Consequence {
    /// Every code that calls for something. No combination of code and place occurs twice.
    public static let rows: [Row] = [
        Row([.unspecifiedError, .implementationSpecificError, .quotaExceeded], ending, [.slow]),
        Row([.malformedPacket, .protocolError], [.connack], [.failIfRepeated]),
        Row([.malformedPacket, .protocolError], [.disconnect], [.failIfRepeated, .quarantine, .cleanStart]),
        Row([.serverUnavailable], ending, [.floor, .nextEndpoint]),
        Row([.serverBusy], ending, [.floor, .nextEndpoint, .blameNoPacket]),
        Row([.serverShuttingDown], ending, [.nextEndpoint, .blameNoPacket]),
        Row([.keepAliveTimeout], ending, [.atOnce, .shortenKeepAlive, .blameNoPacket]),
        Row([.sessionTakenOver, .administrativeAction, .maximumConnectTime], ending, [.blameNoPacket]),
        Row([.packetIdentifierInUse], [.acknowledgement, .subscription], [.retireIdentifier]),
        Row([.packetIdentifierInUse, .packetIdentifierNotFound], ending, [.atOnce, .cleanStart]),
        Row([.receiveMaximumExceeded], [.disconnect], [.atOnce, .halveWindow]),
        Row([.topicAliasInvalid], [.disconnect], [.atOnce, .noAliases]),
        Row([.messageRateTooHigh], ending, [.floor, .halveWindow]),
        Row([.quotaExceeded], [.acknowledgement], [.unlessEnded]),
        Row(
            [
                .topicFilterInvalid, .topicNameInvalid, .packetTooLarge, .payloadFormatInvalid,
                .sharedSubscriptionsNotSupported, .subscriptionIdentifiersNotSupported,
                .wildcardSubscriptionsNotSupported,
            ], [.disconnect], [.quarantine]),
        Row([.useAnotherServer], ending, [.follow, .blameNoPacket]),
        Row([.serverMoved], ending, [.follow, .remember, .blameNoPacket]),
        Row([.connectionRateExceeded], ending, [.doubledFloor, .blameNoPacket]),
    ]

    /// The packets that end a connection, or refuse one.
    private static let ending: [Place] = [.connack, .disconnect]

    /// Returns what the code calls for there.
    public static func measures(for code: ReasonCode, in place: Place) -> Set<Measure> {
        cells[Cell(code: code, place: place)] ?? []
    }

    private struct Cell: Hashable {
        let code: ReasonCode
        let place: Place
    }

    private static let cells = Dictionary(
        uniqueKeysWithValues: rows.flatMap { row in
            row.codes.flatMap { code in row.places.map { (Cell(code: code, place: $0), row.measures) } }
        })
}

// MARK: The words of the table

extension Consequence {
    /// Reason codes, the packets that they are read in, and what to do.
    public struct Row: Hashable, Sendable {
        /// The reason codes of the row.
        public let codes: [ReasonCode]
        /// Where they are read.
        public let places: [Place]
        /// What they call for there.
        public let measures: Set<Measure>

        init(_ codes: [ReasonCode], _ places: [Place], _ measures: Set<Measure>) {
            (self.codes, self.places, self.measures) = (codes, places, measures)
        }
    }

    /// Where a reason code was read. The same number means different things in different packets.
    public enum Place: Hashable, Sendable, CaseIterable {
        case connack
        case disconnect
        /// PUBACK and PUBREC.
        case acknowledgement
        /// SUBACK and UNSUBACK.
        case subscription
    }

    /// What the client does.
    public enum Measure: Hashable, Sendable, CaseIterable {
        /// The next attempt is made without a delay, unless the last one was made without one.
        case atOnce
        /// The next attempt waits at least as long as after a busy server.
        case slow
        /// The shortest delay doubles each time.
        case floor
        /// Like `floor`, but starting at twice its value.
        case doubledFloor
        /// The next attempt is made at another endpoint, if there is one.
        case nextEndpoint
        /// If the answer to the next attempt is the same, the session fails.
        case failIfRepeated
        /// The message or filter for which the server ended the connection is found and set aside.
        case quarantine
        /// No packet that was sent before is suspected: the code is about the server, about the client as a whole, or
        /// about time.
        case blameNoPacket
        /// After a resume: the server's session is discarded.
        case cleanStart
        /// If it repeats, the keep-alive is shortened.
        case shortenKeepAlive
        /// Half as many messages are sent ahead of their acknowledgements.
        case halveWindow
        /// The refusal counts only if the connection lasts. If it ends, the message is sent again, and half as many are
        /// sent ahead of their acknowledgements.
        case unlessEnded
        /// Topic aliases are no longer used.
        case noAliases
        /// The packet identifier is no longer used; if it repeats, a full reconnect.
        case retireIdentifier
        /// The Server Reference is followed where that is allowed.
        case follow
        /// Like `follow`, but later attempts follow it as well.
        case remember
    }
}

/// What the machine changed so that the server does not end the next connection for the same reason.
public enum Remedy: Hashable, Sendable {
    /// At most this many messages are sent ahead of their acknowledgements.
    case window(Int)
    /// Topic aliases are no longer used.
    case noAliases
    /// The keep-alive from now on, in seconds; not before the second such end.
    case keepAlive(UInt16)
    /// Packets that may have been the reason are sent one by one on the next connection.
    case isolation
    /// One message or filter was set aside.
    case quarantine
    /// The server's session cannot be trusted: the next connection begins without it.
    case cleanStart
}

extension Remedy: CustomStringConvertible {
    /// What changes, as the end of a sentence.
    public var description: String {
        switch self {
        case .window(1): "from now on one message is sent at a time"
        case .window(let count): "from now on \(count) messages are sent at a time"
        case .noAliases: "from now on without topic aliases"
        case .keepAlive(let seconds): "from now on with a keep-alive of \(seconds) s"
        case .isolation: "what was unanswered is sent again one by one"
        case .quarantine: "the suspected message or filter is set aside"
        case .cleanStart: "the session at the server is given up"
        }
    }
}
