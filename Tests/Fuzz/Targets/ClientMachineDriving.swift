import MQTT
import NIOCore
import Support

/// Every byte decides what happens next to a client's machine: what programs want, what the disk does, and what a server
/// sends that may be anybody, from packets in the wrong place to bytes that are none.
///
/// The machine may never trap, what it sends must be packets that a client may send at that point, what it commits must
/// be possible, and no message that it accepted may be gone without a word.
func driveClientMachine(_ bytes: [UInt8]) {
    var drive = ClientMachineDrive(ByteSource(bytes))
    drive.run()
}

private struct ClientMachineDrive {
    private var source: ByteSource
    private var machine: MQTTClientMachine
    private let configuration: MQTTClientMachine.Configuration
    private var now = Timestamp(rawValue: 1_000_000)
    private var store = ModelStore()
    /// What the disk has to do, and what it has done and the machine was not told.
    private var disk: [DiskWork] = []
    private var done: [MQTTClientMachine.Input] = []
    private var flushes: [FlushNumber] = []
    private var connection: Connection?
    private var accepted: Set<MessageSequence> = []
    private var ended: Set<MessageSequence> = []
    private var mayResumeCollecting = false
    private let consumer = ConsumerName("worker")
    private static let filters = ["a/b", "a/+", "#", "$share/g/a"]

    private enum DiskWork {
        case commit([DurableChange], CommitNumber)
        case load(after: MessageSequence, messages: Int, bytes: Int)
    }

    /// What a server that watches the client sees of one connection.
    private struct Connection {
        var decoder = PeerDecoder(adoptsVersion: true)
        var hasConnect = false
        var hasConnack = false
        var hasDisconnect = false
        var wantsClose = false
    }

    init(_ bytes: ByteSource) {
        var source = bytes
        var configuration = MQTTClientMachine.Configuration(
            version: source.below(2) == 0 ? .five : .threeOneOne, clientID: source.below(4) == 0 ? "" : "me")
        configuration.inFlight.messages = 1 + source.below(5)
        configuration.receiveMaximum = UInt16(1 + source.below(4))
        configuration.maximumPacketSize = 1024
        configuration.readAhead.messages = 1 + source.below(4)
        configuration.readAhead.bytes = 1 + source.below(100)
        configuration.inFlight.bytes = configuration.readAhead.bytes
        configuration.outbox.messages = 20
        configuration.inbox.messages = 1 + source.below(10)
        configuration.inbox.whenFull = configuration.inbox.messages % 2 == 0 ? .withhold : .dropOldest
        configuration.outbox.whenFull = [.refuse, .dropOldest, .dropNew][source.below(3)]
        configuration.outbox.maximumAge = source.below(2) == 0 ? nil : 500
        self.source = source
        self.configuration = configuration
        machine = MQTTClientMachine(configuration: configuration)
    }

    mutating func run() {
        for _ in 0..<2000 where !source.isEmpty {
            step()
            if connection?.wantsClose == true { close() }
            precondition(store.violations.isEmpty, "\(store.violations)")
        }
        // What is on its way to the disk arrives.
        while !disk.isEmpty { moveDisk() }
        while !done.isEmpty { handle(done.removeFirst()) }
        while !disk.isEmpty { moveDisk() }
        precondition(store.violations.isEmpty, "\(store.violations)")
        for sequence in accepted where !ended.contains(sequence) {
            precondition(store.messages[sequence] != nil, "message \(sequence) was accepted and is gone")
        }
    }

    private mutating func step() {
        now = Timestamp(rawValue: now.rawValue + Int64(source.below(8)))
        switch source.below(22) {
        case 0: open()
        case 1: close()
        case 2: receive(ByteBuffer(bytes: source.take(source.below(64))))
        case 3...8: receivePacket()
        case 9, 10: publish()
        case 11: subscribe()
        case 12: TopicFilter.fuzzed(Self.filters[source.below(4)]).map { handle(.unsubscribe($0)) }
        case 13, 14: moveDisk()
        case 15: if !done.isEmpty { handle(done.removeFirst()) }
        case 16: if !flushes.isEmpty { handle(.flushed(flushes.removeFirst())) }
        case 17: announce()
        case 18: consume()
        case 19:
            handle([.ping, .timePassed, .disconnect(.normalDisconnection), .settle, .stopSettling][source.below(5)])
        case 20: if source.below(4) == 0 { kill() }
        default: decide()
        }
    }

    // MARK: The connection

    private mutating func open() {
        guard connection == nil else { return }
        connection = Connection()
        let authentication = SCRAMClient(username: "user", nonce: "nonce")
        let credentials =
            configuration.version == .five && source.below(4) == 0
            ? MQTTCredentials(username: "user", authentication: authentication) : MQTTCredentials(username: "user")
        handle(.connectionOpened(credentials, forceCleanStart: source.below(8) == 0))
    }

