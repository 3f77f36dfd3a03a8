import NIOCore
import Testing
import Vocabulary

@testable import MQTT

/// A server, a path and a client, in virtual time. The client sends a PINGREQ after 15 s without a packet, and gives the
/// connection up 5 s later.
private struct SilentWorld {
    struct Sent {
        var packet: Packet
        var arrives: Int64
    }

    var client: MQTTClientHarness
    var random: SplitMix64
    /// Milliseconds for one way.
    var latency: Int64 = 20
    /// Payloads and filters after which the server's program says nothing any more on that connection.
    var muteAfter: Set<String> = []
    /// From when on nothing gets through on this connection, either way.
    var pathEndsAt = Int64.max
    /// The server's program stands still: it answers nothing, and its kernel acknowledges.
    var frozenFrom = Int64.max
    var frozenUntil = Int64.max
    private(set) var arrived: [String] = []
    private(set) var subscribed: Set<String> = []
    /// Connections that ended because nothing was heard.
    private(set) var silences = 0
    private(set) var events: [String] = []

    private var onItsWay: [Sent] = []
    private var answers: [Sent] = []
    private var isMute = false
    private var isOpen = false
    private var sentCount = 0
    private var acknowledged = 0
    private var heardAt: Int64 = 0
    private var askedAt: Int64?
    private var received: Set<PacketID> = []
    private var hasSession = false

    init(seed: UInt64 = 0, _ client: MQTTClientHarness = MQTTClientHarness()) {
        self.client = client
        random = SplitMix64(seed: seed)
    }

    var now: Int64 { client.now.rawValue }

    mutating func take(_ words: [String]) {
        events += words.filter { $0.hasPrefix("rejected") || $0.hasPrefix("subscribed") }
        for packet in client.sent[sentCount...] { onItsWay.append(Sent(packet: packet, arrives: now + latency)) }
        sentCount = client.sent.count
        if words.contains("close") {
            client.handle(.connectionClosed)
            isOpen = false
        }
    }

    mutating func publish(_ payload: String, qos: QoS = .atLeastOnce) throws {
        take(try client.publish(payload, qos: qos))
        client.flush()
    }

    mutating func subscribe(_ filter: String) throws { take(try client.subscribe(filter)) }

    /// Lets this much time pass.
    mutating func pass(_ milliseconds: Int64) {
        let end = now + milliseconds
        while true {
            if !isOpen { open() }
            let arrivals = [onItsWay.first, answers.first].compactMap { $0?.arrives }
            let next = min(heartbeatDue, end, arrivals.min() ?? end)
            guard next <= end, now < end else { return }
            client.now = Timestamp(rawValue: max(now, next))
            serve()
            answer()
            beat()
        }
    }

    private var heartbeatDue: Int64 { askedAt.map { $0 + 5000 } ?? heardAt + 15_000 }

    private mutating func open() {
        (onItsWay, answers, isMute, pathEndsAt) = ([], [], false, .max)
        (acknowledged, askedAt, heardAt, isOpen) = (0, nil, now, true)
        sentCount = client.sent.count
        take(client.open())
    }

    /// Has the path die or the server's program stand still soon, most often while something is on its way.
    mutating func draw() {
        let soon = now + Int64(random.next() % 120)
        switch random.next() % 4 {
        case 0, 1: pathEndsAt = min(pathEndsAt, soon)
        case 2: (frozenFrom, frozenUntil) = (soon, soon + Int64(random.next() % 90_000))
        default: break
        }
    }

    /// The server's host takes what arrives, and its program reads it unless it stands still.
    private mutating func serve() {
        while let first = onItsWay.first, first.arrives <= now {
            guard now < pathEndsAt else { return Self.lose(&onItsWay) }
            if now >= frozenFrom, now < frozenUntil {
                for index in onItsWay.indices { onItsWay[index].arrives = max(onItsWay[index].arrives, frozenUntil) }
                return
            }
            onItsWay.removeFirst()
            acknowledged += 1
            if !isMute { read(first.packet) }
        }
    }

    private static func lose(_ items: inout [Sent]) {
        for index in items.indices { items[index].arrives = .max }
    }

