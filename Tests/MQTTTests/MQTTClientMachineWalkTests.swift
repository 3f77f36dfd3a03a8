import NIOCore
import Support
import Testing

@testable import MQTT

extension MQTTClientWorld {
    /// What must hold at every moment.
    mutating func check() {
        let counts = machine.counts
        if counts.queued < 0 || counts.inFlight < 0 || counts.bytes < 0 { problems.append("counts \(counts)") }
        if configuration.outbox.maximumAge != nil,
            counts.total > configuration.outbox.messages + configuration.readAhead.messages
        {
            problems.append("\(counts.total) messages in an outbox for \(configuration.outbox.messages)")
        }
        if counts.inFlight > max(configuration.inFlight.messages, 8) { problems.append("window \(counts.inFlight)") }
        let sizes = machine.outbox.inFlight.values.map(\.size)
        if machine.outbox.inFlightBytes != sizes.reduce(0, +) {
            problems.append("\(machine.outbox.inFlightBytes) bytes in flight, of messages of \(sizes)")
        }
        // One of any size may go out alone; another, again alone, before those that are sent again.
        if sizes.reduce(0, +) > configuration.inFlight.bytes + 2 * (sizes.max() ?? 0) {
            problems.append("messages of \(sizes) bytes in flight")
        }
    }

    /// What must hold when everything has healed and is drained.
    mutating func checkAtRest() {
        problems += server.violations.map { "server: \($0)" }
        problems += store.violations.map { "store: \($0)" }
        if !machine.isConnected { problems.append("not connected") }
        if restoredCount == 0 { problems.append("never restored") }

        var first: [String: Int] = [:]
        var lastFirst = (all: 0, acknowledged: 0)
        var once: Set<ModelServer.Delivery> = []
        for delivery in server.deliveries {
            let number = Int(delivery.payload) ?? 0
            if delivery.qos == .exactlyOnce, !once.insert(delivery).inserted {
                problems.append("QoS 2 message \(number) was delivered twice in one session")
            }
            guard first[delivery.payload] == nil else { continue }
            first[delivery.payload] = number
            if delivery.qos != .atMostOnce {
                if number < lastFirst.acknowledged { problems.append("\(number) came too late") }
                lastFirst.acknowledged = number
            }
            if !wasKilled {
                if number < lastFirst.all { problems.append("\(number) (\(delivery.qos)) came too late") }
                lastFirst.all = number
            }
        }
        for sequence in accepted.sorted() {
            guard let message = published[sequence] else {
                problems.append("\(sequence) was accepted and is unknown")
                continue
            }
            if dropped.contains(sequence) { continue }
            let payload = String(buffer: message.payload)
            if message.topic == "refused" {
                if case .quarantined? = store.messages[sequence]?.state { continue }
                problems.append("\(sequence) was refused and is not quarantined")
            } else if message.qos != .atMostOnce, first[payload] == nil {
                problems.append("\(sequence) (\(message.qos)) was accepted and is lost")
            }
        }
        let left = store.messages.values.filter { if case .quarantined = $0.state { false } else { true } }
        if !left.isEmpty { problems.append("left in the store: \(left.map(\.sequence))") }
        let counts = machine.counts
        let bytes = store.messages.values.map(\.message.size).reduce(0, +)
        if counts.queued != 0 || counts.inFlight != 0 || counts.quarantined != store.messages.count
            || counts.bytes != bytes
        {
            problems.append("counts at rest: \(counts), the store has \(store.messages.count) of \(bytes) bytes")
        }

        if server.subscriptions != wanted { problems.append("subscribed \(server.subscriptions), wanted \(wanted)") }
        if store.rememberedSubscriptions != wanted { problems.append("remembered \(store.rememberedSubscriptions)") }

        var seen: [String: Int] = [:]
        for payload in inbox { seen[payload, default: 0] += 1 }
        for message in sentToClient {
            let times = seen[message.payload] ?? 0
            if message.qos == .exactlyOnce, times > 1 { problems.append("\(message.payload) arrived \(times) times") }
            // If the CONNACK that told of a new session was lost, nothing in the protocol tells a QoS 2 message that is
            // sent again from one of the session before with the same identifier.
            if message.qos == .exactlyOnce, !noticedEpochs.contains(message.epoch) { continue }
            if message.epoch == server.epoch, times == 0 { problems.append("\(message.payload) never arrived") }
        }
        checkTaken()
        if server.outgoingCount != 0 { problems.append("the server waits for \(server.outgoingCount) answers") }
        // Identifiers of a session that the server lost unnoticed may be left; they are cleared when used again.
        if server.epoch == 1, !store.inboundIDs.isEmpty {
            problems.append("inbound identifiers left: \(store.inboundIDs)")
        }
    }
}

@Suite struct MQTTClientMachineWalkTests {
    /// `make simulate` has the machine in whole daemons, thousands of times.
    static let seeds = 0..<UInt64(40)

    /// [MQTT-4.1.0-1]
    @Test(arguments: seeds)
    func `no accepted message is lost, and QoS 2 arrives once and in order, whatever is cut or killed`(seed: UInt64) {
        walk(MQTTClientWorld(seed: seed), seed)
    }

    @Test(arguments: seeds)
    func `the same holds with MQTT 3.1.1`(seed: UInt64) {
        walk(MQTTClientWorld(seed: seed, version: .threeOneOne), seed)
    }

    @Test(arguments: seeds)
    func `the same holds when the version may change with every connection`(seed: UInt64) {
        walk(MQTTClientWorld(seed: seed, version: nil), seed)
    }

    @Test(arguments: seeds)
    func `the same holds when the server restores finished exchanges and has no room for others`(seed: UInt64) {
        walk(MQTTClientWorld(seed: seed, hasGhosts: true), seed)
    }

    private func walk(_ world: MQTTClientWorld, _ seed: UInt64) {
        var world = world
        for _ in 0..<1500 {
            world.randomStep()
            if !world.problems.isEmpty { break }
        }
        world.heal()
        world.checkAtRest()
        #expect(world.problems.isEmpty, "seed \(seed): \(world.problems.prefix(5))")
        #expect(world.delivered.count > 20, "the walk delivers something")
    }

    @Test(arguments: 1000..<UInt64(1010), [MQTTClientMachine.OverflowBehaviour.refuse, .dropOldest, .dropNew])
    func `no accepted message is lost silently at the limits of the outbox`(
        seed: UInt64, whenFull: MQTTClientMachine.OverflowBehaviour
    ) {
        var world = MQTTClientWorld(seed: seed, whenFull: whenFull)
        for _ in 0..<800 {
            world.randomStep()
            if !world.problems.isEmpty { break }
        }
        world.heal()
        world.checkAtRest()
        #expect(world.problems.isEmpty, "seed \(seed): \(world.problems.prefix(5))")
        #expect(world.delivered.count + world.dropped.count > 10, "something happens in the walk")
    }
}
