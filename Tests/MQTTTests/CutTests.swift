import NIOCore
import Support
import Testing

@testable import MQTT

/// Every exchange of every QoS in both directions, cut at every byte and after every packet, at a server that keeps its
/// session and at one that loses it, with a client that lives on and with one that is killed.
@Suite struct CutTests {
    struct Exchange: CustomTestStringConvertible, Sendable {
        var version: ProtocolVersion
        var qos: QoS
        var keepsSession: Bool
        var killsClient: Bool

        var testDescription: String {
            "QoS \(qos.rawValue), MQTT \(version), the session is \(keepsSession ? "kept" : "lost")"
                + (killsClient ? ", the client is killed" : "")
        }

        static func all(_ levels: [QoS]) -> [Exchange] {
            levels.flatMap { qos in
                ProtocolVersion.allCases.flatMap { version in
                    [true, false].flatMap { keepsSession in
                        [true, false].map { killsClient in
                            Exchange(version: version, qos: qos, keepsSession: keepsSession, killsClient: killsClient)
                        }
                    }
                }
            }
        }
    }

    private static let payloads = ["first", "second"]

    /// Runs the exchange once for every place where it can be cut, and once whole.
    private func everyCut(
        _ exchange: Exchange, begin: (inout CutWorld) throws -> Void,
        check: (CutWorld, _ wasCut: CutWorld.Cut?) -> Void
    ) throws {
        var beginning = try CutWorld(exchange.version)
        try begin(&beginning)
        var whole = beginning
        whole.connect()
        check(whole, nil)
        for direction in CutWorld.Direction.allCases {
            let length = try #require(whole.arrived[direction]).count
            #expect(length > 3)
            for byte in 0...length {
                for isAnswered in direction == .toServer ? [true, false] : [true] {
                    let cut = CutWorld.Cut(direction: direction, byte: byte, isAnswered: isAnswered)
                    var world = beginning
                    world.connect(until: cut)
                    #expect(!world.isOpen, "\(cut)")
                    if !exchange.keepsSession { world.loseServersSession() }
                    if exchange.killsClient { try world.killClient() }
                    world.connect()
                    checkAtRest(world, exchange, cut)
                    check(world, cut)
                }
            }
        }
    }

    private func checkAtRest(_ world: CutWorld, _ exchange: Exchange, _ cut: CutWorld.Cut) {
        #expect(world.isOpen && world.machine.isConnected, "\(cut)")
        #expect(world.violations.isEmpty && world.server.violations.isEmpty && world.store.violations.isEmpty, "\(cut)")
        #expect(world.machine.counts == .init(), "\(cut)")
        #expect(world.store.messages.isEmpty && world.store.inboundIDs.isEmpty, "\(cut)")
        #expect(world.server.outgoingCount == 0, "\(cut)")
        #expect(world.server.subscriptions.map(\.string) == ["to/client"], "\(cut)")
    }

    /// [MQTT-4.3.2-3] [MQTT-4.3.3-3] [MQTT-4.3.3-5]
    @Test(arguments: Exchange.all(QoS.allCases))
    func `a message from the client arrives, with QoS 2 once, wherever the exchange is cut`(_ exchange: Exchange) throws
    {
        try everyCut(exchange) { world in
            for payload in Self.payloads { try world.publish(payload, exchange.qos) }
        } check: { world, cut in
            let place = cut?.description ?? "not cut"
            let arrived = world.server.deliveries
            if !exchange.killsClient {
                #expect(world.delivered.values.sorted() == [1, 1], "\(place)")
            }
            for payload in Self.payloads {
                let count = arrived.count { $0.payload == payload }
                let countOfSession = Dictionary(grouping: arrived.filter { $0.payload == payload }, by: \.epoch)
                    .values.map(\.count).max()
                switch exchange.qos {
                case .atMostOnce: #expect(count <= 1, "\(payload), \(place)")
                case .atLeastOnce: #expect(count >= 1, "\(payload), \(place)")
                case .exactlyOnce:
                    // A server that loses its session forgets the exchange.
                    #expect(countOfSession == 1, "\(payload), \(place)")
                    #expect(count == 1 || !exchange.keepsSession, "\(payload), \(place)")
                }
            }
            var seen: Set<String> = []
            let firsts = arrived.map(\.payload).filter { seen.insert($0).inserted }
            #expect(firsts == Self.payloads.filter(firsts.contains), "\(place)")
        }
    }

    @Test(arguments: Exchange.all([.atLeastOnce, .exactlyOnce]))
    func `a message from the server arrives, with QoS 2 once, wherever the exchange is cut`(_ exchange: Exchange) throws
    {
        try everyCut(exchange) { world in
            for payload in Self.payloads { world.publishToClient(payload, exchange.qos) }
        } check: { world, cut in
            let place = cut?.description ?? "not cut"
            for payload in Self.payloads {
                let count = world.inbox.count { $0 == payload }
                if exchange.keepsSession || cut == nil { #expect(count >= 1, "\(payload), \(place)") }
                if exchange.qos == .exactlyOnce { #expect(count <= 1, "\(payload), \(place)") }
            }
            var seen: Set<String> = []
            let firsts = world.inbox.filter { seen.insert($0).inserted }
            #expect(firsts == Self.payloads.filter(firsts.contains), "\(place)")
        }
    }

    /// At the places where it makes a difference; the tests above cut once at every byte.
    @Test(arguments: ProtocolVersion.allCases, CutWorld.Direction.allCases)
    func `messages in both directions survive a second cut during recovery`(
        _ version: ProtocolVersion, _ direction: CutWorld.Direction
    ) throws {
        let other: CutWorld.Direction = direction == .toServer ? .toClient : .toServer
        var beginning = try CutWorld(version)
        for payload in Self.payloads {
            try beginning.publish(payload, .exactlyOnce)
            beginning.publishToClient(payload, .exactlyOnce)
        }
        var whole = beginning
        whole.connect()
        // CONNECT, and PUBLISH, PUBREL, PUBREC and PUBCOMP twice; or CONNACK and the same.
        #expect(whole.places(direction).count > 18)
        for first in whole.places(direction) {
            var wasCut = beginning
            wasCut.connect(until: .init(direction: direction, byte: first))
            #expect(!wasCut.isOpen)
            var recovery = wasCut
            recovery.connect()
            for second in recovery.places(other) {
                var world = wasCut
                world.connect(until: .init(direction: other, byte: second))
                #expect(!world.isOpen)
                world.connect()
                let place = "\(direction) \(first), then \(second)"
                #expect(world.violations.isEmpty && world.server.violations.isEmpty, "\(place)")
                #expect(world.server.deliveries.map(\.payload) == Self.payloads, "\(place)")
                #expect(world.inbox == Self.payloads, "\(place)")
                #expect(world.store.messages.isEmpty && world.store.inboundIDs.isEmpty, "\(place)")
            }
        }
    }
}