    private mutating func read(_ packet: Packet) {
        switch packet {
        case .connect(let connect):
            send(.connack(Connack(sessionPresent: hasSession && !connect.cleanStart)))
            if connect.cleanStart { received = [] }
            hasSession = true
        case .publish(let publish):
            let payload = String(buffer: publish.payload)
            guard !muteAfter.contains(payload) else { return isMute = true }
            guard let id = publish.packetID else { return }
            if publish.qos == .exactlyOnce {
                if received.insert(id).inserted { arrived.append(payload) }
                send(.pubrec(Acknowledgement(packetID: id)))
            } else {
                if !arrived.contains(payload) { arrived.append(payload) }
                send(.puback(Acknowledgement(packetID: id)))
            }
        case .pubrel(let release):
            received.remove(release.packetID)
            send(.pubcomp(Acknowledgement(packetID: release.packetID)))
        case .subscribe(let subscribe):
            let filters = subscribe.subscriptions.map(\.filter)
            guard muteAfter.isDisjoint(with: filters) else { return isMute = true }
            subscribed.formUnion(filters)
            send(.suback(Suback(packetID: subscribe.packetID, reasonCodes: filters.map { _ in .success })))
        case .pingreq: send(.pingresp)
        default: break
        }
    }

    private mutating func send(_ packet: Packet) { answers.append(Sent(packet: packet, arrives: now + latency)) }

    private mutating func answer() {
        while let first = answers.first, first.arrives <= now {
            guard now < pathEndsAt else { return Self.lose(&answers) }
            answers.removeFirst()
            (heardAt, askedAt) = (now, nil)
            take(client.server(first.packet))
        }
    }

    private mutating func beat() {
        guard now >= heartbeatDue, isOpen else { return }
        guard askedAt != nil else {
            askedAt = now
            take(client.handle(.ping))
            return measure()
        }
        measure()
        silences += 1
        take(client.handle(.connectionEnded(.silent)))
        isOpen = false
    }

    private mutating func measure() {
        let isFrozen = now >= frozenFrom && now < frozenUntil && now < pathEndsAt
        let pending = isFrozen ? onItsWay.count { $0.arrives > frozenUntil } : onItsWay.count
        client.machine.measured(acknowledged: acknowledged, pending: pending, at: client.now)
    }
}

@Suite struct `A server that falls silent` {
    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `after one message has it set aside, and the others arrive`(_ qos: QoS) throws {
        var world = SilentWorld()
        world.muteAfter = ["bad"]
        for name in ["a", "b", "bad", "c", "d"] { try world.publish(name, qos: qos) }
        world.pass(600_000)
        #expect(Set(world.arrived) == ["a", "b", "c", "d"])
        #expect(world.events.contains { $0.hasPrefix("rejected 3") })
        #expect(world.client.machine.counts.quarantined == 1)
        #expect(world.client.machine.counts.total == 1)
        // With QoS 2 the first silence leaves earlier exchanges unfinished.
        #expect(world.silences == (qos == .exactlyOnce ? 7 : 6))
    }

    @Test func `after one filter has it refused, and the others are granted`() throws {
        var world = SilentWorld(MQTTClientHarness { $0.filtersPerPacket = 8 })
        world.muteAfter = ["bad"]
        for filter in ["a", "bad", "c"] { try world.subscribe(filter) }
        for name in ["x", "y"] { try world.publish(name) }
        world.pass(600_000)
        #expect(world.subscribed == ["a", "c"])
        #expect(Set(world.arrived) == ["x", "y"])
        #expect(world.client.machine.counts.quarantined == 0)
        let subscriptions = world.client.machine.subscriptions
        #expect(subscriptions.answers.keys.filter(subscriptions.isSetAside).map(\.string) == ["bad"])
    }

    @Test func `is not blamed on a message that was not the only unanswered packet`() throws {
        var client = MQTTClientHarness()
        for name in ["a", "b"] { try client.publish(name) }
        for round in 0..<10 {
            client.connect(resumed: round > 0)
            client.server(.pingresp)
            // A program subscribes while the message is alone.
            try client.subscribe("f\(round)")
            client.fallSilent()
        }
        #expect(client.machine.counts.quarantined == 0)
    }

    @Test func `after a message has it set aside, even if a publication beside it was suspected first`() throws {
        var client = MQTTClientHarness()
        try client.publish("bad")
        for round in 0..<9 {
            client.connect(resumed: round > 0)
            if client.machine.isIsolating {
                #expect(client.server(.pingresp).contains { $0.hasPrefix("PUBLISH bad") })
            } else {
                client.announce("beside it")
            }
            if round < 3 {
                // The time to restore is shorter than the heartbeat.
                client.handle(.connectionEnded(.unanswered))
            } else {
                #expect(client.machine.announcementsAwaitMessages == (round < 6))
                client.fallSilent()
            }
            #expect(client.machine.counts.quarantined == (round < 8 ? 0 : 1))
        }
    }