    private mutating func close() {
        guard connection != nil else { return }
        connection = nil
        flushes = []
        handle(.connectionClosed)
    }

    private mutating func receive(_ bytes: ByteBuffer) {
        if connection != nil { handle(.received(bytes)) }
    }

    private mutating func receivePacket() {
        receive(encoded(packet(), in: machine.version))
    }

    private mutating func packetID() -> PacketID {
        guard let id = PacketID(rawValue: UInt16(1 + source.below(12))) else { preconditionFailure("12 is not 0") }
        return id
    }

    private mutating func packet() -> Packet {
        let kind = source.below(12)
        let code = ReasonCode(rawValue: source.below(2) == 0 ? 0 : source.byte())
        let id = packetID()
        let answer = Acknowledgement(packetID: id, reasonCode: code)
        switch kind {
        case 0, 1: return .connack(connack(code))
        case 2: return .puback(answer)
        case 3: return .pubrec(answer)
        case 4: return .pubrel(answer)
        case 5: return .pubcomp(answer)
        case 6, 7:
            let qos = QoS.allCases[source.below(3)]
            return .publish(
                Publish(
                    topic: ["a/b", "c"][source.below(2)], payload: ByteBuffer(bytes: source.take(source.below(20))),
                    qos: qos, duplicate: qos != .atMostOnce && source.below(2) == 1,
                    packetID: qos == .atMostOnce ? nil : id))
        case 8: return .suback(Suback(packetID: id, reasonCodes: (0...source.below(3)).map { _ in code }))
        case 9: return .unsuback(Unsuback(packetID: id, reasonCodes: (0...source.below(3)).map { _ in code }))
        case 10 where machine.version == .five: return .disconnect(Disconnect(reasonCode: code))
        case 11 where machine.version == .five: return .auth(auth(code))
        default: return .pingresp
        }
    }

    private mutating func connack(_ code: ReasonCode) -> Connack {
        var connack = Connack(sessionPresent: source.below(2) == 1 && !code.isError, reasonCode: code)
        guard machine.version == .five else { return connack }
        let options = source.byte()
        if options & 1 != 0 { connack.properties.receiveMaximum = UInt16(1 + source.below(4)) }
        if options & 2 != 0 { connack.properties.maximumQoS = QoS.allCases[source.below(2)] }
        if options & 4 != 0 { connack.properties.maximumPacketSize = UInt32(1 + source.below(200)) }
        if options & 8 != 0 { connack.properties.topicAliasMaximum = UInt16(source.below(4)) }
        if options & 16 != 0 { connack.properties.assignedClientID = "assigned" }
        if options & 32 != 0 { connack.properties.retainAvailable = false }
        if options & 64 != 0 { connack.properties.wildcardSubscriptionAvailable = false }
        if options & 128 != 0 { connack.properties.authenticationMethod = SCRAMClient.method }
        return connack
    }

    private mutating func auth(_ code: ReasonCode) -> Auth {
        var auth = Auth(reasonCode: code)
        auth.properties.authenticationMethod = SCRAMClient.method
        auth.properties.authenticationData =
            source.below(2) == 0
            ? ByteBuffer(string: "r=nonceserver,s=c2FsdA==,i=4096") : ByteBuffer(bytes: source.take(source.below(40)))
        return auth
    }

    // MARK: Programs

    private mutating func publish() {
        let message = OutboundMessage(
            topic: ["a", "b/c", "long/\(String(repeating: "x", count: 100))"][source.below(3)],
            payload: ByteBuffer(bytes: source.take(source.below(30))), qos: QoS.allCases[source.below(3)],
            retain: source.below(4) == 0,
            expiresAt: source.below(4) == 0 ? Timestamp(rawValue: now.rawValue + Int64(source.byte())) : nil)
        var actions: [MQTTClientMachine.Action] = []
        _ = try? machine.publish(message, at: now, into: &actions)
        carryOut(actions)
    }

    private mutating func subscribe() {
        let subscription = Subscription(filter: Self.filters[source.below(4)], qos: QoS.allCases[source.below(3)])
        var actions: [MQTTClientMachine.Action] = []
        try? machine.subscribe(subscription, at: now, into: &actions)
        carryOut(actions)
    }

    private mutating func announce() {
        var actions: [MQTTClientMachine.Action] = []
        machine.announce(
            Announcement(topic: "presence", qos: QoS.allCases[source.below(2)]), at: now, into: &actions)
        carryOut(actions)
    }

