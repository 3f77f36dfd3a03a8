import MQTT
import NIOCore
import Support

/// Drives a machine one input at a time and shows what it does as sentences: one word for each action, packets decoded.
///
/// Commits are answered at once, unless `holdsCommits`; flushes never, unless a test does.
struct MQTTClientHarness {
    var machine: MQTTClientMachine
    var now = Timestamp(rawValue: 1_000_000)
    var holdsCommits = false
    var heldCommits: [CommitNumber] = []
    /// What the last packet that was not answered was found to mean.
    var lastFinding: MQTTClientMachine.EndFinding?
    var lastFlush: FlushNumber?
    var changes: [DurableChange] = []
    /// Every packet that was sent.
    var sent: [Packet] = []
    /// Every SUBSCRIBE that was sent.
    var subscribes: [Subscribe] = []
    /// Every PUBLISH that was sent.
    var publishes: [Publish] = []
    private var decoder = PeerDecoder()

    init(
        durable: DurableSession = DurableSession(),
        _ configure: (inout MQTTClientMachine.Configuration) -> Void = { _ in }
    ) {
        var configuration = MQTTClientMachine.Configuration(clientID: "me")
        configure(&configuration)
        machine = MQTTClientMachine(configuration: configuration, restoring: durable)
    }

    /// A durable session with these messages in flight.
    static func established(_ states: [StoredMessage.State] = [], qos: QoS = .exactlyOnce) -> DurableSession {
        var durable = DurableSession()
        durable.established = true
        for state in states {
            let message = OutboundMessage(
                topic: "t", payload: ByteBuffer(string: "\(durable.nextSequence)"), qos: qos)
            durable.inFlight.append(StoredMessage(sequence: durable.nextSequence, message: message, state: state))
            durable.nextSequence = durable.nextSequence.next
        }
        return durable
    }

    @discardableResult
    mutating func handle(_ input: MQTTClientMachine.Input) -> [String] {
        if case .connectionOpened = input { decoder = PeerDecoder(adoptsVersion: true) }
        var actions: [MQTTClientMachine.Action] = []
        machine.handle(input, at: now, into: &actions)
        return describe(actions)
    }

    /// The server sends these packets in one chunk.
    @discardableResult
    mutating func server(_ packets: Packet...) -> [String] {
        handle(.received(encoded(packets, in: machine.version)))
    }

    @discardableResult
    mutating func open(
        force: Bool = false, expecting expected: MQTTClientMachine.ExpectedSession = .init(continuity: .proven)
    ) -> [String] {
        handle(.connectionOpened(MQTTCredentials(), forceCleanStart: force, expecting: expected))
    }

    /// CONNECT and CONNACK. Unless a test says something else, the server was not restarted since the last connection.
    @discardableResult
    mutating func connect(
        resumed: Bool = false, _ properties: Connack.Properties = Connack.Properties(),
        expecting expected: MQTTClientMachine.ExpectedSession = .init(continuity: .proven)
    ) -> [String] {
        open(expecting: expected)
        return server(.connack(Connack(sessionPresent: resumed, properties: properties)))
    }

    /// The same, and the answer to the PINGREQ that has to show that the connection works, if there is one.
    @discardableResult
    mutating func connectAndProve(resumed: Bool = false) -> [String] {
        connect(resumed: resumed).filter { $0 != "PINGREQ" } + server(.pingresp)
    }

    func connected(resumed: Bool = false, _ properties: Connack.Properties = Connack.Properties()) -> Self {
        var connected = self
        connected.connect(resumed: resumed, properties)
        return connected
    }

    @discardableResult
    mutating func publish(_ payload: String, qos: QoS = .atLeastOnce, topic: String = "t", expiresIn: Int64? = nil)
        throws -> [String]
    {
        var actions: [MQTTClientMachine.Action] = []
        let message = OutboundMessage(
            topic: topic, payload: ByteBuffer(string: payload), qos: qos,
            expiresAt: expiresIn.map { Timestamp(rawValue: now.rawValue + $0) })
        _ = try machine.publish(message, at: now, into: &actions)
        return describe(actions)
    }

