import MQTT
import NIOCore
import Support
import Vocabulary

/// The machine, a model store and a model server, joined by a network and a disk that a test moves step by step.
///
///     machine ──commit, load──▶ disk (a queue) ──▶ store        killed: the queue is lost, the machine restarts
///     machine ◀──committed── notices (a queue)
///     machine ──send──▶ uplink ──▶ server ──▶ downlink ──▶ machine      cut: both links are lost
struct MQTTClientWorld {
    enum DiskJob {
        case commit([DurableChange], CommitNumber, inbox: [String], noticed: Int?)
        case load(after: MessageSequence, messages: Int, bytes: Int)
    }

    var random: SplitMix64
    let configuration: MQTTClientMachine.Configuration
    let version: ProtocolVersion?
    var machine: MQTTClientMachine
    var store = ModelStore()
    var server = ModelServer()
    var now = Timestamp(rawValue: 1_700_000_000_000)

    var disk: [DiskJob] = []
    var notices: [MQTTClientMachine.Input] = []
    var uplink: [(bytes: ByteBuffer, flush: FlushNumber?)] = []
    var flushes: [FlushNumber] = []
    var downlink = ByteBuffer()
    var isOpen = false
    var wantsClose = false
    /// The last connection ended in a way that makes the session start again.
    var mustBeginAnew = false
    /// With it the server restores finished exchanges now and then, and has a limit for them.
    let hasGhosts: Bool

    var published: [MessageSequence: OutboundMessage] = [:]
    var accepted: Set<MessageSequence> = []
    var rejected: Set<MessageSequence> = []
    var dropped: Set<MessageSequence> = []
    var delivered: Set<MessageSequence> = []
    var wanted: Set<TopicFilter> = []
    var restoredCount = 0
    /// Inbound messages that reached a consumer, and what the server sent, with its epoch.
    var inbox: [String] = []
    var sentToClient: [(payload: String, qos: QoS, epoch: Int)] = []
    /// What durable consumers have taken out of the inbox, and the messages that the server sent to them.
    var taken: [ConsumerName: [String]] = [:]
    var sentToConsumers: [(payload: String, topic: String, qos: QoS, epoch: Int)] = []
    var mayResumeCollecting = false
    /// Sessions of the server whose beginning the client knows of, for good.
    var noticedEpochs: Set<Int> = []
    var nextPayload = 0
    var wasKilled = false
    var problems: [String] = []

    /// - Parameters:
    ///   - version: `nil` is another one with every connection.
    ///   - whenFull: with it the outbox is small, and messages grow too old.
    init(
        seed: UInt64, version: ProtocolVersion? = .five, whenFull: MQTTClientMachine.OverflowBehaviour? = nil,
        hasGhosts: Bool = false
    ) {
        self.hasGhosts = hasGhosts
        var random = SplitMix64(seed: seed)
        self.version = version
        let hasIdentifier = Bool.random(using: &random) || version != .five
        var configuration = MQTTClientMachine.Configuration(
            version: version ?? .five, clientID: hasIdentifier ? "me" : "")
        configuration.inFlight.messages = Int.random(in: 1...8, using: &random)
        configuration.receiveMaximum = UInt16.random(in: 1...5, using: &random)
        configuration.readAhead.messages = Int.random(in: 1...6, using: &random)
        configuration.readAhead.bytes = Int.random(in: 1...200, using: &random)
        configuration.unflushed.bytes = Int.random(in: 1...100, using: &random)
        configuration.inFlight.bytes = Int.random(in: 1...60, using: &random)
        configuration.unflushed.qos0 = Int.random(in: 1...3, using: &random)
        configuration.filtersPerPacket = Int.random(in: 1...3, using: &random)
        configuration.maximumSubscribeRequests = Int.random(in: 1...3, using: &random)
        if let whenFull {
            configuration.outbox.whenFull = whenFull
            configuration.outbox.messages = Int.random(in: 3...20, using: &random)
            configuration.outbox.bytes = Int.random(in: 20...100, using: &random)
            configuration.outbox.maximumAge = Int64.random(in: 50...2000, using: &random)
        }
        configuration.inbox.messages = Int.random(in: 1...12, using: &random)
        configuration.inbox.bytes = Int.random(in: 1...200, using: &random)
        // A dropped message never arrives, and here every message must arrive.
        configuration.inbox.whenFull = .withhold
        self.configuration = configuration
        machine = MQTTClientMachine(configuration: configuration)
        if version == .five { server.refusals = ["refused": .notAuthorized] }
        self.random = random
        putConsumers()
    }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    // MARK: Carrying out