    private mutating func consume() {
        guard let consumer else { return }
        switch source.below(5) {
        case 0:
            let filter = TopicFilter.fuzzed(Self.filters[source.below(3)])
            handle(.consumer(consumer, .put(filter: "f", .exactlyOnce, matching: filter)))
        case 1: handle(.consumer(consumer, .remove))
        case 2: handle(.consumer(consumer, .give(through: .last)))
        case 3: if mayResumeCollecting { handle(.resumeCollecting) }
        default:
            guard disk.isEmpty, done.isEmpty, let first = store.inboxes[consumer]?.first else { return }
            handle(.consumer(consumer, .taken([TakenMessage(sequence: first.sequence, size: first.size)])))
        }
    }

    /// A person retries or drops a message, when the disk has nothing else to do.
    private mutating func decide() {
        let stored = store.messages.values.sorted { $0.sequence < $1.sequence }
        guard disk.isEmpty, done.isEmpty, !stored.isEmpty else { return }
        let chosen = stored[source.below(min(stored.count, 256))]
        var actions: [MQTTClientMachine.Action] = []
        if case .quarantined = chosen.state, source.below(2) == 0 {
            if (try? machine.retry(chosen, at: now, into: &actions)) != nil { ended.insert(chosen.sequence) }
        } else {
            _ = machine.discard(StoredMessageSummary(chosen), at: now, into: &actions)
        }
        carryOut(actions)
    }

    // MARK: The disk

    private mutating func moveDisk() {
        guard !disk.isEmpty else { return }
        switch disk.removeFirst() {
        case .commit(let changes, let number):
            let isFull = source.below(8) == 7
            store.commit(changes, refusingInserts: isFull)
            done.append(isFull ? .committedWithoutInserts(number) : .committed(number))
        case .load(let after, let messages, let bytes):
            done.append(.loaded(store.load(after: after, messages: messages, bytes: bytes)))
        }
    }

    /// kill -9: what was not committed is gone, and what was is all that there is.
    private mutating func kill() {
        connection = nil
        flushes = []
        disk = []
        done = []
        mayResumeCollecting = false
        machine = MQTTClientMachine(configuration: configuration, restoring: store.session)
        if let consumer, store.consumers[consumer] != nil {
            handle(.consumer(consumer, .matching(.fuzzed(Self.filters[2]))))
        }
        // What was told and not committed has another end now.
        ended = ended.filter { store.messages[$0] == nil }
    }

    // MARK: Carrying out

    private mutating func handle(_ input: MQTTClientMachine.Input) {
        var actions: [MQTTClientMachine.Action] = []
        machine.handle(input, at: now, into: &actions)
        carryOut(actions)
    }

    private mutating func carryOut(_ actions: [MQTTClientMachine.Action]) {
        var derived: SCRAMClient.Key?
        for action in actions {
            switch action {
            case .event(let event):
                note(event)
                if case .challenged(let challenge) = event {
                    derived = SCRAMClient.Key(
                        password: [1], SCRAMClient.Challenge(salt: challenge.salt, iterations: 1))
                }
            case .commit(let changes, let number): disk.append(.commit(changes, number))
            case .load(let after, let messages, let bytes):
                disk.append(.load(after: after, messages: messages, bytes: bytes))
            case .send(let bytes, let flush):
                sent(bytes)
                if let flush, connection != nil { flushes.append(flush) }
            case .close: connection?.wantsClose = true
            }
        }
        if let derived { handle(.keyDerived(derived)) }
    }

    private mutating func note(_ event: MQTTClientMachine.Event) {
        switch event {
        case .accepted(let sequence), .requeued(let sequence): accepted.insert(sequence)
        case .delivered(let sequence, _): ended.insert(sequence)
        case .dropped(let message): ended.insert(message.sequence)
        case .connected: connection?.hasConnack = true
        case .collectingPaused: mayResumeCollecting = true
        default: break
        }
    }

    /// What a server makes of the bytes.
    private mutating func sent(_ bytes: ByteBuffer) {
        guard var connection else { preconditionFailure("bytes are sent without a connection") }
        connection.decoder.append(bytes)
        do throws(MalformedPacket) {
            while let packet = try connection.decoder.next() {
                precondition(!connection.hasDisconnect, "\(packet.kind) was sent after DISCONNECT")
                switch packet {
                case .connect:
                    precondition(!connection.hasConnect, "CONNECT was sent twice")
                    connection.hasConnect = true
                case .disconnect:
                    connection.hasDisconnect = true
                    precondition(connection.hasConnect, "DISCONNECT was sent before CONNECT")
                case .auth: precondition(connection.hasConnect, "AUTH was sent before CONNECT")
                default: precondition(connection.hasConnack, "\(packet.kind) was sent before CONNACK")
                }
            }
        } catch {
            preconditionFailure("the client sent what no client may send: \(error)")
        }
        self.connection = connection
    }
}

extension TopicFilter {
    fileprivate static func fuzzed(_ text: String) -> TopicFilter? { try? TopicFilter(text) }
}