    /// Without the actions that follow.
    mutating func accept(_ payload: String) throws {
        _ = try machine.accept(OutboundMessage(topic: "t", payload: ByteBuffer(string: payload)), at: now)
    }

    mutating func commitAccepted() -> [String] {
        var actions: [MQTTClientMachine.Action] = []
        machine.commitAccepted(at: now, into: &actions)
        return describe(actions)
    }

    @discardableResult
    mutating func subscribe(_ filter: String, qos: QoS = .atLeastOnce) throws -> [String] {
        var actions: [MQTTClientMachine.Action] = []
        try machine.subscribe(Subscription(filter: filter, qos: qos), at: now, into: &actions)
        return describe(actions)
    }

    /// The server has ended each connection on which it was asked for "bad", until that filter was set aside.
    static func withFilterSetAside() throws -> Self {
        var client = Self()
        try client.subscribe("bad")
        for round in 0..<5 {
            client.connectAndProve(resumed: round > 0)
            client.handle(.connectionEnded(.byServer))
        }
        return client
    }

    /// The kernel has taken everything that was written.
    mutating func flush() {
        if let lastFlush { handle(.flushed(lastFlush)) }
    }

    /// Every commit is on the disk.
    @discardableResult
    mutating func commitAll() -> [String] {
        guard let last = heldCommits.popLast() else { return [] }
        heldCommits = []
        return handle(.committed(last))
    }

    mutating func describe(_ actions: [MQTTClientMachine.Action]) -> [String] {
        var words: [String] = []
        var commits: [CommitNumber] = []
        for action in actions {
            switch action {
            // Tests look at the states themselves.
            case .event(.subscriptionChanged): break
            case .event(let event):
                if case .unanswered(_, let finding) = event { lastFinding = finding }
                words.append(Self.describe(event))
            case .commit(let changes, let number):
                self.changes += changes
                commits.append(number)
                if holdsCommits { words.append("commit") }
            case .load(let after, _, _): words.append("load after \(after)")
            case .send(let bytes, let flush):
                if let flush { lastFlush = flush }
                decoder.append(bytes)
                while let packet = nextSent(&words) {
                    sent.append(packet)
                    if case .publish(let publish) = packet { publishes.append(publish) }
                    if case .subscribe(let subscribe) = packet { subscribes.append(subscribe) }
                    words.append(Self.describe(packet))
                }
            case .close: words.append("close")
            }
        }
        for number in commits {
            if holdsCommits { heldCommits.append(number) } else { words += handle(.committed(number)) }
        }
        return words
    }

    private mutating func nextSent(_ words: inout [String]) -> Packet? {
        do throws(MalformedPacket) {
            return try decoder.next()
        } catch {
            words.append("MALFORMED \(error)")
            return nil
        }
    }