    @Test func `after a message has it set aside, even if the one before it was left unanswered`() throws {
        var client = MQTTClientHarness()
        for (count, name) in ["left out", "bad"].enumerated() {
            try client.publish(name)
            for round in 0..<10 where client.machine.counts.quarantined == count {
                client.connect(resumed: count + round > 0)
                client.server(.pingresp)
                if name == "bad" {
                    client.fallSilent()
                } else {
                    client.now = client.now.advanced(by: 61_000)
                    client.handle(.connectionEnded(.unanswered))
                }
            }
            #expect(client.machine.counts.quarantined == count + 1)
        }
    }

    /// What a silence needs in order to count, each left out once.
    enum Missing: CaseIterable, Sendable {
        case nothing
        /// The host may not have the bytes.
        case acknowledgement, measurement
        /// The server was silent before it got the message.
        case silenceAfterwards
        /// The connection was given up for another reason.
        case silence
    }

    @Test(arguments: Missing.allCases)
    func `counts only if the path is alive and the message came first`(_ missing: Missing) throws {
        var client = MQTTClientHarness()
        try client.publish("a")
        for round in 0..<12 where client.machine.counts.quarantined == 0 {
            client.connect(resumed: round > 0)
            if missing == .silenceAfterwards {
                client.handle(.ping)
                client.now = client.now.advanced(by: 1)
            }
            if client.machine.isIsolating { client.server(.pingresp) }
            client.fallSilent(missing)
        }
        #expect(client.machine.counts.quarantined == (missing == .nothing ? 1 : 0))
    }

    @Test func `thrice in a row does not make one end of a connection enough`() throws {
        var client = MQTTClientHarness()
        try client.publish("a")
        for round in 0..<3 {
            client.connect(resumed: round > 0)
            client.fallSilent()
        }
        client.connect(resumed: true)
        #expect(client.server(.pingresp).contains { $0.hasPrefix("PUBLISH a") }, "one by one")
        #expect(client.machine.findingIfEnded == .suspected(ends: 1))
        client.handle(.connectionEnded(.byServer))
        #expect(client.machine.counts.quarantined == 0)
    }

    @Test func `and answers no message at all has messages set aside ever more slowly`() throws {
        var world = SilentWorld()
        let names = ["a", "b", "c", "d", "e", "f"]
        world.muteAfter = Set(names)
        for name in names { try world.publish(name) }
        var quarantined: [Int] = []
        for _ in 0..<4 {
            world.pass(900_000)
            quarantined.append(world.client.machine.counts.quarantined)
        }
        #expect(quarantined == [3, 3, 4, 4])
    }

    @Test(arguments: 0..<100)
    func `because the path dies or the server stands still never has anything set aside`(seed: UInt64) throws {
        var world = SilentWorld(seed: seed)
        for filter in ["f", "g"] { try world.subscribe(filter) }
        for number in 0..<40 {
            // One at a time, so that the same message is in flight at many ends.
            let qos = world.random.next() % 3 == 0 ? QoS.exactlyOnce : .atLeastOnce
            if world.random.next() % 2 == 0 { try world.publish("\(number)", qos: qos) }
            for _ in 0..<4 {
                world.draw()
                // Often no longer than it takes to connect, and to get an answer.
                world.pass(Int64(world.random.next() % (world.random.next() % 2 == 0 ? 200 : 30_000)))
            }
        }
        #expect(world.client.machine.counts.quarantined == 0)
        #expect(world.client.machine.subscriptions.setAside.isEmpty)
        #expect(world.silences > 3)
        world.pass(600_000)
        #expect(world.client.machine.counts.total == 0)
    }
}

extension MQTTClientHarness {
    /// Sends a PINGREQ after 15 s, and gives the connection up 5 s later.
    fileprivate mutating func fallSilent(_ missing: `A server that falls silent`.Missing = .nothing) {
        now = now.advanced(by: 15_000)
        handle(.ping)
        now = now.advanced(by: 5000)
        switch missing {
        case .measurement: break
        case .acknowledgement: machine.measured(acknowledged: 10, pending: 1, at: now)
        default: machine.measured(acknowledged: 10, pending: 0, at: now)
        }
        handle(missing == .silence ? .connectionClosed : .connectionEnded(.silent))
    }
}
