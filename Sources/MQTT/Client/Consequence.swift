/// What a reason code of the server means for the client (2.4, 4.13): one cell of the table ``rows``.
public struct Consequence: Hashable, Sendable {
    /// Every code that is treated differently from an unlisted one. No combination of code and place occurs twice.
    public static let rows: [Row] = [
        Row([.unspecifiedError, .implementationSpecificError], ending, .retry, [.slowly]),
        Row([.malformedPacket, .protocolError], [.connack], .retryOnce),
        Row([.malformedPacket, .protocolError], [.disconnect], .retryOnce, [.quarantine, .cleanStart]),
        Row([.unsupportedProtocolVersion, .clientIdentifierNotValid], ending, .terminal),
        Row([.badUserNameOrPassword, .notAuthorized], ending, .change, [.renewCredential]),
        Row([.serverUnavailable, .serverBusy], ending, .retry, [.floor, .nextEndpoint]),
        Row([.banned, .badAuthenticationMethod], ending, .terminal),
        Row([.serverShuttingDown], ending, .retry, [.spread, .nextEndpoint]),
        Row([.keepAliveTimeout], ending, .retry, [.atOnce, .shortenKeepAlive]),
        Row([.sessionTakenOver], ending, .terminal, [.displaced]),
        Row([.topicFilterInvalid, .topicNameInvalid], [.disconnect], .change, [.quarantine]),
        Row([.packetIdentifierInUse], [.acknowledgement, .subscription], .operation, [.retireIdentifier]),
        Row([.packetIdentifierInUse, .packetIdentifierNotFound], ending, .change, [.atOnce, .cleanStart]),
        Row([.packetIdentifierNotFound], [.release], .success),
        Row([.receiveMaximumExceeded], [.disconnect], .change, [.atOnce, .halveWindow]),
        Row([.topicAliasInvalid], [.disconnect], .change, [.atOnce, .noAliases]),
        Row([.packetTooLarge], ending, .change, [.quarantine]),
        Row([.messageRateTooHigh], ending, .change, [.floor, .halveWindow]),
        Row([.quotaExceeded], ending, .retry, [.slowly]),
        Row([.quotaExceeded], [.acknowledgement], .operation, [.unlessEnded]),
        Row([.administrativeAction], ending, .terminal, [.removed]),
        Row([.payloadFormatInvalid], [.disconnect], .change, [.quarantine]),
        Row([.retainNotSupported, .qosNotSupported], ending, .terminal),
        Row([.useAnotherServer], ending, .change, [.follow]),
        Row([.serverMoved], ending, .change, [.follow, .remember]),
        Row(
            [
                .sharedSubscriptionsNotSupported, .subscriptionIdentifiersNotSupported,
                .wildcardSubscriptionsNotSupported,
            ], [.disconnect], .change, [.quarantine]),
        Row([.connectionRateExceeded], ending, .retry, [.doubledFloor]),
        Row([.maximumConnectTime], ending, .retry, [.renewCredential]),
    ]

    /// The packets that end a connection, or refuse one.
    private static let ending: [Place] = [.connack, .disconnect]

    /// What happens to the connection.
    public let `class`: Class
    /// What else is done.
    public let measures: Set<Measure>

    public init(_ class: Class, _ measures: Set<Measure> = []) {
        self.class = `class`
        self.measures = measures
    }

    /// What the code means in that place. An unlisted error ends an attempt, which is then repeated, or fails the
    /// operation.
    public init(of code: ReasonCode, in place: Place) {
        if let listed = Self.cells[Cell(code: code, place: place)] {
            self = listed
            return
        }
        switch place {
        case .connack, .disconnect: self.init(.retry)
        case .acknowledgement, .release, .subscription: self.init(code.isError ? .operation : .success)
        }
    }

    private struct Cell: Hashable {
        let code: ReasonCode
        let place: Place
    }

    private static let cells = Dictionary(
        uniqueKeysWithValues: rows.flatMap { row in
            row.codes.flatMap { code in row.places.map { (Cell(code: code, place: $0), row.consequence) } }
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
        /// What they mean there.
        public let consequence: Consequence

        init(_ codes: [ReasonCode], _ places: [Place], _ class: Class, _ measures: Set<Measure> = []) {
            self.codes = codes
            self.places = places
            consequence = Consequence(`class`, measures)
        }
    }

    /// Where a reason code was read. The same number means different things in different packets.
    public enum Place: Hashable, Sendable, CaseIterable {
        case connack
        case disconnect
        /// PUBACK and PUBREC.
        case acknowledgement
        /// PUBREL and PUBCOMP.
        case release
        /// SUBACK and UNSUBACK.
        case subscription
    }

    /// What happens to the connection.
    public enum Class: Hashable, Sendable, CaseIterable {
        /// Trying again changes nothing: the session fails.
        case terminal
        /// Tried again, later.
        case retry
        /// Tried again; if the answer is the same, terminal.
        case retryOnce
        /// Tried again with the measures that go with it.
        case change
        /// The operation fails, and the connection stays.
        case operation
        /// Not a failure.
        case success
    }

    /// What else is done.
    public enum Measure: Hashable, Sendable, CaseIterable {
        /// The next attempt is made without a delay, unless the last one was made without one.
        case atOnce
        /// The next attempt waits at least as long as after a busy server.
        case slowly
        /// The shortest delay doubles each time.
        case floor
        /// Like `floor`, but starting at twice its value.
        case doubledFloor
        /// The first delay is random.
        case spread
        /// The next attempt is made at another endpoint, if there is one.
        case nextEndpoint
        /// The message or filter for which the server ended the connection is found and set aside.
        case quarantine
        /// After a resume: the server's session is discarded.
        case cleanStart
        /// The credential is fetched again first.
        case renewCredential
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
        /// Another device has this session now.
        case displaced
        /// An administrator ended the session.
        case removed
    }
}

extension ReasonCode {
    /// Whether a DISCONNECT with this code may be about a packet that was sent before, whatever the standard intended
    /// the code for.
    var mayConcernPackets: Bool {
        switch self {
        // These are about the server, about the client as a whole, or about time.
        case .serverBusy, .serverShuttingDown, .keepAliveTimeout, .sessionTakenOver, .administrativeAction,
            .useAnotherServer, .serverMoved, .connectionRateExceeded, .maximumConnectTime:
            false
        default: true
        }
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
        case .quarantine: "what it may have been is set aside"
        case .cleanStart: "the session at the server is given up"
        }
    }
}