    static func describe(_ event: MQTTClientMachine.Event) -> String {
        switch event {
        case .connected(let connected):
            "connected\(connected.resumed ? " resumed" : "")\(connected.found == .nothing(wasClaimed: true) ? " session lost" : "")"
        case .refused(let reason): "refused \(hex(reason.code))"
        case .restored: "restored"
        case .pingAnswered: "ping answered"
        case .settled: "settled"
        case .unanswered(let sentence, _): "unanswered: \(sentence)"
        case .repeated(let count): "repeated \(count)"
        case .accepted(let sequence), .requeued(let sequence): "accepted \(sequence)"
        case .notAccepted(let sequence): "not accepted \(sequence)"
        case .delivered(let sequence, let code): "delivered \(sequence) \(hex(code))"
        case .rejected(let message): "rejected \(message.sequence) \(message.code.map { hex($0) } ?? "without a code")"
        case .dropped(let dropped): Self.describe(dropped)
        case .serverLowersQoS: "QoS lowered"
        case .received(let message): "received \(String(buffer: message.payload))"
        case .messageRefused(let message): "refused \(hex(message.flaw.reasonCode)) \(message.topic)"
        case .collected(let messages): "collected \(messages.last?.message.sequence ?? .zero)"
        case .collectingPaused: "collecting paused"
        case .inboxFull(let isFull): isFull ? "inbox full" : "inbox has room"
        case .consumerMissed(let name, through: let sequence, let count): "\(name) missed \(count) to \(sequence)"
        case .inboxDropped(let topic): "dropped \(topic)"
        case .subscribed(let filter, let answer): "subscribed \(filter)\(text(answer))"
        case .subscriptionChanged(let filter): "subscription changed \(filter)"
        case .versionInsufficient: "version insufficient"
        case .foreignProtocol(let other): "foreign protocol \(other)"
        case .unsubscribed(let filter, let code): "unsubscribed \(filter) \(hex(code))"
        case .announced(let announcement, let answer): "announced \(announcement.topic)\(text(answer))"
        case .disconnectedByServer(let reason):
            "disconnected by server \(hex(reason.code))"
                + (reason.remedies.isEmpty ? "" : ": " + reason.remedies.map(\.description).joined(separator: ", "))
        case .protocolViolation(let code, _, _): "violation \(hex(code))"
        case .stateMismatch: "state mismatch"
        case .unknownSession: "unknown session"
        case .discarded(let isForgottenLate): isForgottenLate ? "discarded, late" : "discarded"
        case .challenged(let challenge): "challenged \(challenge.iterations)"
        case .reauthenticated: "reauthenticated"
        case .authenticationFailed(let failure): "failed: \(failure)"
        }
    }

    private static func describe(_ dropped: MQTTClientMachine.DroppedMessage) -> String {
        switch dropped.reason {
        case .expired: "expired \(dropped.sequence)"
        case .tooOld: "too old \(dropped.sequence)"
        case .outboxFull: "dropped \(dropped.sequence)"
        case .discarded: "discarded \(dropped.sequence)"
        }
    }

    static func describe(_ packet: Packet) -> String {
        switch packet {
        case .connect(let connect): "CONNECT\(connect.cleanStart ? " clean" : "")"
        case .publish(let publish):
            "PUBLISH \(String(buffer: publish.payload))\(publish.packetID.map { " id \($0)" } ?? "")"
                + (publish.duplicate ? " DUP" : "")
        case .puback(let answer), .pubrec(let answer), .pubrel(let answer), .pubcomp(let answer):
            "\(packet.kind) \(answer.packetID)\(answer.reasonCode == .success ? "" : " " + hex(answer.reasonCode))"
        case .subscribe(let subscribe): "SUBSCRIBE " + subscribe.subscriptions.map(\.filter).joined(separator: " ")
        case .unsubscribe(let unsubscribe): "UNSUBSCRIBE " + unsubscribe.filters.joined(separator: " ")
        case .disconnect(let disconnect): "DISCONNECT \(hex(disconnect.reasonCode))"
        case .auth(let auth):
            "AUTH \(hex(auth.reasonCode)) "
                + (auth.properties.authenticationData.map { String(buffer: $0) } ?? "")
        case .connack, .suback, .unsuback, .pingreq, .pingresp: "\(packet.kind)"
        }
    }

    private static func text(_ answer: ServerAnswer) -> String {
        switch answer {
        case .said(let code, _): " \(hex(code))"
        case .unsaid: " refused"
        case .notAsked(let sentence): ": \(sentence)"
        }
    }

    static func hex(_ code: ReasonCode) -> String {
        let digits = String(code.rawValue, radix: 16, uppercase: true)
        return digits.count == 1 ? "0\(digits)" : digits
    }
}

/// A packet identifier for tests.
func id(_ value: UInt16) -> PacketID {
    guard let id = PacketID(rawValue: value) else { preconditionFailure("a test uses identifier 0") }
    return id
}

func answer(_ value: UInt16, _ code: ReasonCode = .success) -> Acknowledgement {
    Acknowledgement(packetID: id(value), reasonCode: code)
}

func inbound(_ payload: String, qos: QoS, _ value: UInt16? = nil, duplicate: Bool = false) -> Packet {
    .publish(
        Publish(
            topic: "in", payload: ByteBuffer(string: payload), qos: qos, duplicate: duplicate,
            packetID: value.map(id)))
}
