import ControlAPI
import Glibc
import HoldfastClient
import Support
import Testing

/// The makes of server that the cases run with.
enum ServerMake: String, CaseIterable {
    case mosquitto, ejabberd, rabbitmq, nats

    var isInstalled: Bool {
        switch self {
        case .mosquitto: true
        case .ejabberd: LabEjabberd.isInstalled
        case .rabbitmq: LabRabbitMQ.isInstalled
        case .nats: LabNATS.isInstalled
        }
    }

    func broker(in lab: Lab) async throws -> any LabBroker {
        let users = ["main", "near", "guest", "twin"]
        return switch self {
        case .mosquitto: try await LabServer(lab)
        case .ejabberd: try LabEjabberd(lab, in: lab.server, address: Lab.serverAddress)
        case .rabbitmq: try LabRabbitMQ(lab, users: users)
        case .nats: try LabNATS(lab, users: users)
        }
    }

    /// The versions of MQTT that a session may ask for at this make.
    var versions: [String] {
        switch self {
        case .mosquitto, .ejabberd: ["5"]
        case .rabbitmq, .nats: ["3.1.1", "auto"]
        }
    }

    /// The version that the far end speaks.
    var version: LabVersion { versions == ["5"] ? .five : .threeOneOne }

    /// Whether a session survives a kill of the server.
    var keepsSessions: Bool { self != .ejabberd }

    /// RabbitMQ (3.10) treats QoS 2 as QoS 1. The session copes with that, but mosquitto's clients do not.
    var maximumQoS: Int { self == .rabbitmq ? 1 : 2 }

    /// How a displaced session learns of it.
    enum Displacement {
        /// The server says so (MQTT 5, 4.13 and 3.14.2.1: DISCONNECT 0x8E).
        case told
        /// The server only closes the connection; the session looks into its room and finds who came after it.
        /// mosquitto 2.0.11 does not say why, and in MQTT 3.1.1 no server can.
        case seen
        /// The room shows nothing either: RabbitMQ retains nothing for filters with wildcards. Under load, NATS shows
        /// it too late: each of the two takes the identity back before it can see the other one.
        case suspected
    }

    var displacement: Displacement {
        switch self {
        case .ejabberd: .told
        case .mosquitto: .seen
        case .rabbitmq, .nats: .suspected
        }
    }
}

private let isEveryMakeWanted = getenv("HOLDFAST_SERVERS").map { String(cString: $0) } == "all"

/// A make of server, and the version of MQTT that the sessions there ask for.
struct ServerCase: CustomTestStringConvertible {
    var make: ServerMake
    var version: String

    var testDescription: String { "\(make.rawValue), \(version)" }

    /// mosquitto and ejabberd, or with HOLDFAST_SERVERS=all every make: either those that are installed, or all of
    /// them, so that a missing one is a failure.
    static let here = (isEveryMakeWanted ? ServerMake.allCases : [.mosquitto, .ejabberd])
        .filter { $0.isInstalled || LabRequirements.isAllRequired }
        .flatMap { make in make.versions.map { ServerCase(make: make, version: $0) } }
}

extension EndToEnd {
    @Suite struct Servers {}
}

extension EndToEnd.Servers {
    /// The cases share one server: some take seconds to start.
    @Test(arguments: ServerCase.here)
    func `a session works with every make of server`(at server: ServerCase) async throws {
        try await withLab { lab, daemon in
            let cases = try await ServerCases(server, lab, daemon)
            try await cases.connect()
            try await cases.sendAndReceive()
            try await cases.resume()
            try await cases.retain()
            try await cases.leaveAWill()
            try await cases.takeOver()
            try await cases.killTheServer()
        }
    }
}

/// One server, one daemon with the session `main`, and a client near the server.
private struct ServerCases {
    let make: ServerMake
    let version: String
    let lab: Lab
    let daemon: DaemonProcess
    let server: any LabBroker
    let near: LabClient
    let secret: String

