import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Support

@testable import Agent
@testable import DurableStore

// What comes from outside and is malicious, or makes no sense: other publishers, servers that cannot bear something and
// do not say what, programs that ask too much, damaged files.

extension ModelBroker.Dislike {
    /// Whether a client that is told nothing else may take it for a rejection of a message with this code, or without
    /// one.
    func mayBeTaken(for code: ReasonCode?) -> Bool {
        switch self {
        case .ends(let own): code == own
        case .ignores, .answersLate, .mutes: code == nil
        }
    }
}

extension Simulation {
    /// Returns how a server reacts each time that it is sent something that it cannot bear: it ends the connection,
    /// says nothing, or answers late.
    static func dislike(_ number: Int) -> ModelBroker.Dislike {
        switch number % 12 {
        case 0: .ends(nil)
        case 1: .ends(.implementationSpecificError)
        case 2: .ends(.notAuthorized)
        case 3: .ends(.qosNotSupported)
        case 4: .ends(.packetTooLarge)
        case 6: .answersLate
        case 7: .ends(.malformedPacket)
        case 8: .ends(.protocolError)
        case 9, 10, 11: .mutes
        default: .ignores
        }
    }

    /// Publishes, as somebody else, what cannot be used. In MQTT 3.1.1 only the topic can be wrong.
    func publishFlawed(_ server: Scenario.ServerName, _ kind: Int, _ qos: Int) {
        foreignCount += 1
        var publish = Publish(
            topic: "in/\(kind % 2)", payload: ByteBuffer(string: "f\(foreignCount)"),
            qos: QoS(rawValue: UInt8(qos % 3)) ?? .atLeastOnce)
        switch kind % 4 {
        case 0: publish.properties.responseTopic = "reply/#"
        case 1: publish.properties.contentType = "text\u{1B}[2J"
        case 2:
            publish.properties.payloadFormat = .utf8
            publish.payload.writeBytes([0xFF])
        default: publish.topic += "\n"
        }
        let isUp = scenario.here { $0.isUp(server) }
        if isUp { scenario.here { $0.with(server) { broker, _ in broker.publish(publish) } } }
    }

    /// Makes the servers send many unsolicited packets.
    func flood(_ index: Int, _ kind: Int, _ count: Int) {
        var bytes = ByteBuffer()
        let packet: Packet
        switch (kind % 4, PacketID(rawValue: 60_001)) {
        case (1, let id?): packet = .puback(Acknowledgement(packetID: id))
        case (2, let id?): packet = .pubrel(Acknowledgement(packetID: id))
        case (3, _): packet = .publish(Publish(topic: "in/flood", payload: ByteBuffer(string: "f"), qos: .atMostOnce))
        default: packet = .pingresp
        }
        let client = residents[index].clientID
        for server in Scenario.ServerName.allCases {
            let version = scenario.here { $0.broker(server).version(of: client) }
            guard let version else { continue }
            bytes.clear()
            for _ in 0..<count { packet.encode(into: &bytes, as: version) }
            scenario.here { scenario in
                guard scenario.isUp(server) else { return }
                scenario.with(server) { broker, _ in broker.say(bytes, to: client) }
            }
        }
    }

    /// Checks that, of the bytes that have arrived at a host, its machine has handled only a share before others get
    /// their turn.
    func checkShare(of bytes: ByteBuffer, on wire: Int, at host: String) {
        guard bytes.readableBytes > 2 * Self.largestShare, Self.packets(in: bytes) > Self.largestShare,
            let driver = residents.first(where: { $0.host.name == host })?.host.here({ $0.driver() })
        else { return }
        let isWhole = driver.here { driver in
            let connection = driver.session.link?.connection.flatMap { driver.connections[$0] }
            return (connection as? ScenarioConnection)?.wire == wire
                && driver.session.mqtt.isConnected && !driver.session.mqtt.isBehind
        }
        if isWhole { note(.bounded, "\(host) handled \(bytes.readableBytes) bytes of small packets in one turn") }
    }