    mutating func handle(_ input: MQTTClientMachine.Input) {
        var actions: [MQTTClientMachine.Action] = []
        machine.handle(input, at: now, into: &actions)
        carryOut(actions)
    }

    mutating func carryOut(_ actions: [MQTTClientMachine.Action]) {
        var exactlyOnce: [String] = []
        var noticed: Int?
        for action in actions {
            switch action {
            case .event(.received(let message)) where message.topic != "to/client": break
            case .event(.received(let message)):
                // Exactly once needs an inbox that commits together with the identifier.
                if message.qos == .exactlyOnce {
                    exactlyOnce.append(String(buffer: message.payload))
                } else {
                    inbox.append(String(buffer: message.payload))
                }
            case .event(.connected(let connected)): noticed = connected.resumed ? nil : server.epoch
            case .event(let event): happened(event)
            case .commit(let changes, let number):
                disk.append(.commit(changes, number, inbox: exactlyOnce, noticed: noticed))
                exactlyOnce = []
                noticed = nil
            case .load(let after, let messages, let bytes):
                disk.append(.load(after: after, messages: messages, bytes: bytes))
            case .send(let bytes, let flush): if isOpen { uplink.append((bytes, flush)) }
            case .close: wantsClose = true
            }
        }
        // A message that was new when the identifier was durable already, from another session of the server.
        inbox += exactlyOnce
        if let noticed { noticedEpochs.insert(noticed) }
    }

    mutating func happened(_ event: MQTTClientMachine.Event) {
        switch event {
        case .accepted(let sequence), .requeued(let sequence): accepted.insert(sequence)
        case .notAccepted(let sequence): published[sequence] = nil
        case .delivered(let sequence, _): delivered.insert(sequence)
        case .rejected(let message): rejected.insert(message.sequence)
        case .restored: restoredCount += 1
        case .collectingPaused: mayResumeCollecting = true
        case .settled:
            // Nothing that both sides know of is unfinished, whatever comes to the connection now.
            if machine.counts.inFlight != 0 { problems.append("settled with \(machine.counts.inFlight) in flight") }
            if chance(50) { wantsClose = true }
        case .protocolViolation(let code, let message, _): problems.append("violation \(code): \(message)")
        case .dropped(let message):
            if configuration.outbox.maximumAge == nil { problems.append("\(message) was dropped") }
            // What was told and not yet durable is told again after a crash, and may have another end then.
            let isNews = dropped.insert(message.sequence).inserted
            if !wasKilled, !isNews { problems.append("\(message) was dropped twice") }
            if !wasKilled, delivered.contains(message.sequence) { problems.append("\(message) was delivered before") }
        default: break
        }
    }

    // MARK: Steps

    mutating func publish() {
        nextPayload += 1
        let qos = QoS.allCases.randomElement(using: &random) ?? .atMostOnce
        let topic =
            chance(8) && qos != .atMostOnce && version == .five
            ? "refused" : ["a", "b"].randomElement(using: &random) ?? "a"
        let message = OutboundMessage(topic: topic, payload: ByteBuffer(string: "\(nextPayload)"), qos: qos)
        var actions: [MQTTClientMachine.Action] = []
        do throws(MQTTClientMachine.PublishError) {
            let sequence = try machine.publish(message, at: now, into: &actions)
            published[sequence] = message
            carryOut(actions)
        } catch .outboxFull where configuration.outbox.whenFull != .dropNew && configuration.outbox.maximumAge != nil {
            // As it must be.
        } catch .dropped where configuration.outbox.whenFull == .dropNew {
        } catch {
            problems.append("publish: \(error)")
        }
    }