    init(_ server: ServerCase, _ lab: Lab, _ daemon: DaemonProcess) async throws {
        make = server.make
        version = server.version
        self.lab = lab
        self.daemon = daemon
        self.server = try await make.broker(in: lab)
        near = LabClient(lab, login: LabLogin(user: "near", password: "secret"), version: make.version)
        secret = try lab.write("password", "secret\n")
    }

    /// No case is about the heartbeat, and a server on a busy machine does not answer within the usual second.
    private func write(_ daemon: DaemonProcess) throws {
        try daemon.session(
            top: "password = \"file:\(secret)\"\ninsecure = true", heartbeat: "30s",
            tables: "[mqtt]\nversion = \"\(version)\"")
    }

    /// A session in the room `plant`.
    private func write(_ daemon: DaemonProcess, user: String, device: String, presence: String) throws {
        try daemon.writeSession(
            "main",
            """
            endpoints = ["mqtt://\(Lab.serverAddress):1883"]
            user = "\(user)"
            device = "\(device)"
            client-id = "\(user)"
            room = "plant"
            password = "file:\(secret)"
            insecure = true
            [reconnect]
            delays = ["50ms", "250ms", "500ms", "1s"]
            spread = "200ms"
            [presence]
            timeout = "\(presence)"
            [mqtt]
            version = "\(version)"
            """)
    }

    func connect() async throws {
        try write(daemon)
        try await daemon.start()
        let events = try await daemon.events()
        try await events.until("refused, as the server is not there") { $0.reason?.code == "refused" }
        try await server.start()
        let connected = try await events.until(.connected)
        #expect(connected.resumed == false)
        #expect(try await daemon.status().protocol == (make.version == .five ? "5" : "3.1.1"))
    }

    func sendAndReceive() async throws {
        let far = try await LabSubscriber(near, filter: "out/#")
        for qos in QoS.allCases {
            let result = try await daemon.publish(
                "\(qos.rawValue)", to: "out/\(qos.rawValue)", qos: qos, wait: .delivered)
            #expect(result.delivered)
        }
        let arrived = try await far.received("one of each QoS is there") { $0.count >= 3 }
        #expect(arrived.map(\.payload) == ["0", "1", "2"])

        let inbox = await Inbox(
            try await daemon.client.subscribe(.init(session: "main", filter: "in/#", qos: .exactlyOnce)))
        try await near.publish("are we there", to: "in/first")
        try await inbox.until("are we there")
        for qos in 0...make.maximumQoS {
            try await near.publish("\(qos)", to: "in/\(qos)", qos: qos)
            #expect(try await inbox.until("\(qos)").qos.rawValue == qos)
        }
        #expect(await inbox.messages.count == 2 + make.maximumQoS)
    }

    func resume() async throws {
        let events = try await daemon.events()
        let inbox = await Inbox(
            try await daemon.client.subscribe(.init(session: "main", filter: "kept/#", qos: .exactlyOnce)))
        try await near.publish("before", to: "kept/1")
        try await inbox.until("before")
        _ = try await daemon.call(SessionReconnectMethod.self, .init(session: "main", mode: .quick))
        try await events.until("resumed") { $0.state == .connected && $0.resumed == true }

        // What comes while the session is away is kept for it.
        try await lab.breakNetwork()
        // What is not acknowledged is noticed within seconds, silence only by the heartbeat.
        try await daemon.publish("1", to: "late", qos: .exactlyOnce)
        try await events.until(.reconnecting)
        let away = (1...make.maximumQoS).map { "away \($0)" }
        for (qos, payload) in zip(1..., away) { try await near.publish(payload, to: "kept/\(qos)", qos: qos) }
        for number in 2...3 { try await daemon.publish("\(number)", to: "late", qos: .exactlyOnce) }
        let far = try await LabSubscriber(near, filter: "late")
        try await lab.healNetwork()
        #expect(try await events.until(.connected).resumed == true)
        for payload in away { try await inbox.until(payload) }
        let late = try await far.received("what was accepted meanwhile is there") { $0.count >= 3 }
        #expect(late.map(\.payload) == ["1", "2", "3"])
        #expect(await inbox.messages.map { $0.payload.text } == ["before"] + away)
    }