    /// The most that may be handled in one turn.
    private static let largestShare = 3 * 256

    /// The number of packets in these bytes; 0 if they are not whole packets only.
    private static func packets(in bytes: ByteBuffer) -> Int {
        var (rest, count) = (bytes, 0)
        while rest.readInteger(as: UInt8.self) != nil {
            var (length, shift) = (0, 0)
            repeat {
                guard shift <= 21, let byte: UInt8 = rest.readInteger() else { return 0 }
                length |= Int(byte & 0x7F) << shift
                shift += 7
                if byte < 0x80 { break }
            } while true
            guard rest.readSlice(length: length) != nil else { return 0 }
            count += 1
        }
        return count
    }

    /// Counts what a server's packets lead to until others get their turn.
    func countHandled(on index: Int) {
        residents[index].handled += 1
        let host = residents[index].host.name
        // The share of one input, that of the input before it in the same turn, and what both were waiting behind.
        if residents[index].handled > Self.largestShare {
            note(.bounded, "\(host) handled \(residents[index].handled) messages, and nobody else had a turn")
            residents[index].handled = 0
        }
        guard residents[index].handled == 1 else { return }
        scenario.loop.execute { [weak self] in self?.here { $0.residents[index].handled = 0 } }
    }

    /// Makes many requests at once, as a program.
    func hog(_ index: Int, _ count: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        for _ in 0..<count {
            ask("queue list", of: index) { try await driver.queueList(.init(session: "main", limit: 1000)) }
        }
    }

    /// Publishes with a key, as a program that does so again whenever it has had no answer.
    func publishWithKey(on index: Int, _ key: Int, _ qos: Int) {
        let host = residents[index].host
        guard let driver = host.here({ $0.driver() }) else { return }
        let key = nameOfKey(key, of: index)
        let known = ledger.keyed[key]
        let topic = Self.topics[key.count % 2]
        let qos = known?.qos ?? (qos % 2 == 0 ? QoS.atLeastOnce : .exactlyOnce)
        let number = known?.number ?? ledger.asked(topic, qos, on: host.name, at: hostTime(index), key: key)
        let message = MessagePublishMethod.Parameters(
            session: "main", topic: topic, payload: .init(text: "\(number)"), qos: qos, key: key)
        ask("publish \(number) with key \(key)", of: index) {
            try await driver.publish(message)
        } answered: { [self] answer in
            if case .success = answer, !world.sharesIdentity { ledger.answered(number, accepted: true) }
        }
    }

    /// The number of keys of each host.
    static let keys = 6

    /// A key is remembered for 24 hours; its name changes before that.
    private func nameOfKey(_ key: Int, of index: Int) -> String {
        let halfDays = scenario.now.nanoseconds / 43_200_000_000_000
        return "\(residents[index].host.name)-\(residents[index].keyGeneration)-\(halfDays)-\(key)"
    }

    func isKeyKnown(_ key: Int, of index: Int) -> Bool { ledger.keyed[nameOfKey(key, of: index)] != nil }

    /// Uses other keys from now on: what is remembered of the present ones may be gone, or have another age.
    func forgetKeys(of index: Int) { residents[index].keyGeneration += 1 }

    /// Damages the file with the durable state. What can be read is copied into a new file: everything, if the damage
    /// is found while the daemon runs; or a part, if it is found at the next start.
    func damage(_ index: Int, isWhole: Bool) async throws {
        let host = residents[index].host
        let fault = host.disk.here { $0.fault }
        guard host.here({ $0.isDiskModelled }), isWhole ? fault != .dead : fault == nil else { return }
        let moved = OpenReport.MovedAside(path: "model", cause: "the model says so", isComplete: isWhole)
        guard !isWhole else {
            host.here { $0.runningRegistry }?.here { $0.storeReplaced(moved) }
            return
        }
        await kill(index, landing: false)
        host.disk.here { $0.loseRows() }
        noteLost(index)
        try await start(index)
    }
}