    mutating func subscribe() {
        guard let filter = try? TopicFilter("f/\(Int.random(in: 0..<6, using: &random))") else { return }
        if chance(50) {
            wanted.insert(filter)
            var actions: [MQTTClientMachine.Action] = []
            do {
                try machine.subscribe(
                    Subscription(filter: filter.string, qos: .atLeastOnce), at: now, into: &actions)
            } catch {
                problems.append("subscribe: \(error)")
            }
            carryOut(actions)
        } else {
            wanted.remove(filter)
            handle(.unsubscribe(filter))
        }
    }

    mutating func moveDisk(mayRefuse: Bool) {
        guard !disk.isEmpty else { return }
        switch disk.removeFirst() {
        case .commit(let changes, let number, let consumed, let noticed):
            let refuses = mayRefuse && chance(4)
            noteTaken(changes)
            store.commit(changes, refusingInserts: refuses)
            inbox += consumed
            if let noticed { noticedEpochs.insert(noticed) }
            notices.append(refuses ? .committedWithoutInserts(number) : .committed(number))
        case .load(let after, let messages, let bytes):
            notices.append(.loaded(store.load(after: after, messages: messages, bytes: bytes)))
        }
    }

    mutating func moveNotice() {
        if !notices.isEmpty { handle(notices.removeFirst()) }
    }

    mutating func moveUplink() {
        guard !uplink.isEmpty else { return }
        var (bytes, flush) = uplink.removeFirst()
        if bytes.readableBytes > 1, chance(30),
            let head = bytes.readSlice(length: Int.random(in: 1..<bytes.readableBytes, using: &random))
        {
            uplink.insert((bytes, flush), at: 0)
            return server.receive(head)
        }
        server.receive(bytes)
        if let flush { flushes.append(flush) }
        flush = nil
    }

    mutating func moveFlush() {
        if !flushes.isEmpty { handle(.flushed(flushes.removeFirst())) }
    }

    mutating func moveServer() {
        server.answerNext()
        var output = server.takeOutput()
        downlink.writeBuffer(&output)
    }

    mutating func moveDownlink() {
        guard downlink.readableBytes > 0 else { return }
        let length = chance(50) ? downlink.readableBytes : Int.random(in: 1...downlink.readableBytes, using: &random)
        if let bytes = downlink.readSlice(length: length) { handle(.received(bytes)) }
        downlink = ByteBuffer(buffer: downlink)
    }

    mutating func sendToClient() {
        nextPayload += 1
        let qos: QoS = chance(50) ? .atLeastOnce : .exactlyOnce
        guard server.publish("in \(nextPayload)", qos: qos) else { return }
        sentToClient.append(("in \(nextPayload)", qos, server.epoch))
        var output = server.takeOutput()
        downlink.writeBuffer(&output)
    }

    mutating func open(mayForce: Bool) {
        guard !isOpen else { return }
        isOpen = true
        wantsClose = false
        server.properties.receiveMaximum = UInt16.random(in: 1...6, using: &random)
        if hasGhosts {
            // Only when something was taken since: there is no bound otherwise.
            if chance(30), server.ghosts == 0, server.deliveries.last?.epoch == server.epoch {
                server.restoreFinished(Int.random(in: 3...6, using: &random))
            }
            server.maximumExchanges = 6
        }
        server.connectionOpened()
        if version == nil { machine.configuration.version = chance(50) ? .five : .threeOneOne }
        handle(.connectionOpened(MQTTCredentials(), forceCleanStart: (mayForce && chance(5)) || mustBeginAnew))
    }

    private mutating func dropConnection() {
        isOpen = false
        server.connectionClosed(answering: Int.random(in: 0...server.unansweredCount, using: &random))
        uplink = []
        flushes = []
        downlink = ByteBuffer()
    }

    mutating func cut() {
        guard isOpen else { return }
        if chance(20), !hasGhosts { server.loseSession() }
        dropConnection()
        if chance(20), !hasGhosts { server.loseSession() }
        mustBeginAnew = machine.reasonIfEnded?.remedies.contains(.cleanStart) ?? false
        handle(.connectionClosed)
    }