    func retain() async throws {
        try await daemon.publish("ours", to: "state/ours", retain: true, wait: .delivered)
        let far = try await LabSubscriber(near, filter: "state/ours")
        try await far.received("what was retained is there") { $0.map(\.payload) == ["ours"] }
        try await near.publish("theirs", to: "state/theirs", retain: true)
        let inbox = await Inbox(try await daemon.client.subscribe(.init(session: "main", filter: "state/theirs")))
        #expect(try await inbox.until("theirs").retain)
    }

    func leaveAWill() async throws {
        let guest = DaemonProcess(lab, name: "guest", record: daemon.record)
        try write(guest, user: "guest", device: "phone", presence: "4s")
        let far = try await LabSubscriber(near, filter: "holdfast/rooms/plant/presence/#")
        try await guest.start()
        let joined = try await far.received("the guest is in the room") { !$0.isEmpty }
        #expect(joined.first?.payload.isEmpty == false)
        try await guest.kill()
        let left = try await far.received("the server says that the guest is gone") { $0.count >= 2 }
        #expect(left.last?.topic == joined.first?.topic)
        #expect(left.last?.payload != joined.first?.payload)
    }

    /// Two devices with one client identifier.
    func takeOver() async throws {
        let first = DaemonProcess(lab, name: "first", record: daemon.record)
        let second = DaemonProcess(lab, name: "second", record: daemon.record)
        try write(first, user: "twin", device: "phone", presence: "1min")
        try write(second, user: "twin", device: "desk", presence: "1min")
        let events = try await first.startConnected()
        try await second.start()
        switch make.displacement {
        case .told:
            let failed = try await events.until(.failed)
            #expect(failed.reason?.code == "displaced")
            #expect(failed.reason?.serverCode == 0x8e)
        case .seen:
            // Either of them: the first one comes back when it looks before the second one has said that it is there.
            try await until("one of them is displaced, and the other one is connected") {
                let both = [try await first.status(), try await second.status()]
                return both.contains { $0.state == .connected }
                    && both.contains { $0.state == .failed && $0.reason?.code == "displaced" }
            }
        case .suspected:
            try await until("one of them suspects the other one at least") {
                let both = [try await first.status(), try await second.status()]
                return both.contains { $0.reason?.code.hasPrefix("displaced") == true }
            }
        }
        #expect(try await second.stop() == .exited(0))
        if try await first.status().state == .failed { try await first.connect() }
        try await until("the first one is connected") { try await first.status().state == .connected }
        #expect(try await first.stop() == .exited(0))
    }

    func killTheServer() async throws {
        let events = try await daemon.events()
        let inbox = await Inbox(try await daemon.client.subscribe(.init(session: "main", filter: "again/#")))
        try await near.publish("before", to: "again/1")
        try await inbox.until("before")
        if make == .mosquitto, let server = server as? LabServer {
            try await server.hasPersisted("again/#")
        }
        try await server.kill()
        // On a busy machine there may have been an outage before; from now on, nobody answers.
        _ = await events.rest()
        try await until("the session has noticed") { try await daemon.status().state == .reconnecting }
        for qos in QoS.allCases {
            try await daemon.publish("\(qos.rawValue)", to: "meanwhile/\(qos.rawValue)", qos: qos, retain: true)
        }
        try await server.start()
        let connected = try await events.until(.connected)
        let told = await events.all.map(\.line)
        // A server that begins slowly may end the connection on which it has made the session: the next one resumes it.
        if make.keepsSessions { #expect(connected.resumed == true, "\(told)") }
        let far = try await LabSubscriber(near, filter: "meanwhile/0", "meanwhile/1", "meanwhile/2")
        try await far.received("what was accepted meanwhile is there") { Set($0.map(\.payload)) == ["0", "1", "2"] }
        try await near.publish("after", to: "again/2")
        try await inbox.until("after")
    }
}
