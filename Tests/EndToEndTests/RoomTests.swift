import ControlAPI
import Support
import Testing

/// Two daemons, in one room or with one identity, with a real server.
extension EndToEnd {
    /// Writes the session `main` of a daemon.
    ///
    /// - Parameter presence: a short one also makes the server want to hear something every few seconds, which a daemon on
    ///   a busy machine may miss.
    private func write(
        _ daemon: DaemonProcess, user: String, device: String, room: String? = "plant", kick: String = "take-over",
        presence: String = "20s", version: String = "5"
    ) throws {
        try daemon.writeSession(
            "main",
            """
            endpoints = ["mqtt://\(Lab.serverAddress):1883"]
            user = "\(user)"
            device = "\(device)"
            \(room.map { "room = \"\($0)\"" } ?? "")
            [reconnect]
            delays = ["50ms", "250ms", "500ms", "1s"]
            spread = "200ms"
            kick = "\(kick)"
            [timeouts]
            dial = "30s"
            authenticate = "30s"
            [heartbeat]
            interval = "5s"
            timeout = "5s"
            [presence]
            timeout = "\(presence)"
            [mqtt]
            version = "\(version)"
            """)
    }

    /// Returns who is in the room, as a daemon sees it.
    private func users(_ daemon: DaemonProcess) async throws -> [String] {
        try await daemon.call(RoomParticipantsMethod.self, .init(session: "main")).participants.map(\.user)
    }

    /// Makes a device displace another one, which stands still until the new one has said that it is there. This server does
    /// not say why it closes a connection, and a device that looks too soon comes back.
    private func displace(
        _ old: DaemonProcess, by new: DaemonProcess, _ device: String, _ connect: () async throws -> Void
    ) async throws {
        await old.pause()
        try await connect()
        try await until("\(device) is in the room") {
            // An error until it is connected.
            (try? await new.call(RoomParticipantsMethod.self, .init(session: "main")))?.participants
                .contains { $0.device == device } == true
        }
        await old.resume()
    }

    @Test func `a participant's short outage is invisible, a long one is seen, and leaving is seen at once`()
        async throws
    {
        try await withLab { lab, ann in
            let server = try await LabServer.started(lab)
            let bob = DaemonProcess(lab, name: "bob", record: ann.record)
            // On a busy machine, it may take a while until ann is back.
            try write(ann, user: "ann", device: "phone", presence: "10min")
            try write(bob, user: "bob", device: "desk")
            let seen = try await bob.startConnected()

            try await ann.start()
            let joined = try await seen.until("told that ann joined") { $0.event == .participantJoined }
            #expect(joined.user == "ann")
            #expect(joined.device == "phone")
            #expect(try await users(bob) == ["ann", "bob"])

            // Killed, which the server notices, but back within the presence timeout.
            func losses() async -> Int {
                await server.log.split(separator: "\n").count {
                    $0.contains(" closed its connection") || $0.contains(" disconnected")
                }
            }
            let before = await losses()
            try await ann.kill()
            try await until("the server has noticed") { await losses() > before }
            #expect(try await users(bob) == ["ann", "bob"])
            try write(ann, user: "ann", device: "phone")
            try await ann.startConnected()
            #expect(try await users(bob) == ["ann", "bob"])

            // Killed, and not back.
            try await ann.kill()
            let left = try await seen.until("told that ann left") {
                $0.event == .participantLeft || $0.event == .participantJoined
            }
            #expect(left.event == .participantLeft, "nothing was told of the short outage")
            #expect(try await users(bob) == ["bob"])

            try await ann.start()
            try await seen.until("told that ann joined again") { $0.event == .participantJoined }
            let received = try await bob.status().counters.received
            try await ann.disconnect()
            try await seen.until("told that ann left") { $0.event == .participantLeft }
            #expect(try await bob.status().counters.received == received + 1)
            try await ann.events().until(.disconnected)
        }
    }

