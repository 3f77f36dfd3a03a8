import ControlAPI
import HoldfastClient
import Support
import Testing

/// The makes of servers that the cases are run at.
enum ServerMake: String, CaseIterable, CustomTestStringConvertible {
    case mosquitto, ejabberd

    var testDescription: String { rawValue }

    /// Those that are installed; or all, so that a missing one is a failure.
    static let here = allCases.filter {
        $0 != .ejabberd || LabEjabberd.isInstalled || LabRequirements.isAllRequired
    }

    func broker(in lab: Lab) async throws -> any LabBroker {
        switch self {
        case .mosquitto: try await LabServer(lab)
        case .ejabberd: try LabEjabberd(lab, in: lab.server, address: Lab.serverAddress)
        }
    }

    /// Whether a session survives that the server is killed.
    var keepsSessions: Bool { self == .mosquitto }

    /// Whether who is displaced is told so (MQTT 5, 4.13 and 3.14.2.1: DISCONNECT 0x8E). mosquitto 2.0.11 only closes.
    var tellsDisplaced: Bool { self == .ejabberd }
}

extension EndToEnd {
    @Suite struct Servers {}
}

extension EndToEnd.Servers {
    /// The cases share one server: some take seconds to start.
    @Test(arguments: ServerMake.here)
    func `a session does with every make of server what it is for`(make: ServerMake) async throws {
        try await withLab { lab, daemon in
            let cases = try await ServerCases(make, lab, daemon)
            try await cases.connect()
            try await cases.sendAndReceive()
            try await cases.resume()
            try await cases.retain()
            try await cases.leaveAWill()
            if make.tellsDisplaced { try await cases.takeOver() }
            try await cases.killTheServer()
        }
    }
}

/// One server, one daemon with the session `main`, and a client near the server.
private struct ServerCases {
    let make: ServerMake
    let lab: Lab
    let daemon: Daemon
    let server: any LabBroker
    let near: LabClient
    let secret: String

    init(_ make: ServerMake, _ lab: Lab, _ daemon: Daemon) async throws {
        self.make = make
        self.lab = lab
        self.daemon = daemon
        server = try await make.broker(in: lab)
        near = LabClient(lab, login: LabLogin(user: "near", password: "secret"))
        secret = try lab.write("password", "secret\n")
    }

    private func write(_ daemon: Daemon, user: String = "main", tables: String = "", room: String? = nil) throws {
        let room = room.map { "room = \"\($0)\"\n" } ?? ""
        try daemon.session(top: "\(room)password = \"file:\(secret)\"\ninsecure = true", tables: tables)
    }

    func connect() async throws {
        try write(daemon)
        try await daemon.start()
        let events = try await daemon.events()
        try await events.until("refused, as the server is not there") { $0.reason?.code == "refused" }
        try await server.start()
        let connected = try await events.until(.connected)
        #expect(connected.resumed == false)
    }

    func sendAndReceive() async throws {
        let far = try await LabSubscriber(near, filter: "out/#")
        for qos in MessageQoS.allCases {
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
        for qos in 0...2 {
            try await near.publish("\(qos)", to: "in/\(qos)", qos: qos)
            #expect(try await inbox.until("\(qos)").qos.rawValue == qos)
        }
        #expect(await inbox.messages.count == 4)
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
        try await events.until(.reconnecting)
        for qos in 1...2 { try await near.publish("away \(qos)", to: "kept/\(qos)", qos: qos) }
        for number in 1...3 { try await daemon.publish("\(number)", to: "late", qos: .exactlyOnce) }
        let far = try await LabSubscriber(near, filter: "late")
        try await lab.healNetwork()
        #expect(try await events.until(.connected).resumed == true)
        for qos in 1...2 { try await inbox.until("away \(qos)") }
        let late = try await far.received("what was accepted meanwhile is there") { $0.count >= 3 }
        #expect(late.map(\.payload) == ["1", "2", "3"])
        #expect(await inbox.messages.map { $0.payload.text } == ["before", "away 1", "away 2"])
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
        let guest = Daemon(lab, name: "guest", record: daemon.record)
        try guest.writeSession(
            "main",
            """
            endpoints = ["mqtt://\(Lab.serverAddress):1883"]
            user = "guest"
            room = "plant"
            password = "file:\(secret)"
            insecure = true
            [presence]
            timeout = "1s"
            """)
        let far = try await LabSubscriber(near, filter: "holdfast/rooms/plant/presence/#")
        try await guest.start()
        let joined = try await far.received("the guest is in the room") { !$0.isEmpty }
        #expect(joined.first?.payload.isEmpty == false)
        try await guest.kill()
        let left = try await far.received("the server says that the guest is gone") { $0.count >= 2 }
        #expect(left.last?.topic == joined.first?.topic)
        #expect(left.last?.payload != joined.first?.payload)
    }

    func takeOver() async throws {
        let events = try await daemon.events()
        let other = Daemon(lab, name: "other", record: daemon.record)
        try write(other)
        try await other.start()
        let failed = try await events.until(.failed)
        #expect(failed.reason?.code == "displaced")
        #expect(failed.reason?.serverCode == 0x8e)
        #expect(try await other.status().state == .connected)
        #expect(try await other.stop() == .exited(0))
        try await daemon.connect()
        try await events.until(.connected)
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
        try await events.until(.reconnecting)
        for qos in MessageQoS.allCases {
            try await daemon.publish("\(qos.rawValue)", to: "meanwhile/\(qos.rawValue)", qos: qos, retain: true)
        }
        try await server.start()
        #expect(try await events.until(.connected).resumed == make.keepsSessions)
        let far = try await LabSubscriber(near, filter: "meanwhile/#")
        try await far.received("what was accepted meanwhile is there") { Set($0.map(\.payload)) == ["0", "1", "2"] }
        try await near.publish("after", to: "again/2")
        try await inbox.until("after")
    }
}
