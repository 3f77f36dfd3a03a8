import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing
import Vocabulary

@testable import Session

/// A session's value with a server made of packets, in virtual time and without an event loop. Each step returns what
/// the driver would have to do, as short texts; commits are durable at once and are not listed.
struct SessionUnderTest {
    var session: Session
    private(set) var second: Int64 = 0
    /// The connection that was dialed last.
    private(set) var dialed = DialID(rawValue: 0)
    /// The last message on each topic.
    private(set) var published: [String: ByteBuffer] = [:]
    private var decoder = PacketDecoder(sender: .client, adoptsVersion: true)

    static let hosts = ["a.example", "b.example"]

    /// - Parameters:
    ///   - version: `nil` to find out which version the server speaks.
    ///   - idleTimeout: of a session on demand.
    init(
        scheme: String = "mqtts", room: String? = nil, version: ProtocolVersion? = .five, redirects: [String] = [],
        idleTimeout: Duration? = nil, credential: SessionCredential? = nil,
        _ change: (inout SessionSettings) -> Void = { _ in }
    ) throws {
        let endpoints = try Self.hosts.map { try Endpoint("\(scheme)://\($0)") }
        var settings = SessionSettings(name: try #require(SessionName("main")), endpoints: endpoints, user: "me")
        settings.notesUses = idleTimeout != nil
        change(&settings)
        var rest = RestPolicy()
        rest.idleTimeout = idleTimeout
        let moment = Session.Moment(now: Instant(nanoseconds: 0), wallClock: Timestamp(rawValue: 0))
        session = Session(
            settings: settings,
            machine: SessionMachine(rest: rest, paths: [Self.path, Self.path], seed: 1, at: moment.now),
            mqtt: MQTTClientMachine(
                configuration: .init(version: version ?? .five, clientID: "c", sessionExpiry: .max),
                restoring: DurableSession()),
            servers: Servers(
                redirections: Redirections(
                    endpoints, allowed: redirects.compactMap { HostPattern($0) }, hasPassword: settings.hasPassword,
                    isInsecure: false),
                protocols: ProtocolChoice(version), homes: []),
            addresses: EndpointAddresses(Self.hosts),
            rooms: Rooms(identity: .init(user: "me", device: "here"), session: "main", willDelay: .seconds(90)),
            durableConsumers: DurableConsumers(DurableSession()), credential: credential, clientID: "c", at: moment)
        session.begin(in: room.map { Room(prefix: "p", name: $0) }, subscribedTo: [])
        _ = proceed()
    }

    static let path = Path(
        interface: "eth0", interfaceIndex: 2, type: .ethernet, source: "192.0.2.2", gateway: "192.0.2.1", table: 254)

    // MARK: Steps

    mutating func take(_ input: Session.Input) -> [String] {
        session.take(input)
        return proceed()
    }

    /// Decides and carries out what waits, as the driver does.
    mutating func proceed() -> [String] {
        var texts: [String] = []
        var actions: [Session.Action] = []
        repeat {
            session.exchangeActions(&actions)
            for action in actions {
                switch action {
                case .commitNumbered(_, let number): session.take(.mqtt(.committed(number)))
                case .store(let changes): session.take(.stored(changes, isComplete: true))
                default: texts += text(action)
                }
            }
            actions = []
        } while session.next(at: moment)
        return texts
    }

    private var moment: Session.Moment {
        .init(now: Instant(nanoseconds: second * 1_000_000_000), wallClock: Timestamp(rawValue: second * 1000))
    }

    mutating func take(_ input: SessionMachine.Input) -> [String] { take(.machine(input)) }

    /// What happens to the connection that was dialed last.
    mutating func take(_ event: DialEvent) -> [String] { take(.connection(dialed, event)) }

    mutating func receives(_ packets: Packet...) -> [String] { receives(packets) }

    mutating func receives(_ packets: [Packet]) -> [String] {
        var bytes = ByteBuffer()
        for packet in packets { packet.encode(into: &bytes, as: session.mqtt.version) }
        return take(.received(bytes))
    }

    mutating func wait(_ seconds: Int64) -> [String] {
        second += seconds
        return take(Session.Input.timeReached)
    }

    /// From an open transport to a session that is as it was.
    mutating func opens() -> [String] { take(.opened(Self.peer)) }

    static let peer: LinkPeer = {
        guard let address = try? SocketAddress(ipAddress: "192.0.2.9", port: 8883) else { preconditionFailure() }
        return LinkPeer(address: address, name: "192.0.2.9:8883", tlsVersion: nil)
    }()

    func connected() -> SessionUnderTest {
        var session = self
        session.connect()
        return session
    }

    private mutating func connect() {
        _ = take(.connect(Reason(.userConnect)))
        _ = opens()
        _ = receives(.connack(Connack()))
    }

    // MARK: What the driver would do

    private mutating func text(_ action: Session.Action) -> [String] {
        switch action {
        case .dial(let id, let target):
            dialed = id
            decoder = PacketDecoder(sender: .client, adoptsVersion: true)
            let knock = if case .knock = target.goal { "knock at" } else { "dial" }
            return ["\(knock) \(target.address.host)" + (target.knock == nil ? "" : " with the knock")]
        case .send(_, let bytes, _):
            decoder.append(bytes)
            var texts: [String] = []
            while let packet = try? decoder.next() {
                if case .publish(let publish) = packet { published[publish.topic] = publish.payload }
                texts.append("send \(Self.name(packet))")
            }
            return texts
        case .letGo(_, .abort?): return ["abort"]
        case .letGo(_, .afterFlush?): return ["leave"]
        case .letGo(_, nil): return []
        case .close: return ["close"]
        case .read(_, let reads): return [reads ? "read" : "pause"]
        case .fetch(.proxy): return ["fetch the proxy's password"]
        case .fetch(.knock): return ["fetch the proxy's password for a knock"]
        case .fetch(.login): return ["fetch"]
        case .fetch(.renewal): return ["fetch another"]
        case .deriveKey: return ["derive"]
        case .report(let report):
            guard case .stateChanged(let from, _) = report.event, from != report.status.state else { return [] }
            return ["\(report.status.state)"]
        case .tell(.roomChanged): return ["in another room"]
        case .tell(.displaced): return ["displaced"]
        case .answer(let calls, .room(let error)): return calls.map { _ in error == nil ? "joined" : "not joined" }
        case .readOnLater: return ["read on later"]
        default: return []
        }
    }

    private static func name(_ packet: Packet) -> String {
        switch packet {
        case .connect(let connect):
            (["CONNECT"] + [connect.clientID].filter { $0 != "c" } + [connect.password.map { String(buffer: $0) }])
                .compactMap(\.self).joined(separator: " ")
        case .publish(let publish):
            publish.retain && publish.payload.readableBytes == 0
                ? "PUBLISH \(publish.topic), cleared" : "PUBLISH \(publish.topic)"
        case .subscribe: "SUBSCRIBE"
        case .unsubscribe: "UNSUBSCRIBE"
        case .pingreq: "PINGREQ"
        case .disconnect(let disconnect):
            disconnect.reasonCode == .disconnectWithWill ? "DISCONNECT with will" : "DISCONNECT"
        default: "\(packet)"
        }
    }
}