    @Test func `a participant with MQTT 3.1.1 is seen at every outage, and at every return`() async throws {
        try await withLab { lab, ann in
            try await LabServer.started(lab)
            let bob = DaemonProcess(lab, name: "bob", record: ann.record)
            try write(ann, user: "ann", device: "phone", version: "3.1.1")
            try write(bob, user: "bob", device: "desk")
            let seen = try await bob.startConnected()
            try await ann.start()
            try await seen.until("told that ann joined") { $0.event == .participantJoined }
            try await ann.kill()
            try await seen.until("told that ann left") { $0.event == .participantLeft }
            try await ann.start()
            try await seen.until("told that ann joined again") { $0.event == .participantJoined }
            #expect(try await users(bob) == ["ann", "bob"])
        }
    }

    @Test(arguments: ["5", "3.1.1"])
    func `two devices with one identity do not fight, and the newest wins`(
        _ version: String
    ) async throws {
        try await withLab { lab, old in
            try await LabServer.started(lab)
            let new = DaemonProcess(lab, name: "new", record: old.record)
            try write(old, user: "twin", device: "old", version: version)
            try write(new, user: "twin", device: "new", version: version)
            let events = try await old.startConnected()

            try await displace(old, by: new, "new") { try await new.start() }
            let failed = try await events.until(.failed)
            #expect(failed.reason?.code == "displaced")
            try await until("the new one is connected") { try await new.status().state == .connected }
            #expect(try await old.call(SessionStatusMethod.self, .init(session: "main")).reason?.hint != nil)

            // The other way round, on a person's command.
            let others = try await new.events()
            try await displace(new, by: old, "old") { try await old.connect() }
            #expect(try await others.until(.failed).reason?.code == "displaced")
            try await until("the old one is connected") { try await old.status().state == .connected }
            // The side that lost removes its presence only after it has reported that.
            try await until("who was displaced is not in the room") {
                let list = try await old.call(RoomParticipantsMethod.self, .init(session: "main")).participants
                return list.map(\.device) == ["old"]
            }
        }
    }

    @Test func `a device with kick = yield that is taken over is displaced`() async throws {
        try await withLab { lab, first in
            try await LabServer.started(lab)
            let second = DaemonProcess(lab, name: "second", record: first.record)
            try write(first, user: "twin", device: "first", kick: "yield")
            try write(second, user: "twin", device: "second", kick: "yield")
            let events = try await first.startConnected()
            try await displace(first, by: second, "second") { try await second.start() }
            #expect(try await events.until(.failed).reason?.code == "displaced")
            try await until("the second one is connected") { try await second.status().state == .connected }
        }
    }

    @Test func `two devices with one identity and no room are suspected`() async throws {
        try await withLab { lab, one in
            try await LabServer.started(lab)
            let two = DaemonProcess(lab, name: "two", record: one.record)
            try write(one, user: "twin", device: "one", room: nil)
            try write(two, user: "twin", device: "two", room: nil)
            let events = try await one.startConnected()
            try await two.start()
            try await events.until("suspicious") { $0.reason?.code == "displaced-suspected" }
        }
    }

    @Test func `a session changes its room, and stays where it is when the new one refuses`() async throws {
        try await withServer { lab, _, daemon in
            try write(daemon, user: "ann", device: "phone")
            let events = try await daemon.startConnected()
            let far = try await LabSubscriber(lab, filter: "holdfast/rooms/+/presence/#")
            #expect(
                try await daemon.call(SessionSwitchRoomMethod.self, .init(session: "main", room: "lab")).room == "lab")
            try await far.received("ann is in lab and not in plant") { messages in
                messages.contains { $0.topic.contains("/lab/") && !$0.payload.isEmpty }
                    && messages.contains { $0.topic.contains("/plant/") && $0.payload.isEmpty }
            }
            try await events.until("back with the will of the new room") {
                $0.state == .connected && $0.reason?.code == "switch-room"
            }
            try await until("ann is in the new room") { try await users(daemon) == ["ann"] }
            #expect(try await daemon.status().room == "lab")
        }
    }
}