    mutating func kill() {
        wasKilled = true
        dropConnection()
        for _ in 0..<Int.random(in: 0...disk.count, using: &random) { moveDisk(mayRefuse: false) }
        disk = []
        notices = []
        machine = MQTTClientMachine(configuration: configuration, restoring: store.session)
        mayResumeCollecting = false
        putConsumers()
        // A message that was not durable was never promised.
        for sequence in published.keys where !accepted.contains(sequence) && sequence >= store.nextSequence {
            published[sequence] = nil
        }
        for filter in wanted.sorted(by: { $0.string < $1.string }) {
            var actions: [MQTTClientMachine.Action] = []
            try? machine.subscribe(Subscription(filter: filter.string, qos: .atLeastOnce), at: now, into: &actions)
            carryOut(actions)
        }
    }

    mutating func randomStep() {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<16: publish()
        // In bursts, so that some walks have a slow disk or network for a while, and most do not.
        case 16..<34: for _ in 0..<Int.random(in: 1...4, using: &random) { moveDisk(mayRefuse: true) }
        case 34..<50: for _ in 0..<Int.random(in: 1...4, using: &random) { moveNotice() }
        case 50..<62: for _ in 0..<Int.random(in: 1...3, using: &random) { moveUplink() }
        case 62..<75: for _ in 0..<Int.random(in: 1...3, using: &random) { moveServer() }
        case 75..<84: moveDownlink()
        case 84..<90: for _ in 0..<Int.random(in: 1...3, using: &random) { moveFlush() }
        case 90: sendToClient()
        case 91: if chance(70) { sendToConsumers() } else { resumeCollecting() }
        case 92: if chance(50) { take() } else { sendToConsumers() }
        case 93: subscribe()
        case 94..<97: open(mayForce: true)
        case 97: if chance(60) { cut() }
        case 98: if chance(20) { kill() }
        case 99 where configuration.outbox.maximumAge != nil: decide()
        case 99 where chance(50): handle(chance(50) ? .settle : .stopSettling)
        default: handle(.ping)
        }
        if configuration.outbox.maximumAge != nil {
            now = Timestamp(rawValue: now.rawValue + Int64.random(in: 0...5, using: &random))
        }
        if wantsClose || serverCloses { cut() }
        check()
    }

    /// The server has ended the connection, and all that it said before has arrived.
    private var serverCloses: Bool { server.wantsClose && downlink.readableBytes == 0 }

    /// An operator retries or drops quarantined messages, or drops others, while the disk is idle.
    private mutating func decide() {
        guard disk.isEmpty, notices.isEmpty else { return }
        for stored in store.messages.values.sorted(by: { $0.sequence < $1.sequence }) where chance(20) {
            var actions: [MQTTClientMachine.Action] = []
            if case .quarantined = stored.state, chance(50) {
                guard let new = try? machine.retry(stored, at: now, into: &actions) else { continue }
                published[new] = stored.message
                published[stored.sequence] = nil
                accepted.remove(stored.sequence)
            } else {
                _ = machine.discard(StoredMessageSummary(stored), at: now, into: &actions)
            }
            carryOut(actions)
        }
    }

    /// No more faults: everything that is on its way arrives.
    mutating func heal() {
        handle(.stopSettling)
        var idle = 0
        var steps = 0
        while idle < 3, steps < 100_000 {
            steps += 1
            open(mayForce: false)
            if wantsClose || serverCloses { cut() }
            let isIdle =
                disk.isEmpty && notices.isEmpty && uplink.isEmpty && flushes.isEmpty && downlink.readableBytes == 0
                && server.unansweredCount == 0 && machine.inboxCounts.messages == 0
                && machine.inboxCounts.withheld == 0
            idle = isIdle ? idle + 1 : 0
            moveDisk(mayRefuse: false)
            moveNotice()
            moveUplink()
            moveServer()
            moveDownlink()
            moveFlush()
            resumeCollecting()
            take()
            check()
        }
        if steps == 100_000 { problems.append("does not come to rest") }
    }
}
